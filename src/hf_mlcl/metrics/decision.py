"""From scores to labels: the one rule that metrics, evaluation, pipelines and exports decide by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from hf_mlcl.metrics._arrays import ArrayLike, BoolArray, FloatArray, as_array, as_scores


@dataclass(frozen=True)
class DecisionRule:
    """Which labels a row is given. A classifier keeps it in its configuration, as `MLCLConfig` describes.

    Attributes:
        thresholds: Probabilities from which on a label is given: one number for all labels, or one per label.
        single_label: Whether a row has exactly one label, the most probable one; thresholds then do not matter.
        temperature: What logits are divided by before they become the probabilities that thresholds speak of.

    Examples:
        >>> DecisionRule([0.5, 0.25]).decide([[0.4, 0.3]]).tolist()
        [[False, True]]
        >>> DecisionRule(single_label=True).decide([[0.4, 0.3]]).tolist()
        [[True, False]]
    """

    thresholds: float | Sequence[float] = 0.5
    single_label: bool = False
    temperature: float = 1.0

    def __post_init__(self) -> None:
        cuts = as_array(self.thresholds)
        if cuts.dtype.kind not in "fiu" or cuts.ndim > 1:
            raise ValueError(f"thresholds must be one number or a list of one per label, but are {self.thresholds!r}.")
        wrong = cuts[~((cuts >= 0) & (cuts <= 1))].ravel()
        if len(wrong):
            raise ValueError(f"thresholds must be probabilities between 0 and 1, but one is {wrong[0]}.")
        if not isinstance(self.single_label, bool):
            raise ValueError(f"single_label must be True or False, but is {self.single_label!r}.")
        number = isinstance(self.temperature, Real) and not isinstance(self.temperature, bool)
        if not number or not 0 < self.temperature < math.inf:
            raise ValueError(
                f"temperature (in a configuration: logit_temperature) must be a positive number, but is "
                f"{self.temperature!r}. 1 changes nothing."
            )
        object.__setattr__(self, "thresholds", tuple(cuts.tolist()) if cuts.ndim else float(cuts))

    @classmethod
    def of(cls, config: Any) -> DecisionRule:
        """The rule of a classifier's configuration; that of a model not ours may lack any of our entries."""
        stored = vars(config)
        cuts = stored.get("thresholds")
        rule = cls(
            0.5 if cuts is None else cuts,
            stored.get("single_label", False) or config.problem_type == "single_label_classification",
            stored.get("logit_temperature", 1.0),
        )
        rule.per_label(config.num_labels)
        return rule

    def per_label(self, labels: int) -> list[float]:
        """The threshold of each of so many labels."""
        if isinstance(self.thresholds, float):
            return [self.thresholds] * labels
        if len(self.thresholds) != labels:
            raise ValueError(
                f"thresholds must have one number for each of the {labels} labels, but has {len(self.thresholds)}. "
                "One number alone stands for all labels."
            )
        return list(self.thresholds)

    def decide(self, probabilities: ArrayLike) -> BoolArray:
        """Multi-hot decisions from probabilities (rows, labels)."""
        values = as_scores(probabilities, "scores")
        cuts = self.per_label(values.shape[1])
        if self.single_label:
            return np.asarray(np.eye(len(cuts), dtype=bool)[values.argmax(axis=1)])
        return np.asarray(values >= np.asarray(cuts, dtype=values.dtype))  # as float32, 0.3 reaches a threshold of 0.3

    def scaled(self, probabilities: ArrayLike) -> FloatArray:
        """Probabilities (rows, labels) that had no temperature, with this one's."""
        p = as_scores(probabilities, "probabilities")
        if self.temperature == 1.0:
            return p
        with np.errstate(divide="ignore"):  # 0 and 1 are infinite logits, and stay what they are
            return sigmoid((np.log(p) - np.log1p(-p)) / self.temperature)


Threshold: TypeAlias = ArrayLike | DecisionRule
"""What a metric takes to decide by: one number, one per label, or a whole rule."""


def decide(scores: ArrayLike, threshold: Threshold = 0.5) -> BoolArray:
    """Predictions from probabilities (rows, labels): a label is given where its score reaches its threshold.

    Examples:
        >>> decide([[0.5, 0.4], [0.1, 0.9]], threshold=[0.5, 0.3]).astype(int).tolist()
        [[1, 1], [0, 1]]
    """
    rule = threshold if isinstance(threshold, DecisionRule) else DecisionRule(threshold)  # type: ignore[arg-type]
    return rule.decide(scores)


def sigmoid(logits: ArrayLike) -> FloatArray:
    """The logistic function, without overflow at either end.

    Examples:
        >>> sigmoid([[0.0, -1000.0, 1000.0]]).tolist()
        [[0.5, 0.0, 1.0]]
    """
    x = as_scores(logits, "logits")
    # exp of a number that is never positive: nothing can overflow, and 0 / (1 + 0) is exactly 0.
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, e) / (1 + e))
