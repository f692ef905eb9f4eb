"""L_Base: instances attract by the Jaccard similarity of their label sets."""

from __future__ import annotations

from torch import Tensor

from hf_mlcl.losses.contrastive import ContrastiveLoss, Rows, Targets
from hf_mlcl.losses.registry import register_loss


@register_loss("base")
class BaseLoss(ContrastiveLoss):
    """Pulls instances together in proportion to the Jaccard similarity of their label sets.

    The study's plainest contrastive loss: no prototypes, no account of how frequent a label is.

    Relations:
        `mulsupcon` balances labels instead of comparing whole sets; `msc` and `reg` add prototypes.

    Examples:
        >>> import torch
        >>> from hf_mlcl import build_loss
        >>> labels = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 1]])
        >>> embeddings = torch.eye(3)  # the third row shares no label: it is no anchor
        >>> round(build_loss("base")(embeddings, labels).item(), 4)  # two candidates, equally near: log 2
        0.6931
    """

    formula = "T_ij = J(y_i, y_j) / sum_k J(y_i, y_k),  J = |y_i and y_j| / |y_i or y_j|"
    citation = "Audibert, Gauffre, Amini (2024), arXiv:2412.00101, after Lin et al. (2023), Findings of ACL"

    def targets(self, rows: Rows) -> Targets:
        """Jaccard similarities, normalised over the candidates."""
        labels = rows.label_sets()
        sizes = labels.sizes

        def tile(anchors: slice, out: Tensor) -> Tensor:
            y = labels[anchors]
            shared = labels.shared(y, out)
            union = y.sum(1, keepdim=True) + sizes - shared
            jaccard = shared.div_(union.clamp_(min=1.0))
            jaccard.diagonal(anchors.start - rows.queued.start).zero_()
            return jaccard.div_(jaccard.sum(1, keepdim=True).clamp_(min=1e-30))

        return tile
