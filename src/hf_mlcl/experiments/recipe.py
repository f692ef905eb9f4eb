"""What a recipe states: the settings of the study for one corpus."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from hf_mlcl.losses import hyperparameters, on_logits_only

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Recipe:
    """The settings of one corpus.

    A setting is a field of `ExperimentArguments` or `ContrastiveTrainingArguments`, or the name of a hyperparameter of
    losses (``alpha``), which goes to those losses that have it. Where the study tried several values they stand in a
    tuple, and the first is used unless another is asked for.

    Attributes:
        corpus: The corpus's name.
        loss: The loss that the recipe trains with by default.
        settings: What holds for every loss and size.
        contrastive: What holds where a contrastive loss takes part.
        logit: What holds for losses on logits.
        small: What changes for ``size="small"``.
        contrastive_small: What changes for contrastive losses on the small version.
        logit_small: What changes for losses on logits on the small version.
        loss_in_folder: Whether the default output folder names the loss even if nobody has asked for it.

    Examples:
        >>> recipe = Recipe("aapd", contrastive={"learning_rate": (5e-5, 2e-5), "alpha": 0.0}, logit={"optim": "sgd"})
        >>> recipe.for_loss("reg")
        {'learning_rate': 5e-05, 'loss_kwargs': {'alpha': 0.0}}
        >>> recipe.for_loss("zlpr")
        {'optim': 'sgd'}
        >>> [point["learning_rate"] for point in recipe.grid("reg")]
        [5e-05, 2e-05]
    """

    corpus: str
    loss: str = "reg"
    settings: Settings = field(default_factory=dict)
    contrastive: Settings = field(default_factory=dict)
    logit: Settings = field(default_factory=dict)
    small: Settings = field(default_factory=dict)
    contrastive_small: Settings = field(default_factory=dict)
    logit_small: Settings = field(default_factory=dict)
    loss_in_folder: bool = True

    def for_loss(self, loss: str, size: str = "full") -> dict[str, Any]:
        """The settings for a loss, the first of several."""
        return self.grid(loss, size)[0]

    def grid(self, loss: str, size: str = "full") -> list[dict[str, Any]]:
        """The settings for a loss, or several joined with ``+``: one for each combination that the study tried."""
        kind = "logit" if on_logits_only(loss) else "contrastive"
        chosen = {**self.settings, **getattr(self, kind)}
        if size == "small":
            chosen |= {**self.small, **getattr(self, f"{kind}_small")}
        tried = [value if isinstance(value, tuple) else (value,) for value in chosen.values()]
        return unique(_with_hyperparameters(loss, dict(zip(chosen, values, strict=True))) for values in product(*tried))


def unique(values: Iterable[Any]) -> list[Any]:
    """Each value once, also of those that cannot be hashed, in their order."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def study_recipe(corpus: str) -> Recipe:
    """The recipe of a corpus: the study's settings for it."""
    from hf_mlcl.recipes import RECIPES

    if corpus not in RECIPES:
        raise ValueError(f"There is no recipe for {corpus!r}. There are: {', '.join(sorted(RECIPES))}.")
    recipe: Recipe = importlib.import_module(f"hf_mlcl.recipes.{RECIPES[corpus]}").RECIPE
    return recipe


def _with_hyperparameters(loss: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Move the hyperparameters of losses to ``loss_kwargs``; those that the loss does not have are left out."""
    known = hyperparameters(loss)
    named = {name: settings.pop(name) for name in ("alpha", "beta") if name in settings}
    taken = {name: value for name, value in named.items() if name in known}
    return {**settings, "loss_kwargs": taken} if taken else settings
