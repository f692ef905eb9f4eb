"""What every loss of the package is."""

from __future__ import annotations

import inspect
import math
from numbers import Real
from typing import Any, ClassVar

import torch
from torch import Tensor, nn


class Loss(nn.Module):
    """A loss that can be asked for by name.

    Args:
        gather_across_devices: See `ContrastiveLoss`.

    Attributes:
        kind: ``"contrastive"`` (takes embeddings), ``"logit"`` (takes logits) or ``"joined"`` (takes both).
        uses_prototypes: Whether it compares with the labels' prototypes.
        formula: What it computes, in one line of plain text.
        citation: Where it comes from.
    """

    kind: str
    uses_prototypes: bool = False
    formula: ClassVar[str] = ""
    citation: ClassVar[str] = ""

    def __init__(self, gather_across_devices: bool = False) -> None:
        super().__init__()
        self.gather_across_devices = gather_across_devices

    _seen_labels = False  # whether the labels of a batch have been looked at and found right

    def may_look_at_values(self, labels: Tensor) -> bool:
        """Whether label values can be checked at no cost: always on a CPU, elsewhere for the first batch only.

        Looking at values makes the host wait for an accelerator. A wrong encoding shows in the first batch, and the
        collators check every batch before it leaves the CPU.
        """
        if torch.compiler.is_compiling():
            return False
        return not self._seen_labels or labels.device.type == "cpu"

    def labels_are_right(self) -> None:
        """Called once a batch's labels have passed the checks: later batches on an accelerator are not looked at."""
        if not torch.compiler.is_compiling():
            self._seen_labels = True

    def extra_repr(self) -> str:
        """Shows the hyperparameters when the loss is printed."""
        settings = {name: getattr(self, name, None) for name in inspect.signature(type(self)).parameters}
        told = {name: value for name, value in settings.items() if value is not None and value is not False}
        return ", ".join(f"{name}={value}" for name, value in told.items())


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
