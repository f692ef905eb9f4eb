"""Metrics of decisions: what was predicted against what is true.

All are functions of four numbers per label (`LabelCounts`), which one pass over the matrices gives. scikit-learn has
them too and the tests hold every one to it; it goes through sparse matrices, which at the 781,000 x 103 decisions of
RCV1 costs gigabytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, overload

import numpy as np
import numpy.typing as npt

from hf_mlcl.metrics._arrays import ArrayLike, IntArray, as_array, as_multi_hot, chunks, divide, labels_and_predictions

Average = Literal["micro", "macro"]
PerLabel = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LabelCounts:
    """Of each label the rows that carry it and were given it, that were given it, and that carry it; and all rows."""

    true_positives: IntArray
    predicted: IntArray
    actual: IntArray
    rows: int

    @classmethod
    def of(cls, labels: ArrayLike, predictions: ArrayLike) -> LabelCounts:
        """Count `predictions` against `labels`, two (rows, labels) matrices of 0 and 1."""
        truth, guess = labels_and_predictions(labels, predictions)
        hits = np.zeros(truth.shape[1], dtype=np.int64)
        for rows in chunks(truth.shape):
            hits += np.count_nonzero(truth[rows] & guess[rows], axis=0)
        return cls(hits, np.count_nonzero(guess, axis=0), np.count_nonzero(truth, axis=0), truth.shape[0])

    def precision(self) -> PerLabel:
        """Of each label; 0 for one that was never predicted."""
        return divide(self.true_positives, self.predicted)

    def recall(self) -> PerLabel:
        """Of each label; 0 for one that no row carries."""
        return divide(self.true_positives, self.actual)

    def f1(self) -> PerLabel:
        """Of each label; 0 for one that is neither predicted nor carried."""
        return divide(2 * self.true_positives, self.predicted + self.actual)

    def hamming_loss(self) -> float:
        """Share of all decisions that are wrong."""
        return float((self.predicted + self.actual - 2 * self.true_positives).mean() / self.rows)

    def pooled(self) -> LabelCounts:
        """The counts of all labels together, as of one label: micro averages are taken over it."""
        counts = self.true_positives, self.predicted, self.actual
        hits, predicted, actual = (count.sum(-1, keepdims=True) for count in counts)
        return LabelCounts(hits, predicted, actual, self.rows)


def _averaged(
    metric: Callable[[LabelCounts], PerLabel], labels: ArrayLike, predictions: ArrayLike, average: Average | None
) -> float | PerLabel:
    if average not in ("micro", "macro", None):
        raise ValueError(f"`average` must be 'micro', 'macro' or None (one number per label), but is {average!r}.")
    counts = LabelCounts.of(labels, predictions)
    each = metric(counts.pooled() if average == "micro" else counts)
    return each if average is None else float(each.mean())


@overload
def precision(labels: ArrayLike, predictions: ArrayLike, average: None = None) -> PerLabel: ...
@overload
def precision(labels: ArrayLike, predictions: ArrayLike, average: Average) -> float: ...
def precision(labels: ArrayLike, predictions: ArrayLike, average: Average | None = None) -> float | PerLabel:
    """Share of the predicted labels that are right.

    ``average="micro"`` pools all decisions, ``"macro"`` averages over labels, None gives one number per label.

    Examples:
        >>> precision([[1, 0], [1, 1]], [[1, 1], [0, 1]], average="macro")
        0.75
    """
    return _averaged(LabelCounts.precision, labels, predictions, average)


@overload
def recall(labels: ArrayLike, predictions: ArrayLike, average: None = None) -> PerLabel: ...
@overload
def recall(labels: ArrayLike, predictions: ArrayLike, average: Average) -> float: ...
def recall(labels: ArrayLike, predictions: ArrayLike, average: Average | None = None) -> float | PerLabel:
    """Share of the true labels that were predicted, averaged as `precision`."""
    return _averaged(LabelCounts.recall, labels, predictions, average)


@overload
def f1(labels: ArrayLike, predictions: ArrayLike, average: None = None) -> PerLabel: ...
@overload
def f1(labels: ArrayLike, predictions: ArrayLike, average: Average) -> float: ...
def f1(labels: ArrayLike, predictions: ArrayLike, average: Average | None = None) -> float | PerLabel:
    """Harmonic mean of precision and recall, averaged as `precision`.

    A label with no positives and no predictions counts as 0, as scikit-learn does with ``zero_division=0``.

    Examples:
        >>> f1([[1, 0, 0], [1, 1, 0]], [[1, 1, 0], [1, 1, 0]]).round(3).tolist()
        [1.0, 0.667, 0.0]
    """
    return _averaged(LabelCounts.f1, labels, predictions, average)


def hamming_loss(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Share of all rows x labels decisions that are wrong, as a plain fraction."""
    return LabelCounts.of(labels, predictions).hamming_loss()


