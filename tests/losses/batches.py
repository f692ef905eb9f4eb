"""Batches for the tests of the losses."""

from __future__ import annotations

import hypothesis.strategies as st
import torch
from hypothesis.extra.numpy import arrays

from losses.oracles import SINGLE_LABEL


def labels_for(name: str, labels: torch.Tensor) -> torch.Tensor:
    """The labels as the loss can take them: at most one per row for the single-label losses."""
    if name not in SINGLE_LABEL:
        return labels
    return labels * (labels.cumsum(1) == 1)


def batch(name: str, rows: int, num_labels: int, dim: int, seed: int = 0, density: float = 0.4):
    """Random embeddings, labels (some rows empty, one full) and prototypes in float64."""
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(rows, dim, generator=g, dtype=torch.float64)
    c = torch.randn(num_labels, dim, generator=g, dtype=torch.float64)
    y = (torch.rand(rows, num_labels, generator=g) < density).double()
    if rows > 2:
        y[0], y[1] = 0, 1
    return z, labels_for(name, y), c


def multi_hot(max_rows: int = 6, max_labels: int = 4):
    """Multi-hot matrices of every shape, empty and full rows and columns included."""
    shapes = st.tuples(st.integers(1, max_rows), st.integers(1, max_labels))
    return shapes.flatmap(lambda shape: arrays("int64", shape, elements=st.integers(0, 1))).map(torch.from_numpy)
