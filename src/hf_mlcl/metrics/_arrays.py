"""How arrays come in, for metrics and evaluation alike: numpy or torch out of anything, errors that say what to fix.

Nothing here loads torch for arrays of numpy: tables of finished studies are there at once.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, Union, cast

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor

ArrayLike: TypeAlias = Union[npt.ArrayLike, "Tensor"]  # whose second part cannot be joined by |
"""Anything a metric takes: a numpy array, a tensor on any device, or nested lists."""

BoolArray: TypeAlias = npt.NDArray[np.bool_]
FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
IntArray: TypeAlias = npt.NDArray[np.int64]

CHUNK_ELEMENTS = 2**23
"""Cells of a matrix that are worked on at a time: temporaries stay at some tens of megabytes however long the input."""
MULTI_HOT = "Turn lists of label ids into multi-hot rows first, with hf_mlcl.data.encode_labels(lists, num_labels)."


def as_array(values: ArrayLike) -> npt.NDArray[Any]:
    """`values` as a numpy array, without a copy where that is possible."""
    torch, found = sys.modules.get("torch"), cast(Any, values)
    if torch is not None and isinstance(found, torch.Tensor):
        found = found.detach()
        return np.asarray((found.float() if found.dtype is torch.bfloat16 else found).cpu().numpy())
    return np.asarray(values)


def as_multi_hot(values: ArrayLike, name: str) -> BoolArray:
    """`values`, a (rows, labels) matrix of 0 and 1, as booleans; anything else is refused by `name`."""
    wanted = f"`{name}` must be a (rows, labels) matrix of 0 and 1, but"
    try:
        array = as_array(values)
    except ValueError as error:  # numpy's, which names no argument
        raise ValueError(f"{wanted} its rows differ in length. {MULTI_HOT}") from error
    if array.ndim != 2:
        raise ValueError(f"{wanted} has shape {array.shape}. {MULTI_HOT}")
    if array.dtype == np.bool_:
        return array
    result = np.empty(array.shape, dtype=np.bool_)
    for rows in chunks(array.shape):
        part = array[rows]
        np.equal(part, 1, out=result[rows])
        wrong = ~(result[rows] | (part == 0))
        if wrong.any():
            raise ValueError(
                f"`{name}` must hold only 0 and 1, but holds {part[wrong].ravel()[0]!r}. Scores become predictions by "
                "a threshold, e.g. `scores >= 0.5`."
            )
    return result


def as_scores(values: ArrayLike, name: str) -> FloatArray:
    """`values` as a (rows, labels) matrix of finite or infinite numbers in float32 or float64."""
    array = as_array(values)
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float32 if array.dtype == np.float16 else np.float64)
    if array.ndim != 2:
        raise ValueError(f"`{name}` must be a (rows, labels) matrix, but has shape {array.shape}.")
    if any(np.isnan(array[rows]).any() for rows in chunks(array.shape)):
        raise ValueError(f"`{name}` holds NaN, which has no rank. Look at the model's outputs: did training diverge?")
    return array


def _check_same(labels: BoolArray, other: npt.NDArray[Any], name: str) -> None:
    if other.shape != labels.shape:
        raise ValueError(
            f"`{name}` has shape {other.shape}, but `labels` has {labels.shape}: both need a row for each example and "
            "a column for each label."
        )
    if labels.size == 0:
        raise ValueError(f"`labels` has shape {labels.shape}: a metric needs at least one example and one label.")


def labels_and_predictions(labels: ArrayLike, predictions: ArrayLike) -> tuple[BoolArray, BoolArray]:
    """Truth and decisions of the same examples and labels."""
    truth, guess = as_multi_hot(labels, "labels"), as_multi_hot(predictions, "predictions")
    _check_same(truth, guess, "predictions")
    return truth, guess


def labels_and_scores(labels: ArrayLike, scores: ArrayLike, name: str = "scores") -> tuple[BoolArray, FloatArray]:
    """Truth and scores of the same examples and labels; those that are called ``probabilities`` must be some."""
    truth, values = as_multi_hot(labels, "labels"), as_scores(scores, name)
    _check_same(truth, values, name)
    if name == "probabilities" and (values.min() < 0 or values.max() > 1):
        raise ValueError(
            f"`probabilities` must lie between 0 and 1, but span {values.min():.3g} to {values.max():.3g}. Apply a "
            "sigmoid to logits first."
        )
    return truth, values


def as_features(values: ArrayLike, name: str, size: int | None = None) -> Tensor:
    """`values` as a (rows, size) tensor of floats, where it is: neither copied nor moved."""
    import torch

    x = as_tensor(values, name)
    if x.dim() != 2 or not x.dtype.is_floating_point:
        raise ValueError(f"`{name}` must be a (rows, size) matrix of floats, not {x.dtype} of shape {tuple(x.shape)}.")
    if size is not None and x.shape[1] != size:
        raise ValueError(f"`{name}` has {x.shape[1]} features per row, but {size} are expected, as in training.")
    # Smallest and largest are NaN or infinite if any number is, and need no memory.
    if x.numel() and not torch.isfinite(torch.stack(x.aminmax())).all():
        raise ValueError(f"`{name}` holds NaN or infinity. Look at the encoder's outputs: did training diverge?")
    return x


def as_tensor(values: Any, name: str) -> Tensor:
    """A tensor that shares the memory of `values` where that is possible."""
    import torch

    if isinstance(values, torch.Tensor):
        return values.detach()
    array = as_array(values)
    if array.dtype == object:
        raise ValueError(f"`{name}` must be a (rows, size) matrix of floats, but is {type(values).__name__}.")
    with warnings.catch_warnings():
        # torch warns of arrays that cannot be written, such as a file mapped for reading: nobody writes them here.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.as_tensor(array)


def unit_rows(values: ArrayLike, name: str) -> Tensor:
    """Features with rows of length 1, in float32 or float64; a zero row stays zero."""
    import torch

    x = as_features(values, name)
    x = x if x.dtype is torch.float64 else x.float()
    norm = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    if not torch.isfinite(norm).all():
        raise ValueError(f"`{name}` holds numbers so large that the length of a row is infinite. Scale them down.")
    return torch.div(x, norm.masked_fill_(norm == 0, 1.0))


def chunks(shape: tuple[int, ...]) -> Iterator[slice]:
    """Consecutive ranges of rows that cover `shape`, of about `CHUNK_ELEMENTS` cells each."""
    step = max(CHUNK_ELEMENTS // max(int(np.prod(shape[1:])), 1), 1)
    for start in range(0, shape[0], step):
        yield slice(start, min(start + step, shape[0]))


def divide(numerator: npt.ArrayLike, denominator: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """The quotient, and 0 where the denominator is 0: what scikit-learn calls ``zero_division=0``."""
    top, bottom = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    return np.divide(top, bottom, out=np.zeros(np.broadcast_shapes(top.shape, bottom.shape)), where=bottom != 0)
