"""The loss of a step over the rows of all ranks; `hf_mlcl.losses.gathering` says why it is exact."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from hf_mlcl.losses import ContrastiveLoss, LogitLoss, LossParts, gather_rows, loss_terms


@dataclass
class GlobalLoss:
    """The loss of a step and what there is to say about it.

    Attributes:
        value: What to call ``backward`` on.
        parts: Value of each part of a joined loss on this rank, detached.
        contrastive: Sums and counts of this rank's share of the contrastive loss, if there is one.
        embedding_norms: Lengths of all ranks' embeddings, detached, if there is a contrastive loss.
    """

    value: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
    contrastive: LossParts | None = None
    embedding_norms: Tensor | None = None


def global_loss(loss: nn.Module, outputs: Any, labels: Tensor, real_rows: int | None = None) -> GlobalLoss:
    """Compute `loss` over the rows of all ranks.

    Args:
        loss: A loss of the registry, or what `hf_mlcl.losses.as_loss` made of another.
        outputs: What `MLCLModel` returned on this rank.
        labels: This rank's labels.
        real_rows: How many of all gathered rows are examples, where the loader filled up the rest with copies.
    """
    rows = slice(0, real_rows)
    labels = gather_rows(labels)[rows]
    result = GlobalLoss(value=labels.new_zeros((), dtype=torch.float32))
    for name, weight, part in loss_terms(loss):
        if part.kind == "logit":
            compute = part.of_rows if isinstance(part, LogitLoss) else part
            value = compute(gather_rows(outputs.logits)[rows], labels)
        elif isinstance(part, ContrastiveLoss):
            embeddings = gather_rows(outputs.embeddings)[rows]
            value, result.contrastive = part.of_gathered(embeddings, labels, outputs.prototypes, statistics=True)
            result.embedding_norms = torch.linalg.vector_norm(embeddings.detach().float(), dim=1)
        else:
            value = part(gather_rows(outputs.embeddings)[rows], labels, outputs.prototypes)
        result.parts[name] = value.detach()
        result.value = result.value + weight * value
    return result
