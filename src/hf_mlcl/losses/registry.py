"""Losses by name: the study's and the user's own."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import Tensor, nn

from hf_mlcl.errors import unknown_name
from hf_mlcl.losses.loss import JoinedLoss, Loss, loss_terms

_LOSSES: dict[str, type[nn.Module]] = {}

LossClass = TypeVar("LossClass", bound=type[nn.Module])


def register_loss(name: str) -> Callable[[LossClass], LossClass]:
    """Make a loss usable by name in `build_loss`, the trainer, the recipes and the command line.

    The class is a `torch.nn.Module` whose ``forward`` takes ``(embeddings, labels, prototypes=None)`` or
    ``(logits, labels)``; the name of the first argument tells which. The parameters of ``__init__`` are its
    hyperparameters. Subclasses of `ContrastiveLoss` get tiling, the momentum queue, exact distribution and statistics.

    Examples:
        >>> import torch
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
        arguments = list(inspect.signature(cls.forward).parameters)[1:]
        _LOSSES[name] = _described(cls, f"{cls.__qualname__}.forward", arguments)
        return cls

    return register


def _described(loss: Any, function: str, arguments: list[str]) -> Any:
    """A class or instance with `kind`, which the name of its first argument tells, `uses_prototypes`, `ranks_only`."""
    if not hasattr(loss, "kind"):
        kind = {"embeddings": "contrastive", "logits": "logit"}.get(arguments[0]) if arguments else None
        if kind is None or (kind == "contrastive" and len(arguments) < 3):
            raise ValueError(
                f"{function} must take (embeddings, labels, prototypes=None) or (logits, labels), so that a trainer "
                f"knows what to give it; got ({', '.join(arguments)})."
            )
        loss.kind = kind
    if not hasattr(loss, "uses_prototypes"):
        loss.uses_prototypes = loss.kind == "contrastive"
    if not hasattr(loss, "ranks_only"):
        loss.ranks_only = False
    return loss


class FunctionLoss(nn.Module):
    """A plain function as a loss; see `as_loss`."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Tensor:
        """What the function returns."""
        return self.function(*inputs)


def as_loss(loss: str | nn.Module | Callable[..., Tensor]) -> nn.Module:
    """A loss from its name, from an instance of any class, or from a function.

    What it takes is told by the name of its first argument, as for `register_loss`.

    Examples:
        >>> as_loss(lambda logits, labels: (logits - labels).abs().mean()).kind
        'logit'
    """
    if isinstance(loss, str):
        return build_loss(loss)
    module = loss if isinstance(loss, nn.Module) else FunctionLoss(loss)
    arguments = list(inspect.signature(loss.forward if isinstance(loss, nn.Module) else loss).parameters)
    described: nn.Module = _described(module, loss_name(module), arguments)
    return described


def loss_name(loss: nn.Module) -> str:
    """What to call a loss: the name that it is registered under, or else that of its class or function."""
    if isinstance(loss, JoinedLoss):
        return "+".join(term.name for term in loss_terms(loss))
    if isinstance(loss, FunctionLoss):
        return getattr(loss.function, "__name__", type(loss.function).__name__)  # an object may be called, too
    return next((name for name, cls in _LOSSES.items() if cls is type(loss)), type(loss).__name__)


def list_losses() -> list[str]:
    """The names that `build_loss` knows, sorted."""
    return sorted(_LOSSES)


def loss_class(name: str) -> type[nn.Module]:
    """The class registered under a name; an error lists all names, the nearest first."""
    if name not in _LOSSES:
        raise ValueError(
            unknown_name("loss", name, _LOSSES)
            + " Losses of your own must be registered with @register_loss before they are asked for."
        )
    return _LOSSES[name]


def loss_names(name: str) -> list[str]:
    """The names that are joined in one: of ``"reg+zlpr"``, ``["reg", "zlpr"]``."""
    return [part.strip() for part in name.split("+")]


def hyperparameters(name: str) -> list[str]:
    """The hyperparameters of a loss, or of all parts of a joined one.

    Examples:
        >>> hyperparameters("msc+focal")
        ['temperature', 'beta', 'chunk_size', 'gamma']
    """
    parameters = [p for part in loss_names(name) for p in inspect.signature(loss_class(part)).parameters.values()]
    return list(dict.fromkeys(p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)))


def build_loss(
    name: str, *, weights: Sequence[float] | None = None, gather_across_devices: bool = False, **hyperparameters_: Any
) -> nn.Module:
    """A loss by name.

    Args:
        name: One of `list_losses`, or several joined with ``+``.
        weights: Of the parts of a joined loss, in their order.
        gather_across_devices: Whether the batch is that of all ranks, for a loop of your own under DDP (the trainer
            always gathers): gradients are those of one process with all rows, and the mean of the ranks' losses is its
            loss. Every rank gives as many rows, and a queue, if any, that is the same on all.
        **hyperparameters_: Of the loss. In a joined loss each goes to every part that has it.

    Examples:
        >>> build_loss("reg", temperature=0.2)
        RegLoss(temperature=0.2, alpha=0.0)
    """
    names = loss_names(name)
    accepted = {part: hyperparameters(part) for part in names}
    unknown = sorted(set(hyperparameters_) - set(hyperparameters(name)))
    if unknown:
        listed = "; ".join(f"{part}: {', '.join(parameters) or 'none'}" for part, parameters in accepted.items())
        raise ValueError(
            f"Unknown hyperparameter {', '.join(map(repr, unknown))} for loss {name!r}. Valid are {listed}."
        )
    losses = {
        part: loss_class(part)(**{key: value for key, value in hyperparameters_.items() if key in accepted[part]})
        for part in names
    }
    for part, loss in losses.items() if gather_across_devices else ():
        if not isinstance(loss, Loss):
            raise ValueError(f"The loss {part!r} cannot gather by itself. Give it hf_mlcl.losses.gather_rows(...).")
        loss.gather_across_devices = True
    if len(names) == 1:
        if weights is not None:
            raise ValueError(f"weights belong to a joined loss such as 'reg+zlpr'; {name!r} is a single one.")
        return next(iter(losses.values()))
    if len(losses) < len(names):
        raise ValueError(f"A joined loss names each of its parts once; got {name!r}. Use weights to count one more.")
    return JoinedLoss(losses, weights)


def loss_kinds(loss: str | nn.Module) -> set[str]:
    """The kinds of a loss and of the parts of a joined one: ``"contrastive"``, ``"logit"``."""
    return {part.kind for part in _parts(loss)}


def on_logits_only(loss: str | nn.Module) -> bool:
    """Whether only losses on logits take part, so that the study's protocol for them holds."""
    return loss_kinds(loss) == {"logit"}


def ranks_only(loss: str | nn.Module) -> bool:
    """Whether its logits rank without deciding, so that mAP judges them, and thresholds must be tuned.

    Examples:
        >>> ranks_only("lsep"), ranks_only("lsep+zlpr"), ranks_only("reg")
        (True, False, False)
    """
    of_logits = [part.ranks_only for part in _parts(loss) if part.kind == "logit"]
    return bool(of_logits) and all(of_logits)


def _parts(loss: str | nn.Module) -> list[Any]:
    """The losses that are joined, as classes where they are names."""
    if isinstance(loss, str):
        return [loss_class(name) for name in loss_names(loss)]
    return [term.loss for term in loss_terms(loss)]