def subset_accuracy(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Share of rows whose whole label set is right."""
    truth, guess = labels_and_predictions(labels, predictions)
    right = sum(int(np.count_nonzero((truth[rows] == guess[rows]).all(axis=1))) for rows in chunks(truth.shape))
    return right / len(truth)


def decision_metrics(labels: ArrayLike, predictions: ArrayLike) -> dict[str, float]:
    """Every metric above at once, from one pass.

    Examples:
        >>> found = decision_metrics([[1, 0], [1, 1]], [[1, 1], [1, 1]])
        >>> {name: round(found[name], 3) for name in ("micro_f1", "macro_f1", "hamming_loss", "subset_accuracy")}
        {'micro_f1': 0.857, 'macro_f1': 0.833, 'hamming_loss': 0.25, 'subset_accuracy': 0.5}
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
        "hamming_loss": counts.hamming_loss(),
        "subset_accuracy": subset_accuracy(labels, predictions),
    }


def frequency_groups(train_labels: ArrayLike) -> Mapping[str, IntArray]:
    """Labels sorted into ``head``, ``medium`` and ``tail``, a third each, by how often they occur in training.

    Args:
        train_labels: Multi-hot training labels (rows, labels), or the number of occurrences of each label (labels,).

    Returns:
        The label ids of each group, ascending; of equally frequent labels the lower id counts as the more frequent.

    Examples:
        >>> {name: ids.tolist() for name, ids in frequency_groups([5, 100, 40]).items()}
        {'head': [1], 'medium': [2], 'tail': [0]}
    """
    counts = as_array(train_labels)
    if counts.ndim != 1:
        counts = np.count_nonzero(as_multi_hot(counts, "train_labels"), axis=0)
    cuts = np.rint(np.array([1 / 3, 2 / 3]) * len(counts)).astype(int)
    head, medium, tail = np.split(np.argsort(-counts, kind="stable"), cuts)
    return {"head": np.sort(head), "medium": np.sort(medium), "tail": np.sort(tail)}


def frequency_breakdown(labels: ArrayLike, predictions: ArrayLike, train_labels: ArrayLike) -> dict[str, float]:
    """Macro-F1 of the head, medium and tail labels (see `frequency_groups`); a group with no label is left out.

    Examples:
        >>> frequency_breakdown([[1, 0, 0], [1, 1, 1]], [[1, 0, 0], [1, 1, 0]], train_labels=[90, 30, 2])
        {'head_f1': 1.0, 'medium_f1': 1.0, 'tail_f1': 0.0}
    """
    each, groups = f1(labels, predictions), frequency_groups(train_labels)
    known = sum(map(len, groups.values()))
    if known != len(each):
        raise ValueError(f"`train_labels` speaks of {known} labels, but `labels` has {len(each)} columns.")
    return {f"{name}_f1": float(each[ids].mean()) for name, ids in groups.items() if len(ids)}
