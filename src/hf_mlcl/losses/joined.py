"""Several losses in one training."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
        >>> import torch
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

    @property
    def uses_prototypes(self) -> bool:
        """Whether a part needs prototypes."""
        return any(getattr(loss, "uses_prototypes", loss.kind == "contrastive") for loss in self.losses.values())

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
        total = labels.new_zeros((), dtype=torch.float32)
        for weight, (name, loss) in zip(self.weights, self.losses.items(), strict=True):
            if loss.kind == "logit":
                if logits is None:
                    raise ValueError(f"logits are missing: the part {name!r} is a loss on logits.")
                value = loss(logits, labels)
            elif queue is None:
                value = loss(embeddings, labels, prototypes)
            else:
                value = loss(embeddings, labels, prototypes, queue=queue)
            total = total + weight * value
        return total

    def extra_repr(self) -> str:
        """Shows the weights when the loss is printed."""
        return f"weights={self.weights}"
