"""What every metric does to its inputs: numpy out of anything, and errors that say what to fix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

ArrayLike: TypeAlias = npt.ArrayLike | torch.Tensor
"""Anything a metric takes: a numpy array, a tensor on any device, or nested lists."""

BoolArray: TypeAlias = npt.NDArray[np.bool_]
FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
IntArray: TypeAlias = npt.NDArray[np.int64]

CHUNK_ELEMENTS = 2**23
"""Cells of a matrix that are worked on at a time: temporaries stay at some tens of megabytes however long the input."""


def as_array(values: ArrayLike) -> npt.NDArray[Any]:
    """`values` as a numpy array, without a copy where that is possible."""
    if isinstance(values, torch.Tensor):
        values = values.detach()
        if values.dtype is torch.bfloat16:  # numpy has no such type
            values = values.float()
        return np.asarray(values.cpu().numpy())
    return np.asarray(values)


def as_multi_hot(values: ArrayLike, name: str) -> BoolArray:
    """`values`, a (rows, labels) matrix of 0 and 1, as booleans; anything else is refused by `name`."""
    array = as_array(values)
    if array.ndim != 2:
        raise ValueError(
            f"`{name}` must be a (rows, labels) matrix of 0 and 1, but has shape {array.shape}. Turn lists of label "
            "ids into multi-hot rows first, with hf_mlcl.data.encode_labels(lists, num_labels)."
        )
    if array.dtype == np.bool_:
        return array
    result = np.empty(array.shape, dtype=np.bool_)
    for rows in chunks(array.shape):
        part = array[rows]
        np.equal(part, 1, out=result[rows])
        if not np.all(result[rows] | (part == 0)):
            other = part[~(result[rows] | (part == 0))].ravel()[0]
            raise ValueError(
                f"`{name}` must hold only 0 and 1, but holds {other!r}. Scores become predictions by a threshold, e.g. "
                "`scores >= 0.5`."
            )
    return result


def as_scores(values: ArrayLike, name: str, like: BoolArray | None = None) -> FloatArray:
    """`values` as a (rows, labels) matrix of finite or infinite numbers in float32 or float64, shaped as `like`."""
    array = as_array(values)
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float32 if array.dtype == np.float16 else np.float64)
    if array.ndim != 2:
        raise ValueError(f"`{name}` must be a (rows, labels) matrix, but has shape {array.shape}.")
    if like is not None and array.shape != like.shape:
        raise ValueError(
            f"`{name}` has shape {array.shape}, but the labels have {like.shape}: both need a row for each "
            "example and a column for each label."
        )
    for rows in chunks(array.shape):
        if np.isnan(array[rows]).any():
            raise ValueError(
                f"`{name}` holds NaN, which has no rank. Look at the model's outputs: did training diverge?"
            )
    return array


def same_shape(labels: BoolArray, predictions: BoolArray) -> None:
    """Refuse matrices that do not speak of the same examples and labels."""
    if labels.shape != predictions.shape:
        raise ValueError(
            f"`predictions` has shape {predictions.shape}, but `labels` has {labels.shape}: both need a row for each "
            "example and a column for each label."
        )


def not_empty(labels: BoolArray) -> None:
    """Refuse a matrix over which there is no mean."""
    if labels.size == 0:
        raise ValueError(f"`labels` has shape {labels.shape}: a metric needs at least one example and one label.")


def chunks(shape: tuple[int, ...]) -> Iterator[slice]:
    """Consecutive ranges of rows that cover `shape`, of about `CHUNK_ELEMENTS` cells each."""
    step = max(CHUNK_ELEMENTS // max(int(np.prod(shape[1:])), 1), 1)
    for start in range(0, shape[0], step):
        yield slice(start, min(start + step, shape[0]))


def divide(numerator: npt.ArrayLike, denominator: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """The quotient, and 0 where the denominator is 0: what scikit-learn calls ``zero_division=0``."""
    top, bottom = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    quotient = np.zeros(np.broadcast_shapes(top.shape, bottom.shape))
    np.divide(top, bottom, out=quotient, where=bottom != 0)
    return quotient
