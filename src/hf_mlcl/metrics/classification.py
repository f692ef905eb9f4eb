"""Metrics of decisions: what was predicted against what is true.

All of them are functions of four numbers a label (`LabelCounts`), which one pass over the matrices gives. scikit-learn
has these metrics too and the tests hold every one to it; it goes through sparse matrices, which at the 781,000 x 103
decisions of RCV1 costs gigabytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, overload

import numpy as np
import numpy.typing as npt

from hf_mlcl.metrics._arrays import (
    ArrayLike,
    IntArray,
    as_multi_hot,
    chunks,
    divide,
    not_empty,
    same_shape,
)

Average = Literal["micro", "macro"]


@dataclass(frozen=True)
class LabelCounts:
    """Right and wrong decisions of each label.

    Attributes:
        true_positives: Rows that carry the label and were given it, shape (labels,).
        predicted: Rows that were given the label.
        actual: Rows that carry the label.
        rows: Number of rows.
    """

    true_positives: IntArray
    predicted: IntArray
    actual: IntArray
    rows: int

    @classmethod
    def of(cls, labels: ArrayLike, predictions: ArrayLike) -> LabelCounts:
        """Count `predictions` against `labels`, two (rows, labels) matrices of 0 and 1."""
        truth, guess = as_multi_hot(labels, "labels"), as_multi_hot(predictions, "predictions")
        same_shape(truth, guess)
        not_empty(truth)
        hits = np.zeros(truth.shape[1], dtype=np.int64)
        for rows in chunks(truth.shape):
            hits += np.count_nonzero(truth[rows] & guess[rows], axis=0)
        return cls(hits, np.count_nonzero(guess, axis=0), np.count_nonzero(truth, axis=0), truth.shape[0])

    def precision(self) -> npt.NDArray[np.float64]:
        """Precision of each label; 0 for a label that was never predicted."""
        return divide(self.true_positives, self.predicted)

    def recall(self) -> npt.NDArray[np.float64]:
        """Recall of each label; 0 for a label that no row carries."""
        return divide(self.true_positives, self.actual)

    def f1(self) -> npt.NDArray[np.float64]:
        """F1 of each label; 0 for a label that is neither predicted nor carried."""
        return divide(2 * self.true_positives, self.predicted + self.actual)

    def pooled(self) -> LabelCounts:
        """The counts of all labels together, as of one label: micro averages are taken over it."""
        hits, predicted, actual = (
            np.array([count.sum()]) for count in (self.true_positives, self.predicted, self.actual)
        )
        return LabelCounts(hits, predicted, actual, self.rows)


@overload
def precision(labels: ArrayLike, predictions: ArrayLike, average: None = None) -> npt.NDArray[np.float64]: ...
@overload
def precision(labels: ArrayLike, predictions: ArrayLike, average: Average) -> float: ...
def precision(
    labels: ArrayLike, predictions: ArrayLike, average: Average | None = None
) -> float | npt.NDArray[np.float64]:
    """Share of the predicted labels that are right.

    Args:
        labels: Multi-hot truth (rows, labels).
        predictions: Multi-hot predictions, same shape.
        average: ``"micro"`` pools all decisions, ``"macro"`` averages over labels, None gives one number a label.

    Examples:
        >>> precision([[1, 0], [1, 1]], [[1, 1], [0, 1]], average="macro")
        0.75
    """
    counts = LabelCounts.of(labels, predictions)
    return counts.precision() if average is None else float(_averaged(counts, average).precision().mean())


@overload
def recall(labels: ArrayLike, predictions: ArrayLike, average: None = None) -> npt.NDArray[np.float64]: ...
@overload
def recall(labels: ArrayLike, predictions: ArrayLike, average: Average) -> float: ...
def recall(
    labels: ArrayLike, predictions: ArrayLike, average: Average | None = None
) -> float | npt.NDArray[np.float64]:
    """Share of the true labels that were predicted; see `precision` for the arguments.

    Examples:
        >>> recall([[1, 0], [1, 1]], [[1, 1], [0, 1]], average="macro")
        0.75
    """
    counts = LabelCounts.of(labels, predictions)
    return counts.recall() if average is None else float(_averaged(counts, average).recall().mean())


@overload
def f1(labels: ArrayLike, predictions: ArrayLike, average: None = None) -> npt.NDArray[np.float64]: ...
@overload
def f1(labels: ArrayLike, predictions: ArrayLike, average: Average) -> float: ...
def f1(labels: ArrayLike, predictions: ArrayLike, average: Average | None = None) -> float | npt.NDArray[np.float64]:
    """Harmonic mean of precision and recall; see `precision` for the arguments.

    A label with no positives and no predictions counts as 0, as scikit-learn does with ``zero_division=0``.

    Examples:
        >>> f1([[1, 0, 0], [1, 1, 0]], [[1, 1, 0], [1, 1, 0]]).round(3).tolist()
        [1.0, 0.667, 0.0]
    """
    counts = LabelCounts.of(labels, predictions)
    return counts.f1() if average is None else float(_averaged(counts, average).f1().mean())


def _averaged(counts: LabelCounts, average: Average) -> LabelCounts:
    if average not in ("micro", "macro"):
        raise ValueError(f"`average` must be 'micro', 'macro' or None (one number a label), but is {average!r}.")
    return counts.pooled() if average == "micro" else counts


def hamming_loss(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Share of all rows x labels decisions that are wrong, as a plain fraction.

    Examples:
        >>> hamming_loss([[1, 0], [1, 1]], [[1, 1], [1, 1]])
        0.25
    """
    return _hamming(LabelCounts.of(labels, predictions))


def _hamming(counts: LabelCounts) -> float:
    wrong = counts.predicted + counts.actual - 2 * counts.true_positives
    return float(wrong.sum() / (counts.rows * len(wrong)))


def subset_accuracy(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Share of rows whose whole label set is right.

    Examples:
        >>> subset_accuracy([[1, 0], [1, 1]], [[1, 1], [1, 1]])
        0.5
    """
    truth, guess = as_multi_hot(labels, "labels"), as_multi_hot(predictions, "predictions")
    same_shape(truth, guess)
    not_empty(truth)
    right = sum(int(np.count_nonzero((truth[rows] == guess[rows]).all(axis=1))) for rows in chunks(truth.shape))
    return right / len(truth)


def decision_metrics(labels: ArrayLike, predictions: ArrayLike) -> dict[str, float]:
    """Every metric of this module at once, from one pass.

    Examples:
        >>> for name, value in decision_metrics([[1, 0], [1, 1]], [[1, 1], [1, 1]]).items():
        ...     print(f"{name}: {value:.3f}")
        micro_f1: 0.857
        macro_f1: 0.833
        micro_precision: 0.750
        micro_recall: 1.000
        macro_precision: 0.750
        macro_recall: 1.000
        hamming_loss: 0.250
        subset_accuracy: 0.500
    """
    counts = LabelCounts.of(labels, predictions)
    pooled = counts.pooled()
    return {
        "micro_f1": pooled.f1().item(),
        "macro_f1": float(counts.f1().mean()),
        "micro_precision": pooled.precision().item(),
        "micro_recall": pooled.recall().item(),
        "macro_precision": float(counts.precision().mean()),
        "macro_recall": float(counts.recall().mean()),
        "hamming_loss": _hamming(counts),
        "subset_accuracy": subset_accuracy(labels, predictions),
    }
