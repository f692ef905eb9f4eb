"""Rows of any dataset: of `datasets`, or a plain list."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import Subset


def label_ids(dataset: Any, num_labels: int) -> list[list[int]]:
    """Label ids of each row, from lists of ids or multi-hot vectors.

    Vectors of floats or booleans are multi-hot. Integers are if every row has `num_labels` of them, zeros and ones
    only, and if they cannot be ids: in tensors and arrays, or because an id would occur twice in a row.

    Args:
        dataset: Rows with `labels`.
        num_labels: How many there are.

    Raises:
        ValueError: If labels are neither; it names the row.

    Examples:
        >>> label_ids([{"labels": [2]}, {"labels": [0, 1]}], 3), label_ids([{"labels": [0, 1, 1]}], 3)
        ([[2], [0, 1]], [[1, 2]])
    """
    column = list(_labels(dataset))
    rows = [np.atleast_1d(np.asarray(labels)) for labels in column]
    filled = [row for row in rows if row.size]
    if any(row.dtype.kind in "fb" for row in filled) or _are_integer_multi_hot(column, rows, num_labels):
        for number, row in enumerate(rows):
            if row.shape != (num_labels,):
                raise ValueError(
                    f"Row {number} of the dataset has {row.size} numbers in `labels`, but the model was made for "
                    f"{num_labels} labels: multi-hot rows need one number a label."
                )
        return [np.flatnonzero(row).tolist() for row in rows]
    found = [row.astype(int).tolist() for row in rows]
    for number, ids in enumerate(found):
        if len(set(ids)) != len(ids) or not all(0 <= label < num_labels for label in ids):
            raise ValueError(
                f"Row {number} of the dataset has the labels {ids}, which are neither different ids between 0 and "
                f"{num_labels - 1} nor zeros and ones for each of the {num_labels} labels. Give lists of ids without "
                "repetitions, or multi-hot rows for the labels that the model was made for."
            )
    return found


def _labels(dataset: Any) -> Any:
    """The labels alone where that is possible: reading a whole row may mean decoding an image."""
    if "labels" in (getattr(dataset, "column_names", None) or ()):
        return dataset.with_format(None)["labels"] if hasattr(dataset, "with_format") else dataset["labels"]
    return (row["labels"] for row in dataset)


def _are_integer_multi_hot(column: list[Any], rows: list[npt.NDArray[Any]], num_labels: int) -> bool:
    if not rows or not all(row.shape == (num_labels,) and np.isin(row, (0, 1)).all() for row in rows):
        return False
    as_vectors = any(hasattr(labels, "shape") for labels in column)
    return as_vectors or any(len(np.unique(row)) < num_labels or row.max() >= num_labels for row in rows)


def evenly(dataset: Any, most: int) -> Any:
    """At most `most` rows, spread evenly over the dataset."""
    if len(dataset) <= most:
        return dataset
    chosen = np.linspace(0, len(dataset) - 1, most).astype(int).tolist()
    return dataset.select(chosen) if hasattr(dataset, "select") else Subset(dataset, chosen)
