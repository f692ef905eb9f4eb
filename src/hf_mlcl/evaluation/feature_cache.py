"""Features on disk: extracted once for a given encoder, dataset and processing."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from hf_mlcl.files import whole_file

FORMAT = "1"
"""Part of every key: raised when files of older versions must not be read any more."""


def feature_key(state_dict: Mapping[str, Tensor], dataset_fingerprint: str, processing: Mapping[str, Any]) -> str:
    """A key that changes with anything that changes the features.

    Args:
        state_dict: The encoder's weights; every byte counts, and so do names, shapes and types.
        dataset_fingerprint: What identifies the rows, e.g. `datasets.Dataset._fingerprint`.
        processing: What else has a say (tokenizer, length, pooling, image size, augmentation, pass ...); JSON-able.
    """
    digest = hashlib.sha256()

    def add(part: bytes | memoryview) -> None:
        digest.update(len(part).to_bytes(8, "little"))  # so that parts cannot run into one another
        digest.update(part)

    settings = {"format": FORMAT, "data": dataset_fingerprint, "processing": processing}
    add(json.dumps(settings, sort_keys=True).encode())
    for name in sorted(state_dict):
        tensor = state_dict[name].detach().cpu().contiguous()
        add(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        add(_bytes(tensor))
    return digest.hexdigest()[:40]


class FeatureCache:
    """A folder of named tensors under keys, made when something is written.

    A file is there as a whole or not at all, however many processes write it. A file that cannot be read, or that
    belongs to another key, counts as absent.

    Examples:
        >>> import tempfile
        >>> key = feature_key({"layer": torch.zeros(2)}, "rows", {"max_length": 48})
        >>> cache = FeatureCache(tempfile.mkdtemp())
        >>> cache.get_or_compute(key, lambda: {"features": torch.ones(2, 3)})["features"].shape
        torch.Size([2, 3])
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def path(self, key: str) -> Path:
        """File of a key, whether it is there or not."""
        if not key or not all(c.isalnum() or c in "-_" for c in key):
            raise ValueError(f"`key` must consist of letters, digits, '-' and '_', but is {key!r}. See `feature_key`.")
        return self.folder / f"{key}.safetensors"

    def load(self, key: str) -> dict[str, Tensor] | None:
        """The tensors under `key`, mapped from the disk, or None if there are none that can be trusted."""
        path = self.path(key)
        while (version := _version(path)) is not None:
            tensors = _read(path, key)
            # safetensors opens a file more than once, and another process may have replaced it in between.
            if tensors is not None or _version(path) == version:
                return tensors
        return None

    def save(self, key: str, tensors: Mapping[str, Tensor]) -> Path:
        """Store `tensors` under `key`."""
        path = self.path(key)
        stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        with whole_file(path) as draft:
            save_file(stored, draft, metadata={"key": key, "checksum": _checksum(stored)})
        return path

    def get_or_compute(self, key: str, compute: Callable[[], Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """The tensors under `key`, computed and stored if they are not there."""
        found = self.load(key)
        if found is None:
            found = dict(compute())
            self.save(key, found)
        return found


def _read(path: Path, key: str) -> dict[str, Tensor] | None:
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
    except (SafetensorError, OSError, ValueError):
        return None
    return tensors if header.get("key") == key and header.get("checksum") == _checksum(tensors) else None


def _version(path: Path) -> tuple[int, int] | None:
    """What tells a file from the one that replaces it; None where there is none."""
    try:
        return (status := path.stat()).st_ino, status.st_mtime_ns
    except FileNotFoundError:
        return None


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(_bytes(tensors[name]))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    array: Any = tensor.flatten().view(torch.uint8).numpy()  # every type of torch has bytes; numpy lacks some types
    return memoryview(array)
