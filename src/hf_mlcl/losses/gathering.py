"""The rows of all ranks together, so that a loss is that of a single process with the same rows.

Embeddings and labels are gathered, so every rank sees the whole batch. A `ContrastiveLoss` then computes an equal
share of the anchors on each rank; any other loss is computed whole on all of them. Gathering passes gradients back as
their sum over the ranks, and DDP averages the parameters' gradients over the W ranks. So with

    W * (sum over this rank's anchors) / (divisor of the whole batch)      for shares
    the whole loss                                                         where every rank computes it all

each rank's parameters get exactly the gradient of the whole loss, and the mean of the ranks' losses is its value.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def gather_rows(tensor: Tensor) -> Tensor:
    """The rows of all ranks in their order, as many from each; gradients flow back to where the rows came from."""
    if world_size() == 1:
        return tensor
    gathered: Tensor = _GatherRows.apply(tensor)
    return gathered


class _GatherRows(torch.autograd.Function):
    """A row's gradient is the sum of what all ranks computed for it."""

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


def rank() -> int:
    """Number of this rank, from 0."""
    return dist.get_rank() if world_size() > 1 else 0
