"""Rows of any dataset: of `datasets`, or a plain list."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import Subset

from hf_mlcl.data.labels import decode_labels


def label_ids(dataset: Any, num_labels: int) -> list[list[int]]:
    """Label ids of each row, from any form of labels that the collators read; single ids stand for themselves.

    Examples:
        >>> label_ids([{"labels": [2]}, {"labels": [0, 1]}], 3), label_ids([{"labels": [0, 1, 1]}], 3)
        ([[2], [0, 1]], [[1, 2]])
    """
    return [
        decode_labels(np.atleast_1d(labels), num_labels, row=f"Row {number} of the dataset")
        for number, labels in enumerate(_labels(dataset))
    ]


def label_counts(dataset: Any, num_labels: int) -> npt.NDArray[np.int64]:
    """How many rows have each label.

    Examples:
        >>> label_counts([{"labels": [2]}, {"labels": [0, 2]}], 3).tolist()
        [1, 0, 2]
    """
    ids = [label for labels in label_ids(dataset, num_labels) for label in labels]
    return np.bincount(np.asarray(ids, dtype=np.int64), minlength=num_labels)


def _labels(dataset: Any) -> Any:
    """The labels alone where that is possible: reading a whole row may mean decoding an image."""
    if "labels" in (getattr(dataset, "column_names", None) or ()):
        return dataset.with_format(None)["labels"] if hasattr(dataset, "with_format") else dataset["labels"]
    return (row["labels"] for row in dataset)


def evenly(dataset: Any, most: int) -> Any:
    """At most `most` rows, spread evenly over the dataset; of a stream, the first ones."""
    if not hasattr(dataset, "__len__"):
        return list(islice(dataset, most))
    if len(dataset) <= most:
        return dataset
    chosen = np.linspace(0, len(dataset) - 1, most).astype(int).tolist()
    return dataset.select(chosen) if hasattr(dataset, "select") else Subset(dataset, chosen)
