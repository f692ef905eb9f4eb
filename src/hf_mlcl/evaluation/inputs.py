"""Features and labels as the linear evaluation wants them, and errors that say what is wrong with them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from hf_mlcl.metrics._arrays import ArrayLike, as_array, as_multi_hot


def as_features(values: ArrayLike, name: str, size: int | None = None) -> Tensor:
    """`values` as a (rows, size) tensor, where it is: neither copied nor moved."""
    x = values.detach() if isinstance(values, Tensor) else _tensor(values, name)
    if x.dim() != 2 or not x.dtype.is_floating_point:
        raise ValueError(f"`{name}` must be a (rows, size) matrix of floats, not {x.dtype} of shape {tuple(x.shape)}.")
    if size is not None and x.shape[1] != size:
        raise ValueError(f"`{name}` has {x.shape[1]} features a row, but `train_features` has {size}.")
    # Smallest and largest are NaN or infinite if any number is, and need no memory.
    if x.numel() and not torch.isfinite(torch.stack(x.aminmax())).all():
        raise ValueError(f"`{name}` holds NaN or infinity. Look at the encoder's outputs: did training diverge?")
    return x


def as_passes(values: ArrayLike | Sequence[ArrayLike], name: str) -> list[Tensor]:
    """One or several passes over the training features, each (rows, size).

    Several come as an array (passes, rows, size) or as a list of matrices, which may lie on disk (`numpy.memmap`).
    """
    if isinstance(values, (list, tuple)) and values and getattr(values[0], "ndim", 1) == 2:
        passes = [as_features(item, name) for item in values]
    else:
        x = values if isinstance(values, Tensor) else _tensor(values, name)  # type: ignore[arg-type]
        passes = [as_features(item, name) for item in (x if x.dim() == 3 else [x])]
    if not passes or any(item.shape != passes[0].shape for item in passes):
        shapes = [tuple(item.shape) for item in passes]
        raise ValueError(f"the passes of `{name}` must all have the same rows and size, but have shapes {shapes}.")
    if len(passes[0]) == 0:
        raise ValueError(f"`{name}` has no rows: there is nothing to learn from.")
    return passes


def as_labels(values: ArrayLike, name: str, rows: int, width: int | None = None) -> Tensor:
    """`values` as a boolean tensor (rows, labels)."""
    try:
        array = as_array(values)
    except ValueError as error:  # numpy's, which names no argument
        raise ValueError(
            f"`{name}` must be a (rows, labels) matrix of 0 and 1, but its rows differ in length. Turn lists of label "
            "ids into multi-hot rows first, with hf_mlcl.data.encode_labels(lists, num_labels)."
        ) from error
    labels = torch.from_numpy(as_multi_hot(array, name))
    if labels.shape[1] == 0:
        raise ValueError(f"`{name}` has shape {tuple(labels.shape)}: there must be a column for each label.")
    if len(labels) != rows:
        raise ValueError(f"`{name}` has {len(labels)} rows, but the features have {rows}.")
    if width is not None and labels.shape[1] != width:
        raise ValueError(f"`{name}` has {labels.shape[1]} labels, but `train_labels` has {width}.")
    return labels


def _tensor(values: ArrayLike, name: str) -> Tensor:
    array = as_array(values)
    if array.dtype == object:
        raise ValueError(f"`{name}` must be a (rows, size) matrix of floats, but is {type(values).__name__}.")
    with warnings.catch_warnings():
        # torch warns of arrays that cannot be written, such as a file mapped for reading: nobody writes them here.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.as_tensor(array)
