"""What every loss of the package is, and several of them in one training."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from hf_mlcl.losses.labels import check_dense, has_values


class Loss(nn.Module):
    """A loss that can be asked for by name.

    Attributes:
        kind: ``"contrastive"`` (takes embeddings), ``"logit"`` (takes logits) or ``"joined"`` (takes both).
        uses_prototypes: Whether it compares with the labels' prototypes.
        ranks_only: Whether its logits rank without deciding: 0 is no threshold of theirs.
        formula: What it computes, in one line of plain text.
        citation: Where it comes from.
        gather_across_devices: Whether the batch is that of all ranks; see `build_loss`.
    """

    kind: str
    uses_prototypes: bool = False
    ranks_only: bool = False
    formula: ClassVar[str] = ""
    citation: ClassVar[str] = ""
    gather_across_devices = False

    _seen_labels = False  # whether the labels of a batch have been looked at and found right

    def may_look_at_values(self, labels: Tensor) -> bool:
        """Whether label values can be checked at no cost: always on a CPU, elsewhere for the first batch only.

        Looking at values makes the host wait for an accelerator, and a wrong encoding shows in the first batch.
        """
        if torch.compiler.is_compiling() or not has_values(labels):
            return False
        return not self._seen_labels or labels.device.type == "cpu"

    def labels_are_right(self) -> None:
        """Called once a batch's labels have passed the checks: later batches on an accelerator are not looked at."""
        if not torch.compiler.is_compiling():
            self._seen_labels = True

    def extra_repr(self) -> str:
        """Shows the hyperparameters when the loss is printed."""
        settings = {name: getattr(self, name, None) for name in inspect.signature(type(self)).parameters}
        return ", ".join(f"{name}={value}" for name, value in settings.items() if value is not None)


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
        queue: Any = None,
    ) -> Tensor:
        """The weighted sum. `embeddings` may be None where all parts are losses on logits."""
        check_dense(embeddings=embeddings, labels=labels, prototypes=prototypes, logits=logits)
        further = {} if queue is None else {"queue": queue}
        total = labels.new_zeros((), dtype=torch.float32)
        for name, weight, loss in loss_terms(self):
            on_logits = loss.kind == "logit"
            if on_logits and logits is None:
                raise ValueError(f"logits are missing: the part {name!r} is a loss on logits.")
            value = loss(logits, labels) if on_logits else loss(embeddings, labels, prototypes, **further)
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


def number(name: str, value: Any, *, above: bool = False, hint: str = "") -> float:
    """A hyperparameter as a finite float of at least 0, or `above` 0; an error names it and gives the hint.

    Examples:
        >>> number("temperature", 1, above=True)
        1.0
        >>> number("alpha", "1")
        Traceback (most recent call last):
        ValueError: alpha must be a number of at least 0; got '1'.
    """
    is_number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or value < 0 or (above and value == 0):
        raise ValueError(
            f"{name} must be a number {'above' if above else 'of at least'} 0; got {value!r}. {hint}".strip()
        )
    return float(value)
