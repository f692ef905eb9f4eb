"""Losses by name: the study's and the user's own."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import nn

from hf_mlcl.losses.joined import JoinedLoss

_LOSSES: dict[str, type[nn.Module]] = {}
_KIND_BY_FIRST_ARGUMENT = {"embeddings": "contrastive", "logits": "logit"}

LossClass = TypeVar("LossClass", bound=type[nn.Module])


def register_loss(name: str) -> Callable[[LossClass], LossClass]:
    """Make a loss usable by name in `build_loss`, the trainer, the recipes and the command line.

    The class is a `torch.nn.Module` whose ``forward`` takes ``(embeddings, labels, prototypes=None)`` or
    ``(logits, labels)``; the name of the first argument tells which. The parameters of ``__init__`` are its
    hyperparameters. Subclasses of `ContrastiveLoss` get tiling, the momentum queue, exact distribution and statistics.

    Examples:
        >>> import torch
        >>> from hf_mlcl import build_loss, register_loss
        >>> @register_loss("hinge")
        ... class HingeLoss(torch.nn.Module):
        ...     def __init__(self, margin: float = 1.0):
        ...         super().__init__()
        ...         self.margin = margin
        ...
        ...     def forward(self, logits, labels):
        ...         return torch.relu(self.margin - logits * (2 * labels - 1)).mean()
        >>> build_loss("hinge", margin=2.0)(torch.zeros(1, 2), torch.ones(1, 2))
        tensor(2.)
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name):
        raise ValueError(
            f"A loss's name must be letters, digits, _ and -, beginning with a letter ('+' joins losses); got {name!r}."
        )

    def register(cls: LossClass) -> LossClass:
        known = _LOSSES.get(name)
        # Running a notebook's cell again replaces the loss that it defined before.
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"The name {name!r} belongs to {known.__module__}.{known.__qualname__}; choose another.")
        if not hasattr(cls, "kind"):
            arguments = list(inspect.signature(cls.forward).parameters)
            kind = _KIND_BY_FIRST_ARGUMENT.get(arguments[1]) if len(arguments) > 1 else None
            if kind is None or (kind == "contrastive" and len(arguments) < 4):
                raise ValueError(
                    f"{cls.__qualname__}.forward must take (embeddings, labels, prototypes=None) or (logits, labels), "
                    f"so that a trainer knows what to give it; got ({', '.join(arguments[1:])})."
                )
            cls.kind = kind  # type: ignore[attr-defined]
        _LOSSES[name] = cls
        return cls

    return register


def list_losses() -> list[str]:
    """The names that `build_loss` knows, sorted.

    Examples:
        >>> from hf_mlcl import list_losses
        >>> "reg" in list_losses()
        True
    """
    return sorted(_LOSSES)


def loss_class(name: str) -> type[nn.Module]:
    """The class registered under a name; an error lists all names, the nearest first."""
    if name not in _LOSSES:
        by_likeness = sorted(_LOSSES, key=lambda known: -difflib.SequenceMatcher(None, name, known).ratio())
        raise ValueError(
            f"There is no loss {name!r}. Known, nearest first: {', '.join(by_likeness)}. "
            "Losses of your own must be registered with @register_loss before they are asked for."
        )
    return _LOSSES[name]


def hyperparameters(name: str) -> list[str]:
    """The hyperparameters of a loss.

    Examples:
        >>> hyperparameters("msc")
        ['temperature', 'beta', 'chunk_size']
    """
    parameters = inspect.signature(loss_class(name)).parameters.values()
    return [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def build_loss(name: str, *, weights: Sequence[float] | None = None, **hyperparameters_: Any) -> nn.Module:
    """A loss by name.

    Args:
        name: One of `list_losses`, or several joined with ``+``.
        weights: Of the parts of a joined loss, in their order.
        **hyperparameters_: Of the loss. In a joined loss each goes to every part that has it.

    Examples:
        >>> from hf_mlcl import build_loss
        >>> build_loss("reg", temperature=0.2)
        RegLoss(temperature=0.2, alpha=0.0)
    """
    names = [part.strip() for part in name.split("+")]
    accepted = {part: hyperparameters(part) for part in names}
    known = {parameter for parameters in accepted.values() for parameter in parameters}
    unknown = sorted(set(hyperparameters_) - known)
    if unknown:
        listed = "; ".join(f"{part}: {', '.join(parameters) or 'none'}" for part, parameters in accepted.items())
        raise ValueError(
            f"Unknown hyperparameter {', '.join(map(repr, unknown))} for loss {name!r}. Valid are {listed}."
        )
    losses = {
        part: loss_class(part)(**{key: value for key, value in hyperparameters_.items() if key in accepted[part]})
        for part in names
    }
    if len(names) == 1:
        if weights is not None:
            raise ValueError(f"weights belong to a joined loss such as 'reg+zlpr'; {name!r} is a single one.")
        return losses[names[0]]
    if len(losses) < len(names):
        raise ValueError(f"A joined loss names each of its parts once; got {name!r}. Use weights to count one more.")
    return JoinedLoss(losses, weights)


def loss_kinds(loss: str) -> set[str]:
    """The kinds of a loss and of the parts of a joined one: ``"contrastive"``, ``"logit"``.

    Examples:
        >>> sorted(loss_kinds("reg+zlpr"))
        ['contrastive', 'logit']
    """
    return {getattr(loss_class(part.strip()), "kind") for part in loss.split("+")}  # noqa: B009


def on_logits_only(loss: str) -> bool:
    """Whether only losses on logits take part, so that the study's protocol for them holds.

    Examples:
        >>> on_logits_only("zlpr"), on_logits_only("reg+zlpr")
        (True, False)
    """
    return loss_kinds(loss) == {"logit"}
