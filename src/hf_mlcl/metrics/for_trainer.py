"""Metrics for users of the Hugging Face Trainer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from hf_mlcl.metrics._arrays import ArrayLike, as_array
from hf_mlcl.metrics.classification import decision_metrics, f1, frequency_breakdown
from hf_mlcl.metrics.decision import DecisionRule, Threshold, decide, sigmoid
from hf_mlcl.metrics.ranking import label_ranking_average_precision, mean_average_precision, precision_at_k

if TYPE_CHECKING:
    from transformers import EvalPrediction


def multilabel_metrics(
    labels: ArrayLike,
    probabilities: ArrayLike,
    threshold: Threshold = 0.5,
    k: int | None = None,
    absent: float = 0.0,
) -> dict[str, float]:
    """The study's metrics of one set of predictions: decisions at `threshold`, and mAP.

    The threshold is one number, one per label, or a `DecisionRule`; `k` adds LRAP and precision@k; `absent` is what a
    label that no row carries counts in mAP: NaN leaves it out.

    Examples:
        >>> metrics = multilabel_metrics([[1, 0], [1, 1]], [[0.9, 0.6], [0.8, 0.7]])
        >>> round(metrics["macro_f1"], 3), metrics["mAP"]
        (0.833, 1.0)
    """
    result = decision_metrics(labels, decide(probabilities, threshold))
    result["mAP"] = mean_average_precision(labels, probabilities, absent)
    if k is not None:
        result["lrap"] = label_ranking_average_precision(labels, probabilities)
        result[f"precision@{k}"] = precision_at_k(labels, probabilities, k)
    return result


def make_compute_metrics(
    threshold: Threshold = 0.5,
    k: int | None = None,
    train_labels: ArrayLike | None = None,
    label_names: Sequence[str] | None = None,
) -> Callable[[EvalPrediction], dict[str, float]]:
    """A `compute_metrics` for the Trainer of any model that returns one logit per label.

    Args:
        threshold: See `multilabel_metrics`.
        k: The same.
        train_labels: Adds macro-F1 of head, medium and tail labels; see `frequency_groups`.
        label_names: Adds the F1 of each label under ``f1_<name>``.

    Examples:
        >>> from types import SimpleNamespace
        >>> prediction = SimpleNamespace(predictions=[[2.0, -1.0], [3.0, 1.0]], label_ids=[[1, 0], [1, 1]])
        >>> make_compute_metrics(label_names=["sport", "music"])(prediction)["f1_music"]
        1.0
    """

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        outputs, labels = prediction.predictions, as_array(prediction.label_ids)
        logits = outputs[0] if isinstance(outputs, tuple) else outputs  # further outputs follow the logits
        probabilities = sigmoid(logits)
        predictions = decide(probabilities, threshold)
        result = multilabel_metrics(labels, probabilities, threshold, k)
        if train_labels is not None:
            result |= frequency_breakdown(labels, predictions, train_labels)
        if label_names is not None:
            each = f1(labels, predictions)
            if len(label_names) != len(each):
                raise ValueError(f"`label_names` has {len(label_names)} names, but the logits {len(each)} columns.")
            result |= {f"f1_{name}": float(value) for name, value in zip(label_names, each, strict=True)}
        return result

    return compute


def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """`make_compute_metrics` with its defaults, to be passed to a Trainer as it is."""
    return make_compute_metrics()(prediction)


def compute_single_label_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """For a Trainer on data with one label per row: the class with the largest logit counts.

    ``subset_accuracy`` is then the accuracy; rows without a class are left out.
    """
    outputs, labels = prediction.predictions, as_array(prediction.label_ids)
    decisions = DecisionRule(single_label=True).decide(outputs[0] if isinstance(outputs, tuple) else outputs)
    if labels.ndim == 1:
        labels = np.where((labels >= 0)[:, None], np.eye(decisions.shape[1])[np.maximum(labels, 0)], 0.0)
    known = labels.sum(axis=1) > 0
    return decision_metrics(labels[known], decisions[known])


def rule_metrics(
    labels: ArrayLike, probabilities: ArrayLike, rule: DecisionRule, absent: float = 0.0
) -> dict[str, float]:
    """Metrics of what a rule decides: with mAP, or with the accuracy where each row has a single label.

    `absent` is that of `multilabel_metrics`.

    Examples:
        >>> rule_metrics([[1, 0], [0, 1]], [[0.4, 0.3], [0.2, 0.1]], DecisionRule(single_label=True))["accuracy"]
        0.5
    """
    if not rule.single_label:
        return multilabel_metrics(labels, probabilities, rule, absent=absent)
    prediction: Any = SimpleNamespace(predictions=probabilities, label_ids=labels)
    found = compute_single_label_metrics(prediction)
    return {**found, "accuracy": found["subset_accuracy"]}
