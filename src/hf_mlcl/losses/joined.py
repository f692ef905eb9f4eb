"""Several losses in one training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hf_mlcl.losses.labels import check_dense
from hf_mlcl.losses.loss import Loss
from hf_mlcl.losses.queue import MomentumQueue


class JoinedLoss(Loss):
    """A weighted sum of losses on the same batch, such as ``build_loss("reg+zlpr")``.

    Args:
        losses: The parts by name.
        weights: Their weights, all 1 by default.

    Inputs:
        - **embeddings**, **labels**, **prototypes**, **queue**: go to the contrastive parts.
        - **logits**: goes to the logit parts.

    Examples:
        >>> from hf_mlcl import build_loss
        >>> loss = build_loss("proto+bce", weights=[1.0, 0.5], temperature=0.2)
        >>> batch = dict(embeddings=torch.randn(4, 8), labels=torch.eye(4)[:, :3])
        >>> loss(**batch, prototypes=torch.randn(3, 8), logits=torch.zeros(4, 3)).shape
        torch.Size([])
    """

    kind = "joined"

    def __init__(self, losses: dict[str, nn.Module], weights: Sequence[float] | None = None) -> None:
        super().__init__()
        weights = [1.0] * len(losses) if weights is None else [float(weight) for weight in weights]
        if not all(math.isfinite(weight) for weight in weights):
            raise ValueError(f"weights must be finite numbers, got {weights}.")
        if len(weights) != len(losses):
            raise ValueError(f"weights must have one number for each of {list(losses)}; got {len(weights)}.")
        self.losses = nn.ModuleDict(losses)
        self.weights = weights
        self.uses_prototypes = any(loss.uses_prototypes for loss in losses.values())

    def forward(
        self,
        embeddings: Tensor | None,
        labels: Tensor,
        prototypes: Tensor | None = None,
        *,
        logits: Tensor | None = None,
        queue: MomentumQueue | None = None,
    ) -> Tensor:
        """The weighted sum. `embeddings` may be None where all parts are losses on logits."""
        check_dense(embeddings=embeddings, labels=labels, prototypes=prototypes, logits=logits)
        further = {} if queue is None else {"queue": queue}
        total = labels.new_zeros((), dtype=torch.float32)
        for name, weight, loss in loss_terms(self):
            if loss.kind == "logit" and logits is None:
                raise ValueError(f"logits are missing: the part {name!r} is a loss on logits.")
            is_logit = loss.kind == "logit"
            value = loss(logits, labels) if is_logit else loss(embeddings, labels, prototypes, **further)
            total = total + weight * value
        return total

    def extra_repr(self) -> str:
        """Shows the weights when the loss is printed."""
        return f"weights={self.weights}"


class LossTerm(NamedTuple):
    """A part of a joined loss."""

    name: str
    weight: float
    loss: Any


def loss_terms(loss: nn.Module) -> list[LossTerm]:
    """The parts of a joined loss; any other is its own only part, under the name ``loss``.

    Examples:
        >>> from hf_mlcl import build_loss
        >>> [(name, weight) for name, weight, part in loss_terms(build_loss("reg+zlpr", weights=[1, 2]))]
        [('reg', 1.0), ('zlpr', 2.0)]
    """
    if not isinstance(loss, JoinedLoss):
        return [LossTerm("loss", 1.0, loss)]
    parts = zip(loss.losses.items(), loss.weights, strict=True)
    return [LossTerm(name, weight, part) for (name, part), weight in parts]
