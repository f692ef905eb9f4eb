"""L_MulSupCon: SupCon once for every label of an instance."""

from __future__ import annotations

from torch import Tensor

from hf_mlcl.losses.contrastive import ContrastiveLoss, Rows, Targets
from hf_mlcl.losses.registry import register_loss


@register_loss("mulsupcon")
class MulSupConLoss(ContrastiveLoss):
    """Treats an instance as one sample for each of its labels.

    An instance with many labels weighs more than one with few, unlike in the rest of the family. The mean
    is over all labels of the batch, those without a partner included.

    Relations:
        With one label an instance it is `supcon` (but for what the mean divides by). `wo_reg` gives every instance the
        same weight and adds prototypes.

    Examples:
        >>> import torch
        >>> from hf_mlcl import build_loss
        >>> labels = torch.tensor([[1, 1], [1, 1], [0, 0]])
        >>> round(build_loss("mulsupcon")(torch.eye(3), labels).item(), 4)  # two candidates, equally near: log 2
        0.6931
    """

    formula = "T_ij = sum_(l in y_i) [y_jl] / |P(l, i)|,  mean over sum_i |y_i|"
    citation = "Zhang and Wu (2024), Multi-Label Supervised Contrastive Learning, AAAI"

    def targets(self, rows: Rows) -> Targets:
        """For each label of the anchor, a unit of weight shared among those who carry it."""
        labels = rows.label_sets()
        # An anchor carries the label itself, so n - 1 others do; where none does, nothing is left to divide.
        share = 1.0 / (labels.counts - 1.0).clamp(min=1.0)
        return lambda anchors, out: labels.shared(labels[anchors] * share, out)

    def divisor(self, rows: Rows, anchors: range, valid_anchors: Tensor) -> Tensor:
        """The number of labels of the anchors."""
        return rows.labels[anchors.start : anchors.stop].sum()
