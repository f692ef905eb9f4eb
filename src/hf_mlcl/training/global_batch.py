"""The loss over the rows of all ranks together, equal to that of a single process with the same rows.

Embeddings and labels are gathered, so every rank sees the whole batch. A `ContrastiveLoss` then computes an equal
share of the anchors on each rank; any other loss is computed whole on all of them. Gathering passes gradients back as
their sum over the ranks, and DDP averages the parameters' gradients over the W ranks. So with

    W * (sum over this rank's anchors) / (divisor of the whole batch)      for shares
    the whole loss                                                         where every rank computes it all

each rank's parameters get exactly the gradient of the whole loss, and the mean of the ranks' losses is its value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hf_mlcl.losses import ContrastiveLoss, JoinedLoss, LossParts


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
        loss: A loss of the registry.
        outputs: What `MLCLModel` returned on this rank.
        labels: This rank's labels.
        real_rows: How many of all gathered rows are examples, where the loader filled up the rest with copies.
    """
    rows = slice(0, real_rows)
    labels = gather_rows(labels)[rows]
    result = GlobalLoss(value=labels.new_zeros((), dtype=torch.float32))
    for name, weight, part in _weighted_parts(loss):
        if part.kind == "logit":
            value = part(gather_rows(outputs.logits)[rows], labels)
        elif isinstance(part, ContrastiveLoss):
            embeddings = gather_rows(outputs.embeddings)[rows]
            share = part.parts(embeddings, labels, outputs.prototypes, statistics=True, shard=(_rank(), world_size()))
            divisor = sum_over_ranks(share.divisor).clamp(min=1.0)
            if torch.is_grad_enabled():
                value = world_size() * share.total / divisor
            else:  # without gradients to share, every rank may know the value itself
                value = sum_over_ranks(share.total) / divisor
            result.contrastive = share
            result.embedding_norms = torch.linalg.vector_norm(embeddings.detach().float(), dim=1)
        else:
            value = part(gather_rows(outputs.embeddings)[rows], labels, outputs.prototypes)
        result.parts[name] = value.detach()
        result.value = result.value + weight * value
    return result


def gather_rows(tensor: Tensor) -> Tensor:
    """The rows of all ranks in their order; gradients flow back to where the rows came from."""
    if world_size() == 1:
        return tensor
    gathered: Tensor = _GatherRows.apply(tensor)
    return gathered


class _GatherRows(torch.autograd.Function):
    """The same number of rows from each rank. A row's gradient is the sum of what all ranks computed for it."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        gathered = rows.new_empty((world_size() * len(rows), *rows.shape[1:]))
        dist.all_gather_into_tensor(gathered, rows.contiguous())
        return gathered

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        own = gradient.new_empty((len(gradient) // world_size(), *gradient.shape[1:]))
        dist.reduce_scatter_tensor(own, gradient.contiguous())
        return own


def _weighted_parts(loss: nn.Module) -> Iterator[tuple[str, float, Any]]:
    if isinstance(loss, JoinedLoss):
        for weight, (name, part) in zip(loss.weights, loss.losses.items(), strict=True):
            yield name, weight, part
    else:
        yield "loss", 1.0, loss


def sum_over_ranks(value: Tensor) -> Tensor:
    """The sum of the ranks' tensors, without gradient; every rank has to call it."""
    if world_size() == 1:
        return value
    value = value.detach().clone()
    dist.all_reduce(value)
    return value


def world_size() -> int:
    """Number of ranks; 1 without a process group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _rank() -> int:
    return dist.get_rank() if world_size() > 1 else 0
