"""Losses whose targets follow from the labels of a pair alone: L_Base, L_Proto, L_MulSupCon, L_SupCon, L_SupConReg."""

from __future__ import annotations

import torch

from hf_mlcl.losses.contrastive import ContrastiveLoss, Rows, Targets
from hf_mlcl.losses.labels import to_class_ids
from hf_mlcl.losses.registry import register_loss


@register_loss("base")
class BaseLoss(ContrastiveLoss):
    """Pulls instances together in proportion to the Jaccard similarity of their label sets.

    The study's plainest contrastive loss: no prototypes, no account of how frequent a label is. `mulsupcon` balances
    labels instead of comparing whole sets; `msc` and `reg` add prototypes.

    Examples:
        >>> labels = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 1]])
        >>> embeddings = torch.eye(3)  # the third row shares no label: it is no anchor
        >>> round(BaseLoss()(embeddings, labels).item(), 4)  # two candidates, equally near: log 2
        0.6931
    """

    formula = "T_ij = J(y_i, y_j) / sum_k J(y_i, y_k),  J = |y_i and y_j| / |y_i or y_j|"
    citation = "Audibert, Gauffre, Amini (2024), arXiv:2412.00101, after Lin et al. (2023), Findings of ACL"

    def targets(self, rows: Rows) -> Targets:
        """Jaccard similarities, normalised over the candidates."""
        labels = rows.label_sets()
        sizes = labels.sizes

        def tile(anchors: slice, out: torch.Tensor) -> torch.Tensor:
            y = labels[anchors]
            shared = labels.shared(y, out)
            union = y.sum(1, keepdim=True) + sizes - shared
            jaccard = shared.div_(union.clamp_(min=1.0))
            jaccard.diagonal(anchors.start - rows.queued.start).zero_()
            return jaccard.div_(jaccard.sum(1, keepdim=True).clamp_(min=1e-30))

        return tile


@register_loss("proto")
class ProtoLoss(ContrastiveLoss):
    """Pulls each instance to the prototypes of its labels and away from the others.

    Instances never meet each other, so label interactions play no part, and a queue changes nothing: the study uses it
    to tell the effect of the contrastive optimisation from that of the interactions. It is the softmax cross-entropy
    over labels with cosine logits and a uniform target; `wo_reg` adds the instances.

    Examples:
        >>> loss = ProtoLoss(temperature=1.0)
        >>> round(loss(torch.tensor([[1.0, 0.0]]), torch.tensor([[1, 0]]), torch.eye(2)).item(), 4)  # log(1 + 1/e)
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


@register_loss("mulsupcon")
class MulSupConLoss(ContrastiveLoss):
    """`supcon` once for every label of an instance: one with many labels weighs more than one with few.

    The mean is over all labels of the batch, those without a partner included. `wo_reg` gives every instance the same
    weight and adds prototypes.

    Examples:
        >>> labels = torch.tensor([[1, 1], [1, 1], [0, 0]])
        >>> round(MulSupConLoss()(torch.eye(3), labels).item(), 4)  # two candidates, equally near: log 2
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

    def divisor(self, rows: Rows, anchors: range, valid_anchors: torch.Tensor) -> torch.Tensor:
        """The number of labels of the anchors."""
        return rows.labels[anchors.start : anchors.stop].sum()


@register_loss("supcon")
class SupConLoss(ContrastiveLoss):
    """Pulls instances of the same class together, away from all others; for data with one label per instance.

    Inputs:
        - **embeddings** (B, d)
        - **labels**: class ids (B,), -100 for a row without a class, or one-hot (B, C).

    Examples:
        >>> round(SupConLoss()(torch.eye(3), torch.tensor([0, 0, 1])).item(), 4)  # log 2
        0.6931
    """

    formula = "T_ij = [class i = class j] / |P(i)|"
    citation = "Khosla et al. (2020), Supervised Contrastive Learning, NeurIPS"

    def check_labels(self, labels: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        """Class ids from ids or one-hot rows."""
        return to_class_ids(labels, embeddings, rows_name="embeddings", check_values=self.may_look_at_values(labels))

    def targets(self, rows: Rows) -> Targets:
        """The same weight for all others of the anchor's class."""
        classes = rows.labels

        def tile(anchors: slice, out: torch.Tensor) -> torch.Tensor:
            own = classes[anchors].unsqueeze(1)
            out.copy_((own == classes) & (own >= 0))
            out.diagonal(anchors.start - rows.queued.start).zero_()
            return out.div_(out.sum(1, keepdim=True).clamp_(min=1.0))

        return tile


@register_loss("supcon_reg")
class SupConRegLoss(SupConLoss):
    """`supcon` with the regulariser of `reg`."""

    regularised = True
    formula = SupConLoss.formula + ",  minus sum_(j positive) max(0, detach(p_ij) - T_ij) s_ij"
    citation = (
        "Audibert, Gauffre, Amini (2024), Multi-Label Contrastive Learning: A Comprehensive Study, arXiv:2412.00101"
    )
