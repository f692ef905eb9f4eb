"""L_MSC: label-balanced attraction, with prototypes and a lighter denominator."""

from __future__ import annotations

from torch import Tensor

from hf_mlcl.losses.balanced import balanced_targets
from hf_mlcl.losses.contrastive import ContrastiveLoss, Rows, Targets
from hf_mlcl.losses.loss import number
from hf_mlcl.losses.registry import register_loss


@register_loss("msc")
class MSCLoss(ContrastiveLoss):
    """Balances labels, discounts partners with many other labels, and lets instances repel less than prototypes.

    Args:
        temperature: tau > 0.
        beta: Weight of an instance in the denominator, where a prototype has 1.
        chunk_size: See `ContrastiveLoss`.

    Relations:
        Prototypes are candidates but not anchors, which sets it apart from `wo_reg`. The original adds a MoCo queue
        (`MomentumQueue`); the study leaves it out.

    Examples:
        >>> import torch
        >>> from hf_mlcl import build_loss
        >>> loss = build_loss("msc", beta=0.1)
        >>> value = loss(torch.randn(4, 8), torch.randint(0, 2, (4, 3)), torch.randn(3, 8))
        >>> value.shape
        torch.Size([])
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
