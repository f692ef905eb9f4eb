"""What a classifier decided for each test row, kept in little space for paired tests between runs."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hf_mlcl.files import whole_file

DECISIONS_FILE = "test_decisions.npz"
METRICS_FILE = "metrics.json"

Flags = npt.NDArray[np.bool_]


def save_decisions(folder: str | os.PathLike[str], labels: npt.ArrayLike, decisions: npt.ArrayLike) -> None:
    """Write truth and decisions, a bit each, whole or not at all.

    Args:
        folder: Gets ``test_decisions.npz``.
        labels: Multi-hot truth (rows, labels).
        decisions: Multi-hot decisions, same shape.

    Examples:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> save_decisions(folder, [[1, 0]], [[1, 1]])
        >>> labels, decisions = load_decisions(folder)
        >>> decisions.tolist()
        [[True, True]]
    """
    truth, chosen = np.asarray(labels, dtype=bool), np.asarray(decisions, dtype=bool)
    if truth.ndim != 2 or truth.shape != chosen.shape:
        raise ValueError(f"labels and decisions must be two matrices of one shape; got {truth.shape}, {chosen.shape}.")
    with whole_file(Path(folder) / DECISIONS_FILE) as draft, draft.open("wb") as file:
        np.savez_compressed(file, shape=truth.shape, labels=np.packbits(truth), decisions=np.packbits(chosen))


def load_decisions(folder: str | os.PathLike[str]) -> tuple[Flags, Flags]:
    """Truth and decisions that `save_decisions` wrote.

    Raises:
        FileNotFoundError: If none are there.
    """
    with np.load(Path(folder) / DECISIONS_FILE) as file:
        shape = tuple(file["shape"])
        count = int(np.prod(shape))
        labels, decisions = (
            np.unpackbits(file[name], count=count).astype(bool).reshape(shape) for name in ("labels", "decisions")
        )
    return labels, decisions
