"""Metrics of a feature space: alignment and uniformity (Wang and Isola, 2020), on L2-normalised features.

Both are means over pairs of rows. Neither holds the pairs: alignment has a closed form, and uniformity visits the upper
triangle of the similarity matrix tile by tile. Features on a GPU are worked on there.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hf_mlcl.metrics._arrays import ArrayLike, as_features, as_multi_hot, unit_rows

TILE_ROWS = 2048
"""Side of a tile of pairs: 16 MB of float32, large enough for the matrix product to run at full speed."""


def alignment(features: ArrayLike, labels: ArrayLike) -> float:
    """Mean squared distance of two rows that carry exactly the same labels; lower is better, NaN if there is no pair.

    Rows without any label share none, so they form no pair. For a group of n rows with mean mu, the squared distances
    of its ordered pairs sum to 2 n sum_i |x_i - mu|^2: linear in the rows, and exact. A zero row stays zero.

    Examples:
        >>> alignment([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]], [[1, 0], [1, 0], [0, 1]])
        2.0
    """
    x = unit_rows(features, "features")
    truth = torch.as_tensor(as_multi_hot(labels, "labels"))
    if len(truth) != len(x):
        raise ValueError(f"`features` has {len(x)} rows, but `labels` has {len(truth)}: give one for each example.")
    _, group, size = torch.unique(truth, dim=0, return_inverse=True, return_counts=True)
    paired = truth.any(dim=1) & (size[group] > 1)
    if not paired.any():
        return math.nan
    _, group, size = torch.unique(group[paired], return_inverse=True, return_counts=True)
    x, group, size = x[paired.to(x.device)], group.to(x.device), size.to(x.device)
    centre = x.new_zeros(len(size), x.shape[1]).index_add_(0, group, x)
    centre /= size.unsqueeze(1)
    spread = torch.zeros(len(size), dtype=torch.float64, device=x.device)
    for start in range(0, len(x), TILE_ROWS):
        rows = slice(start, start + TILE_ROWS)
        distance = (x[rows] - centre[group[rows]]).square().sum(1, dtype=torch.float64)
        spread.index_add_(0, group[rows], distance)
    return float((2 * size * spread).sum() / (size * (size - 1)).sum())


def uniformity(features: ArrayLike, t: float = 2.0, max_rows: int | None = None, seed: int = 0) -> float:
    """Log of the mean of exp(-t |x_i - x_j|^2) over pairs of different rows; lower is better, NaN below two rows.

    The exact value of 40,000 x 2,048 features takes some tens of seconds on two cores and a few tens of megabytes.

    Args:
        features: Features (rows, size); normalised here.
        t: The kernel's sharpness; 2 in the study.
        max_rows: Use at most this many rows, drawn without replacement by `seed`; all of them if None.
        seed: Of the draw.

    Examples:
        >>> round(uniformity([[1.0, 0.0], [-1.0, 0.0]]), 6)
        -8.0
    """
    if not t > 0:
        raise ValueError(f"`t` must be positive, but is {t}.")
    if max_rows is not None and max_rows < 2:
        raise ValueError(f"`max_rows` must be at least 2, or None for all rows, but is {max_rows}.")
    x = as_features(features, "features")
    if max_rows is not None and max_rows < len(x):
        x = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:max_rows].to(x.device)]
    if len(x) < 2:
        return math.nan
    return math.log(_kernel_sum(unit_rows(x, "features"), t) / (len(x) * (len(x) - 1)))


def _kernel_sum(x: Tensor, t: float) -> float:
    """The sum of exp(-t |x_i - x_j|^2) over all pairs of different rows, in float64."""
    norm = torch.linalg.vector_norm(x, dim=1).square()  # 1, but 0 for a zero row
    total = torch.zeros((), dtype=torch.float64, device=x.device)
    buffer = x.new_empty(TILE_ROWS * TILE_ROWS)
    starts = range(0, len(x), TILE_ROWS)
    for i in starts:
        rows = slice(i, i + TILE_ROWS)
        for j in starts[i // TILE_ROWS :]:
            columns = slice(j, j + TILE_ROWS)
            shape = (len(x[rows]), len(x[columns]))
            tile = torch.mm(x[rows], x[columns].T, out=buffer[: shape[0] * shape[1]].view(shape))
            tile.mul_(2).sub_(norm[rows].unsqueeze(1)).sub_(norm[columns]).clamp_(max=0).mul_(t).exp_()
            if i == j:
                tile.fill_diagonal_(0)
            total += (1 if i == j else 2) * tile.sum(dtype=torch.float64)
    return float(total)
