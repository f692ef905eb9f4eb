"""L_MSC, L_W/O-REG and L_REG: targets that give every label of an anchor the same weight, whatever its frequency."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hf_mlcl.losses.contrastive import ContrastiveLoss, Rows, Targets
from hf_mlcl.losses.labels import LabelSets
from hf_mlcl.losses.loss import number
from hf_mlcl.losses.registry import register_loss

PairWeight = Callable[[Tensor, Tensor], Tensor]
"""f(shared, sizes): the weights of a tile of pairs, up to a factor for each anchor, from the numbers of labels that
they share (0 for an anchor and itself; it may overwrite them) and the numbers of labels of the anchors, a column."""


def balanced_targets(rows: Rows, labels: LabelSets, pair_weight: PairWeight | None = None) -> Targets:
    """T_ij = 1/|y_i| sum_(l in y_i) [y_jl] f_ij / N(l, i), with N(l, i) the sum of f over those who carry l.

    With f = 1 (None) that is one product, (Y / (n - 1) / |y_i|) Y^T, where n counts the rows that carry each label.
    Else N = F Y comes first, and T = F * ((Y / N / |y_i|) Y^T). Every anchor is among the candidates.
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


@register_loss("msc")
class MSCLoss(ContrastiveLoss):
    """Balances labels, discounts partners with many other labels, and lets instances repel less than prototypes.

    Prototypes are candidates but not anchors, which sets it apart from `wo_reg`. The original adds a MoCo queue
    (`MomentumQueue`); the study leaves it out.

    Args:
        temperature: tau > 0.
        beta: Weight of an instance in the denominator, where a prototype has 1.
        chunk_size: See `ContrastiveLoss`.
    """

    uses_prototypes = True
    formula = (
        "T_ij = 1/|y_i| sum_(l in y_i) [y_jl] f_ij / N(l, i),  f = 1 / |y_i or y_j| for instances, 1 for prototypes;  "
        "instances weigh beta in the denominator"
    )
    citation = (
        "Audibert, Gauffre, Amini (2024), Exploring Contrastive Learning for Long-Tailed Multi-Label Text "
        "Classification, arXiv:2404.08720"
    )

    def __init__(self, temperature: float = 0.1, beta: float = 0.1, chunk_size: int | None = None) -> None:
        super().__init__(temperature, chunk_size)
        self.beta = number("beta", beta, above=True, hint="The default is 0.1; 1 weighs instances as prototypes.")

    def targets(self, rows: Rows) -> Targets:
        """Balanced over the anchor's labels, each partner discounted by the size of the union."""
        labels = rows.label_sets()
        candidate_sizes = labels.sizes

        def inverse_union(shared: Tensor, sizes: Tensor) -> Tensor:
            union = (sizes + candidate_sizes).sub_(shared).clamp_(min=1.0)
            union[:, labels.split :] = 1.0  # prototypes are not discounted
            return union.reciprocal_()

        return balanced_targets(rows, labels, inverse_union)

    def weights(self, rows: Rows) -> Tensor:
        """Beta for queue and instances, 1 for prototypes."""
        weights = rows.labels.new_ones(rows.prototypes.stop)
        weights[: rows.prototypes.start] = self.beta
        return weights


@register_loss("wo_reg")
class WithoutRegLoss(ContrastiveLoss):
    """Label-balanced attraction among instances and prototypes alike; `reg` is this loss with the regulariser.

    A prototype is a row of the batch that carries its own label: it is candidate and anchor.

    Args:
        temperature: tau > 0.
        alpha: How much partners with further labels are discounted: f = (|y_i and y_j| / |y_j|)^alpha. 0 discounts
            none; the study tries 0 and 1.
        chunk_size: See `ContrastiveLoss`.
    """

    uses_prototypes = True
    formula = "T_ij = 1/|y_i| sum_(l in y_i) [y_jl] f_ij / N(l, i),  f = (|y_i and y_j| / |y_j|)^alpha"
    citation = (
        "Audibert, Gauffre, Amini (2024), Multi-Label Contrastive Learning: A Comprehensive Study, arXiv:2412.00101"
    )

    def __init__(self, temperature: float = 0.1, alpha: float = 0.0, chunk_size: int | None = None) -> None:
        super().__init__(temperature, chunk_size)
        self.alpha = number("alpha", alpha, hint="0 switches the re-weighting off.")

    def anchors(self, rows: Rows) -> range:
        """Instances and prototypes."""
        return range(rows.instances.start, rows.prototypes.stop)

    def targets(self, rows: Rows) -> Targets:
        """Balanced over the anchor's labels, partners discounted by alpha."""
        labels = rows.label_sets()
        if self.alpha == 0.0:
            return balanced_targets(rows, labels)
        candidate_sizes = labels.sizes.clamp(min=1.0)
        least = torch.finfo(rows.labels.dtype).tiny ** 0.5

        def discount(shared: Tensor, _: Tensor) -> Tensor:
            # Only the ratios within a row count. Relative to its largest entry no power underflows that matters, and
            # what would become 0 stays positive, so that the regulariser still knows the pair.
            share = shared.div_(candidate_sizes)
            return share.div_(share.amax(1, keepdim=True).clamp_(min=least)).pow_(self.alpha).clamp_(min=least)

        return balanced_targets(rows, labels, discount)


@register_loss("reg")
class RegLoss(WithoutRegLoss):
    """`wo_reg` with the gradient regulariser: no positive pair is ever pushed apart.

    Where a positive pair is already more probable than its target, the plain loss pushes it apart as if it were a
    negative one. The regulariser takes that part of the gradient away; the minimum stays the same. Its arguments are
    those of `WithoutRegLoss`.

    Examples:
        The share of positive pairs that the regulariser touches comes from the same pass:

        >>> parts = RegLoss().parts(torch.randn(16, 8), torch.ones(16, 3), torch.randn(3, 8), statistics=True)
        >>> bool(0 < parts.statistics()["prr"] < 1)
        True
    """

    regularised = True
    formula = WithoutRegLoss.formula + ",  minus sum_(j positive) max(0, detach(p_ij) - T_ij) s_ij"
