"""``hf-mlcl doctor``."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from hf_mlcl.cli.options import AsJson
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

Checks = Iterator[tuple[str, str, str]]
"""What was looked at, what was found, and its state: `ok`, `fix: ...`, or a note."""


def doctor(
    data_dir: Annotated[str | None, typer.Option(help="Look for official files of the corpora in here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say what is there and what is missing: versions, devices, the Hub, data, disk.

    The code is 1 if something must be fixed.
    """
    checks = [*_versions(), *_devices(), *_network(), *_disk(), *_data(data_dir)]
    if as_json:
        print_json([dict(zip(("what", "found", "state"), check, strict=True)) for check in checks])
    else:
        print_table(["what", "found", "state"], checks)
        print(f"\n{_verdict(checks)}")
    if any(state.startswith("fix") for _, _, state in checks):
        raise typer.Exit(1)


def _verdict(checks: Sequence[tuple[str, str, str]]) -> str:
    """One line on whether it works here, and what to do next."""
    broken = [
        f"  {state.removeprefix('fix: ')}    ({what}: {found})" for what, found, state in checks if "fix" in state
    ]
    if broken:
        return "\n".join(["hf-mlcl does not work here yet. Do this, then ask again:", *broken])
    states = {what: state for what, _, state in checks}
    offline = states["Hub"] != "ok"
    where = " without downloads" if offline else ""
    start = "hf-mlcl train reviews.csv" + (" --backbone small   (or a folder with an encoder)" if offline else "")
    lines = [f"hf-mlcl works here{where}. Start with:", "  hf-mlcl demo", f"  {start}"]
    if not any(what.startswith("GPU") and state == "ok" for what, state in states.items()):
        lines.append(
            "There is no GPU: encoders of up to about 100 MB and a few thousand rows train in minutes, larger ones not."
        )
    if any(state.startswith("little") for state in states.values()):
        lines.append("The disk is nearly full: make room before a long training.")
    return "\n".join(lines)


def _versions() -> Checks:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    yield "Python", platform.python_version(), "ok" if sys.version_info >= (3, 10) else "fix: 3.10 is the least"
    try:
        stated = [Requirement(line) for line in importlib.metadata.requires("hf-mlcl") or []]
    except importlib.metadata.PackageNotFoundError:  # used from its folder, without being installed
        stated = []
    required = {one.name.replace("-", "_"): one.specifier for one in stated if one.marker is None}
    for name in NEEDED:
        version, wanted = installed_version(name), required.get(name.replace("-", "_"), SpecifierSet())
        fine = version is not None and wanted.contains(Version(version), prereleases=True)
        yield name, version or "missing", "ok" if fine else f"fix: pip install '{name}{wanted}'"
    for name, use in OPTIONAL.items():
        version = installed_version(name)
        yield name, version or "missing", "ok" if version else f"only for {use}"


def _devices() -> Checks:
    import torch

    yield "CPU", f"{os.cpu_count()} cores", "ok"
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        bf16 = "bf16" if torch.cuda.is_bf16_supported() else "fp16"
        yield f"GPU {index}", f"{facts.name}, {facts.total_memory / 2**30:.0f} GB, {bf16}", "ok"
    if torch.backends.mps.is_available():
        yield "GPU", "Apple (mps)", "ok"
    elif not torch.cuda.is_available():
        yield "GPU", "none", "toys and features only; the study's backbones want one"


def _network() -> Checks:
    from huggingface_hub import constants, get_token

    from hf_mlcl.data.download import hub_is_reachable

    reached = "ok" if hub_is_reachable() else "not reached: use local folders, or --backbone small"
    yield "Hub", constants.ENDPOINT, reached
    known = get_token() is not None
    yield "Hub login", "logged in" if known else "not logged in: hf auth login, to push", "ok" if known else "for push"


def _disk() -> Checks:
    from huggingface_hub import constants

    for what, folder in (("disk here", Path.cwd()), ("disk of the cache", Path(constants.HF_HOME))):
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(existing).free / 2**30
        state = "ok" if free >= LEAST_FREE_GB else f"little: {LEAST_FREE_GB} GB are comfortable"
        yield what, f"{folder}: {free:.0f} GB free", state


def _data(data_dir: str | None) -> Checks:
    from hf_mlcl.cli.info import how_to_get, is_here
    from hf_mlcl.data.registry import corpus_facts, list_corpora

    lying = {path.name.removesuffix(".gz") for path in Path(data_dir).rglob("*")} if data_dir else set()
    for name in list_corpora():
        files = {file.name.removesuffix(".gz") for file in corpus_facts(name).files}
        if is_here(name):
            yield name, "here", "ok"
        elif files & lying:
            yield name, f"files in {data_dir}", "ok: give --data_dir"
        else:
            yield name, "not here", how_to_get(name)
