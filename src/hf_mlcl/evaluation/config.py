"""What the linear evaluation tries, and the study's choice for each corpus."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

Optimizer = Literal["adamw", "adam", "rmsprop", "sgd"]
Protocol = Literal["study", "best", "direct"]
Thresholds = Literal["half", "macro_f1", "micro_f1"]


@dataclass(frozen=True)
class LinearEvaluationConfig:
    """Settings of the linear evaluation; the defaults are the study's for AAPD and BGC.

    Attributes:
        learning_rates: Of the grid.
        weight_decays: Of the grid. Biases never decay.
        heads: Independently initialised linear layers per grid point; their probabilities are averaged.
        epochs: Passes over the training features; the learning rate falls linearly to 0 over all of them.
        batch_size: Rows per step. The last, incomplete batch of an epoch is kept.
        optimizer: ``"adamw"``, ``"adam"``, ``"rmsprop"`` or ``"sgd"``.
        momentum: Of SGD; the others ignore it.
        seed: Of the initialisations and of the order of rows.
        protocol: ``"study"`` trains a grid of heads as the study does, and each label chooses its grid point.
            ``"best"`` fits one regularised logistic regression (`hf_mlcl.evaluation.best`), to which of the settings
            above only `seed` matters. ``"direct"`` scores the classifier that a loss on logits has trained.
        thresholds: What the classifier decides by: ``"half"``, or thresholds tuned on validation for ``"macro_f1"`` or
            ``"micro_f1"``, whose scores are then reported as ``tuned_test_...`` beside those of 0.5.
        single_label: Whether every row has exactly one label: the largest score counts, and accuracy is reported.

    Examples:
        >>> LinearEvaluationConfig.for_corpus("coco2014").optimizer
        'adam'
    """

    learning_rates: Sequence[float] = (1.0, 0.1)
    weight_decays: Sequence[float] = (1.0, 1e-1, 1e-2, 1e-4, 1e-6)
    heads: int = 3
    epochs: int = 40
    batch_size: int = 256
    optimizer: Optimizer = "adamw"
    momentum: float = 0.9
    seed: int = 0
    protocol: Protocol = "study"
    thresholds: Thresholds = "half"
    single_label: bool = False

    def __post_init__(self) -> None:
        for name, kind in (("optimizer", Optimizer), ("protocol", Protocol), ("thresholds", Thresholds)):
            if getattr(self, name) not in get_args(kind):
                known = ", ".join(get_args(kind))
                raise ValueError(f"`{name}` must be one of {known}, but is {getattr(self, name)!r}.")
        for name in ("heads", "epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, but is {getattr(self, name)}.")
        if not self.learning_rates or min(self.learning_rates) <= 0:
            raise ValueError(f"`learning_rates` must hold positive numbers, at least one, not {self.learning_rates!r}.")
        if not self.weight_decays or min(self.weight_decays) < 0:
            raise ValueError(f"`weight_decays` must hold at least one number >= 0, but is {self.weight_decays!r}.")

    @property
    def absent(self) -> float:
        """What a label that no row carries counts in mAP: 0 as in the study; nothing for users, who split few rows."""
        return float("nan") if self.protocol == "best" else 0.0

    def grid(self) -> list[tuple[float, float]]:
        """The grid points (learning rate, weight decay), weight decays running fastest."""
        return list(itertools.product(self.learning_rates, self.weight_decays))

    @classmethod
    def for_corpus(cls, name: str, size: Literal["full", "small"] = "full", **changes: Any) -> LinearEvaluationConfig:
        """The settings of a corpus's recipe, for one of `list_corpora()`; `changes` override single fields.

        The small splits of the text corpora have a single grid point.
        """
        from hf_mlcl.experiments.recipe import study_recipe  # a recipe states everything about a corpus in one place

        settings = study_recipe(name).for_loss("reg", size)
        stated = {field.name: settings.get(f"linear_{field.name}", settings.get(field.name)) for field in fields(cls)}
        return cls(**({key: value for key, value in stated.items() if value is not None} | changes))
