"""L_Proto: instances attract the prototypes of their labels."""

from __future__ import annotations

from hf_mlcl.losses.contrastive import ContrastiveLoss, Rows, Targets
from hf_mlcl.losses.registry import register_loss


@register_loss("proto")
class ProtoLoss(ContrastiveLoss):
    """Pulls each instance to the prototypes of its labels and away from the others.

    Instances never meet each other, so label interactions play no part: the study uses it to tell the effect of the
    contrastive optimisation from that of the interactions. A queue of instances changes nothing here.

    Relations:
        The softmax cross-entropy over labels with cosine logits and a uniform target. `wo_reg` adds the instances.

    Examples:
        >>> import torch
        >>> from hf_mlcl import build_loss
        >>> loss = build_loss("proto", temperature=1.0)
        >>> prototypes = torch.eye(2)
        >>> round(loss(torch.tensor([[1.0, 0.0]]), torch.tensor([[1, 0]]), prototypes).item(), 4)  # log(1 + 1/e)
        0.3133
    """

    uses_prototypes = True
    formula = "T_ij = y_ij / |y_i|  over the prototypes j"
    citation = "Gupta et al. (2023), CVPR; as stated in Audibert, Gauffre, Amini (2024), arXiv:2412.00101"

    def candidates(self, rows: Rows) -> range:
        """The prototypes."""
        return rows.prototypes

    def targets(self, rows: Rows) -> Targets:
        """Every label of an instance with the same weight."""
        y = rows.labels
        target = y / y.sum(1, keepdim=True).clamp(min=1.0)
        return lambda anchors, out: target[anchors]
