"""``hf-mlcl doctor``."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import typer

from hf_mlcl.cli.output import print_json, print_table
from hf_mlcl.versions import installed_version

NEEDED = ("torch", "torchvision", "transformers", "datasets", "accelerate", "timm", "scikit-learn", "huggingface_hub")
OPTIONAL = {
    "umap-learn": "maps by UMAP",
    "sentence-transformers": "loading exported encoders there",
    "onnxruntime": "running exported ONNX models",
}
LEAST_FREE_GB = 10
"""Models, caches and checkpoints of a single RoBERTa-base run take about half of it."""


def run(data_dir: str | None, as_json: bool) -> None:
    """Look, print, and end with code 1 if something has to be fixed.

    Args:
        data_dir: Where official files of the corpora may be.
        as_json: For programs.
    """
    checks = [*_versions(), *_devices(), *_network(), *_disk(), *_data(data_dir)]
    if as_json:
        print_json([dict(zip(("what", "found", "state"), check, strict=True)) for check in checks])
    else:
        print_table(["what", "found", "state"], checks)
    broken = [what for what, _, state in checks if state.startswith("fix")]
    if broken:
        raise typer.Exit(1)


def _versions() -> list[list[str]]:
    python = platform.python_version()
    rows = [["Python", python, "ok" if sys.version_info >= (3, 10) else "fix: 3.10 is the least"]]
    required = {
        line.split(">=")[0].strip(): line.split(">=")[1].split(";")[0].strip()
        for line in _requirements()
        if ">=" in line and "extra" not in line
    }
    for name in NEEDED:
        version = installed_version(name)
        least = required.get(name, required.get(name.replace("_", "-"), "0"))
        fine = version is not None and _number(version) >= _number(least)
        rows.append([name, version or "missing", "ok" if fine else f"fix: pip install '{name}>={least}'"])
    for name, use in OPTIONAL.items():
        version = installed_version(name)
        rows.append([name, version or "missing", "ok" if version else f"only for {use}"])
    return rows


def _requirements() -> list[str]:
    try:
        return importlib.metadata.requires("hf-mlcl") or []
    except importlib.metadata.PackageNotFoundError:  # used from its folder, without being installed
        return []


def _number(version: str) -> Any:
    from packaging.version import Version

    return Version(version)


def _devices() -> list[list[str]]:
    import os

    import torch

    rows = [["CPU", f"{os.cpu_count()} cores", "ok"]]
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        bf16 = "bf16" if torch.cuda.is_bf16_supported() else "fp16"
        rows.append([f"GPU {index}", f"{facts.name}, {facts.total_memory / 2**30:.0f} GB, {bf16}", "ok"])
    if torch.backends.mps.is_available():
        rows.append(["GPU", "Apple (mps)", "ok"])
    if len(rows) == 1:
        rows.append(["GPU", "none", "toys and features only; the study's backbones want one"])
    return rows


def _network() -> list[list[str]]:
    from huggingface_hub import constants, get_token

    from hf_mlcl.data.download import hub_is_reachable

    reached = hub_is_reachable()
    logged_in = "logged in" if get_token() else "not logged in: hf auth login, to push"
    return [
        ["Hub", constants.ENDPOINT, "ok" if reached else "not reached: use local folders, or --backbone small"],
        ["Hub login", logged_in, "ok" if get_token() else "only for push"],
    ]


def _disk() -> list[list[str]]:
    from huggingface_hub import constants

    rows = []
    for what, folder in (("disk here", Path.cwd()), ("disk of the cache", Path(constants.HF_HOME))):
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(existing).free / 2**30
        state = "ok" if free >= LEAST_FREE_GB else f"little: {LEAST_FREE_GB} GB are comfortable"
        rows.append([what, f"{folder}: {free:.0f} GB free", state])
    return rows


def _data(data_dir: str | None) -> list[list[str]]:
    from datasets import config

    from hf_mlcl.cli.info import how_to_get
    from hf_mlcl.data.registry import corpus_facts, list_corpora

    lying = {path.name.removesuffix(".gz") for path in Path(data_dir).rglob("*")} if data_dir else set()
    rows = []
    for name in list_corpora():
        built = Path(config.HF_DATASETS_CACHE) / f"hf_mlcl_{name}"
        files = {file.name.removesuffix(".gz") for file in corpus_facts(name).files}
        if built.is_dir():
            rows.append([name, "built", "ok"])
        elif files & lying:
            rows.append([name, f"files in {data_dir}", "ok: give --data_dir"])
        else:
            rows.append([name, "not here", how_to_get(name)])
    return rows
