"""Features and labels as the linear evaluation wants them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hf_mlcl.metrics._arrays import ArrayLike, as_features, as_multi_hot, as_tensor


def as_passes(values: ArrayLike | Sequence[ArrayLike], name: str) -> list[Tensor]:
    """One or several passes over the training features, each (rows, size).

    Several come as an array (passes, rows, size) or as a list of matrices, which may lie on disk (`numpy.memmap`).
    """
    if isinstance(values, list | tuple) and values and getattr(values[0], "ndim", 1) == 2:
        passes = [as_features(item, name) for item in values]
    else:
        x = values if isinstance(values, Tensor) else as_tensor(values, name)
        passes = [as_features(item, name) for item in (x if x.dim() == 3 else [x])]
    if not passes or any(item.shape != passes[0].shape for item in passes):
        shapes = [tuple(item.shape) for item in passes]
        raise ValueError(f"the passes of `{name}` must all have the same rows and size, but have shapes {shapes}.")
    if len(passes[0]) == 0:
        raise ValueError(f"`{name}` has no rows: there is nothing to learn from.")
    return passes


def as_labels(values: ArrayLike, name: str, rows: int, width: int | None = None) -> Tensor:
    """`values` as a boolean tensor (rows, labels)."""
    labels = torch.from_numpy(as_multi_hot(values, name))
    if labels.shape[1] == 0:
        raise ValueError(f"`{name}` has shape {tuple(labels.shape)}: there must be a column for each label.")
    if len(labels) != rows:
        raise ValueError(f"`{name}` has {len(labels)} rows, but the features have {rows}.")
    if width is not None and labels.shape[1] != width:
        raise ValueError(f"`{name}` has {labels.shape[1]} labels, but `train_labels` has {width}.")
    return labels
