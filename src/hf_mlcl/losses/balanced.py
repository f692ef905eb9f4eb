"""Targets that give every label of an anchor the same weight, whatever its frequency: MSC, W/O-REG and REG."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hf_mlcl.losses.contrastive import Rows, Targets
from hf_mlcl.losses.labels import LabelSets

PairWeight = Callable[[Tensor, Tensor], Tensor]
"""f(shared, sizes): the weights of a tile of pairs, up to a factor for each anchor, from the numbers of labels that
they share (0 for an anchor and itself; it may overwrite them) and the numbers of labels of the anchors, a column."""


def balanced_targets(rows: Rows, labels: LabelSets, pair_weight: PairWeight | None = None) -> Targets:
    """T_ij = 1/|y_i| sum_(l in y_i) [y_jl] f_ij / N(l, i), with N(l, i) the sum of f over those who carry l.

    With f = 1 that is one product, (Y / (n - 1) / |y_i|) Y^T, where n counts the rows that carry each label. Else
    N = F Y comes first, and T = F * ((Y / N / |y_i|) Y^T).

    Args:
        rows: The rows of the contrast; every anchor is among the candidates.
        labels: Their label sets.
        pair_weight: f; None stands for 1.
    """
    alike = 1.0 / (labels.counts - 1.0).clamp(min=1.0)

    def tile(anchors: slice, out: Tensor) -> Tensor:
        y = labels[anchors]
        sizes = y.sum(1, keepdim=True).clamp(min=1.0)
        if pair_weight is None:
            return labels.shared((y / sizes).mul_(alike), out)
        shared = labels.shared(y, torch.empty_like(out))
        itself = anchors.start - rows.queued.start  # the diagonal on which an anchor meets itself
        shared.diagonal(itself).zero_()
        f = pair_weight(shared, sizes)
        f.diagonal(itself).zero_()
        n = labels.per_label(f)
        n = n.masked_fill(n == 0, 1.0)
        return labels.shared(y / sizes / n, out).mul_(f)

    return tile
