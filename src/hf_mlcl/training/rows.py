"""Rows of any dataset: of `datasets`, or a plain list."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch.utils.data import Subset


def label_ids(dataset: Any) -> list[list[int]]:
    """Label ids of each row, from lists of ids or multi-hot vectors."""
    column = dataset["labels"] if hasattr(dataset, "column_names") else [row["labels"] for row in dataset]
    rows = []
    for labels in column:
        values = np.atleast_1d(np.asarray(labels))
        multi_hot = values.dtype.kind in "fb"
        rows.append((np.flatnonzero(values) if multi_hot else values).astype(int).tolist())
    return rows


def evenly(dataset: Any, most: int) -> Any:
    """At most `most` rows, spread evenly over the dataset."""
    if len(dataset) <= most:
        return dataset
    chosen = np.linspace(0, len(dataset) - 1, most).astype(int).tolist()
    return dataset.select(chosen) if hasattr(dataset, "select") else Subset(dataset, chosen)
