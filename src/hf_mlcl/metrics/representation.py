"""Metrics of a feature space: alignment and uniformity (Wang and Isola, 2020), on L2-normalised features.

Both are means over pairs of rows. Neither holds the pairs: alignment has a closed form, and uniformity visits the upper
triangle of the similarity matrix tile by tile. Features on a GPU are worked on there.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hf_mlcl.metrics._arrays import ArrayLike, as_array, as_multi_hot

TILE_ROWS = 2048
"""Side of a tile of pairs: 16 MB of float32, large enough for the matrix product to run at full speed."""


def alignment(features: ArrayLike, labels: ArrayLike) -> float:
    """Mean squared distance of two rows that carry exactly the same labels; lower is better, NaN if there is no pair.

    Rows without any label share none, so they form no pair. For a group of n rows with mean mu, the squared distances
    of its ordered pairs sum to 2 n sum_i |x_i - mu|^2: linear in the rows, and exact.

    Args:
        features: Features (rows, size); normalised here. A zero row stays zero.
        labels: Multi-hot labels (rows, labels).

    Examples:
        >>> alignment([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]], [[1, 0], [1, 0], [0, 1]])
        2.0
    """
    x = _normalised(features)
    truth = torch.as_tensor(as_multi_hot(labels, "labels"))
    if len(truth) != len(x):
        raise ValueError(
            f"`features` has {len(x)} rows, but `labels` has {len(truth)}: both need one for each example."
        )
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

    The exact value costs one product of all pairs of rows in tiles: 40,000 x 2,048 features take some tens of seconds
    on two cores and a few tens of megabytes. `max_rows` samples rows instead; `uniformity_error` gives its error.

    Args:
        features: Features (rows, size); normalised here. A zero row stays zero.
        t: The kernel's sharpness; 2 in the study.
        max_rows: Use at most this many rows, drawn without replacement. None: all, exactly.
        seed: Of the draw.

    Examples:
        >>> round(uniformity([[1.0, 0.0], [-1.0, 0.0]]), 6)
        -8.0
    """
    x = _normalised(_sampled(features, max_rows, seed))
    if len(x) < 2:
        return math.nan
    return math.log(float(_kernel_sums(x, _positive(t)).sum()) / (len(x) * (len(x) - 1)))


def uniformity_error(features: ArrayLike, t: float = 2.0, max_rows: int | None = None, seed: int = 0) -> float:
    """Standard error of `uniformity` as an estimate from a sample of rows (the same arguments draw the same sample).

    The mean over pairs is a U-statistic: its variance is about 4 var(h) / rows, with h_i the mean of row i's kernel.

    Examples:
        >>> features = torch.randn(400, 8, generator=torch.Generator().manual_seed(0))
        >>> exact = uniformity(features)
        >>> abs(uniformity(features, max_rows=200) - exact) < 4 * uniformity_error(features, max_rows=200)
        True
    """
    x = _normalised(_sampled(features, max_rows, seed))
    if len(x) < 3:
        return math.nan
    means = _kernel_sums(x, _positive(t)) / (len(x) - 1)
    return float(2 * means.std() / math.sqrt(len(x)) / means.mean())


def _kernel_sums(x: Tensor, t: float) -> Tensor:
    """For each row, the sum of exp(-t |x_i - x_j|^2) over the other rows, in float64."""
    norm = torch.linalg.vector_norm(x, dim=1).square()  # 1, but 0 for a zero row
    sums = torch.zeros(len(x), dtype=torch.float64, device=x.device)
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
            else:
                sums[columns] += tile.sum(0, dtype=torch.float64)
            sums[rows] += tile.sum(1, dtype=torch.float64)
    return sums


def _matrix(features: ArrayLike) -> Tensor:
    x = features.detach() if isinstance(features, Tensor) else torch.as_tensor(as_array(features))
    if x.dim() != 2:
        raise ValueError(f"`features` must be a (rows, size) matrix, but has shape {tuple(x.shape)}.")
    return x


def _normalised(features: ArrayLike) -> Tensor:
    x = _matrix(features)
    if x.dtype != torch.float64:
        x = x.float()
    norm = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    if not torch.isfinite(norm).all():
        raise ValueError("`features` holds NaN or infinity. Look at the encoder's outputs: did training diverge?")
    return torch.div(x, norm.masked_fill_(norm == 0, 1.0))


def _sampled(features: ArrayLike, max_rows: int | None, seed: int) -> Tensor:
    x = _matrix(features)
    if max_rows is None or max_rows >= len(x):
        return x
    if max_rows < 2:
        raise ValueError(f"`max_rows` must be at least 2, or None for all rows, but is {max_rows}.")
    keep = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:max_rows]
    return x[keep.to(x.device)]


def _positive(t: float) -> float:
    if not t > 0:
        raise ValueError(f"`t` must be positive, but is {t}.")
    return t
