"""L_SupCon and L_SupConReg, for data with one label an instance."""

from __future__ import annotations

from torch import Tensor

from hf_mlcl.losses.contrastive import ContrastiveLoss, Rows, Targets
from hf_mlcl.losses.labels import to_class_ids
from hf_mlcl.losses.registry import register_loss


@register_loss("supcon")
class SupConLoss(ContrastiveLoss):
    """Pulls instances of the same class together, away from all others.

    Inputs:
        - **embeddings** (B, d)
        - **labels**: class ids (B,), -100 for a row without a class, or one-hot (B, C).

    Relations:
        `mulsupcon` and `wo_reg` extend it to several labels an instance; `supcon_reg` adds the regulariser.

    Examples:
        >>> import torch
        >>> from hf_mlcl import build_loss
        >>> round(build_loss("supcon")(torch.eye(3), torch.tensor([0, 0, 1])).item(), 4)  # log 2
        0.6931
    """

    formula = "T_ij = [class i = class j] / |P(i)|"
    citation = "Khosla et al. (2020), Supervised Contrastive Learning, NeurIPS"

    def check_labels(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Class ids from ids or one-hot rows."""
        return to_class_ids(labels, embeddings, rows_name="embeddings", check_values=self.may_look_at_values(labels))

    def targets(self, rows: Rows) -> Targets:
        """The same weight for all others of the anchor's class."""
        classes = rows.labels

        def tile(anchors: slice, out: Tensor) -> Tensor:
            own = classes[anchors].unsqueeze(1)
            out.copy_((own == classes) & (own >= 0))
            out.diagonal(anchors.start - rows.queued.start).zero_()
            return out.div_(out.sum(1, keepdim=True).clamp_(min=1.0))

        return tile


@register_loss("supcon_reg")
class SupConRegLoss(SupConLoss):
    """`supcon` with the regulariser of `reg`.

    Examples:
        >>> import torch
        >>> from hf_mlcl import build_loss
        >>> build_loss("supcon_reg")(torch.randn(8, 4), torch.randint(0, 2, (8,))).shape
        torch.Size([])
    """

    regularised = True
    formula = SupConLoss.formula + ",  minus sum_(j positive) max(0, detach(p_ij) - T_ij) s_ij"
    citation = (
        "Audibert, Gauffre, Amini (2024), Multi-Label Contrastive Learning: A Comprehensive Study, arXiv:2412.00101"
    )
