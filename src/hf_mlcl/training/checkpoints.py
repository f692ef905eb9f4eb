"""Which checkpoints are whole: every file is there, can be read to its end, and holds what it should."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers.trainer_pt_utils import safe_globals
from transformers.utils import ADAPTER_CONFIG_NAME

from hf_mlcl.models.adapter_files import FILES

STATE_FILE = "trainer_state.json"
WEIGHTS = ("*model*.safetensors", "*model*.bin")
FOR_RESUMING = ("optimizer.pt", "scheduler.pt", "rng_state*.pth")
"""All of them are there, or none: ``save_only_model``."""
OF_STATE: dict[str, Any] = {
    "global_step": int,
    "max_steps": int,
    "epoch": (int, float),
    "log_history": list,
    "stateful_callbacks": dict,
}
"""What a training goes on with, in `STATE_FILE`."""


def last_whole_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that can be loaded; others are passed over."""
    return next((path for path in newest_first(folder) if damage(path) is None), None)


def newest_first(folder: Path) -> Iterator[Path]:
    """Everything in a folder that is called as a checkpoint is."""
    numbered = [path for path in folder.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdigit()]
    yield from sorted(numbered, key=lambda path: -int(path.name.removeprefix("checkpoint-")))


def damage(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint, by the name of the file; None where every file is there and can be read.

    Examples:
        >>> import tempfile
        >>> damage(Path(tempfile.mkdtemp()))
        'trainer_state.json is missing'
    """
    if not (checkpoint / STATE_FILE).is_file():
        return f"{STATE_FILE} is missing"
    for path in sorted(checkpoint.iterdir(), key=lambda path: path.name != STATE_FILE):
        try:
            _read(path)
        except Exception as error:  # whatever each format's reader comes up with
            return f"{path.name} cannot be read ({' '.join(str(error).split())[:200] or type(error).__name__})"
    if any(path.is_dir() for path in checkpoint.iterdir()):  # sharded by FSDP or DeepSpeed, which check for themselves
        return None
    if not any(has(checkpoint, pattern) for pattern in WEIGHTS):
        return "model.safetensors is missing"
    if (checkpoint / ADAPTER_CONFIG_NAME).is_file() and (gone := [name for name in FILES if not has(checkpoint, name)]):
        return f"{gone[0]} is missing"
    for index in checkpoint.glob("*.index.json"):
        parts = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        if missing := [part for part in sorted(parts) if not (checkpoint / part).is_file()]:
            return f"{missing[0]} is missing"
    missing = [pattern for pattern in FOR_RESUMING if not has(checkpoint, pattern)]
    return f"{missing[0].replace('*', '')} is missing" if 0 < len(missing) < len(FOR_RESUMING) else None


def has(checkpoint: Path, pattern: str) -> bool:
    """Whether a checkpoint has such a file."""
    return any(checkpoint.glob(pattern))


def _read(path: Path) -> None:
    """Read a file as far as it takes to see whether it is whole, with no more than one weight in memory."""
    if path.suffix == ".json":
        content = json.loads(path.read_text(encoding="utf-8"))
        if path.name == STATE_FILE:
            wrong = [key for key, kind in OF_STATE.items() if not isinstance(content.get(key), kind)]
            if wrong:
                raise ValueError(f"it has no {wrong[0]}")
    elif path.suffix == ".safetensors":
        with safe_open(path, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 - it is no dictionary
                weight = weights.get_tensor(name)
                if weight.is_floating_point() and weight.itemsize > 1 and not torch.isfinite(weight).all():
                    raise ValueError(f"{name} is not finite")
    elif path.suffix in (".pt", ".pth") or (path.suffix == ".bin" and "model" in path.name):
        _read_zipped(path)


def _read_zipped(path: Path) -> None:
    """Compare the checksums of what ``torch.save`` wrote, and see that it is what the name says."""
    try:
        with zipfile.ZipFile(path) as file:
            damaged = file.testzip()
    except zipfile.BadZipFile:
        raise ValueError("it is empty or cut off") from None
    if damaged is not None:
        raise ValueError(f"its part {damaged} is damaged")
    with safe_globals():
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    if path.name == "optimizer.pt" and not (isinstance(content, dict) and {"state", "param_groups"} <= content.keys()):
        raise ValueError("it is not the state of an optimizer")
