"""L_W/O-REG and L_REG, the study's own losses."""

from __future__ import annotations

import torch
from torch import Tensor

from hf_mlcl.losses.balanced import balanced_targets
from hf_mlcl.losses.contrastive import ContrastiveLoss, Rows, Targets
from hf_mlcl.losses.loss import number
from hf_mlcl.losses.registry import register_loss


@register_loss("wo_reg")
class WithoutRegLoss(ContrastiveLoss):
    """Label-balanced attraction among instances and prototypes alike.

    A prototype is a row of the batch that carries its own label: it is candidate and anchor.

    Args:
        temperature: tau > 0.
        alpha: How much partners with further labels are discounted: f = (|y_i and y_j| / |y_j|)^alpha. 0 discounts
            none; the study tries 0 and 1.
        chunk_size: See `ContrastiveLoss`.

    Relations:
        `reg` is this loss with the regulariser. Without prototypes and with a mean over labels it would be `mulsupcon`.

    Examples:
        >>> import torch
        >>> from hf_mlcl import build_loss
        >>> loss = build_loss("wo_reg", alpha=1.0)
        >>> loss(torch.randn(4, 8), torch.randint(0, 2, (4, 3)), torch.randn(3, 8)).shape
        torch.Size([])
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
    negative one. The regulariser takes that part of the gradient away; the minimum stays the same.

    Args:
        temperature: tau > 0.
        alpha: See `WithoutRegLoss`.
        chunk_size: See `ContrastiveLoss`.

    Examples:
        The share of positive pairs that the regulariser touches comes from the same pass:

        >>> import torch
        >>> from hf_mlcl import build_loss
        >>> loss = build_loss("reg")
        >>> parts = loss.parts(torch.randn(16, 8), torch.ones(16, 3), torch.randn(3, 8), statistics=True)
        >>> bool(0 < parts.statistics()["prr"] < 1)
        True
    """

    regularised = True
    formula = WithoutRegLoss.formula + ",  minus sum_(j positive) max(0, detach(p_ij) - T_ij) s_ij"
