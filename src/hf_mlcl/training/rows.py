"""Rows of any dataset: of `datasets`, or a plain list."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import Subset

from hf_mlcl.data.labels import decode_labels


def label_ids(dataset: Any, labels: int | Sequence[str]) -> list[list[int]]:
    """Label ids of each row, from any form of labels that the collators read; single ids stand for themselves.

    Examples:
        >>> label_ids([{"labels": [2]}, {"labels": [0, 1]}], 3), label_ids([{"labels": [0, 1, 1]}], 3)
        ([[2], [0, 1]], [[1, 2]])
        >>> label_ids([{"labels": "a|b"}, {"labels": ["b"]}], ["a", "b"])
        ([[0, 1], [1]])
    """
    names = {} if isinstance(labels, int) else {name: number for number, name in enumerate(labels)}
    number = labels if isinstance(labels, int) else len(names)
    return [
        decode_labels(_as_row(cell), number, names, row=f"Row {row} of the dataset")
        for row, cell in enumerate(_labels(dataset, list(names)))
    ]


def _as_row(cell: Any) -> Any:
    return cell if isinstance(cell, str) else cell if isinstance(cell, list) else np.atleast_1d(cell)


def label_counts(dataset: Any, labels: int | Sequence[str]) -> npt.NDArray[np.int64]:
    """How many rows have each label.

    Examples:
        >>> label_counts([{"labels": [2]}, {"labels": [0, 2]}], 3).tolist()
        [1, 0, 2]
    """
    ids = [label for row in label_ids(dataset, labels) for label in row]
    number = labels if isinstance(labels, int) else len(labels)
    return np.bincount(np.asarray(ids, dtype=np.int64), minlength=number)


def _labels(dataset: Any, names: list[str]) -> Any:
    """The labels alone where that is possible: reading a whole row may mean decoding an image."""
    columns = getattr(dataset, "column_names", None) or ()
    if "labels" in columns:
        return dataset.with_format(None)["labels"] if hasattr(dataset, "with_format") else dataset["labels"]
    if names and set(names) <= set(columns):  # one column per label
        plain = dataset.with_format(None) if hasattr(dataset, "with_format") else dataset
        return [[bool(cell) for cell in row] for row in zip(*(plain[name] for name in names), strict=True)]
    return (row["labels"] for row in dataset)


def evenly(dataset: Any, most: int) -> Any:
    """At most `most` rows, spread evenly over the dataset; of a stream, the first ones."""
    if not hasattr(dataset, "__len__"):
        return list(islice(dataset, most))
    if len(dataset) <= most:
        return dataset
    chosen = np.linspace(0, len(dataset) - 1, most).astype(int).tolist()
    return dataset.select(chosen) if hasattr(dataset, "select") else Subset(dataset, chosen)
