"""Decision thresholds, fitted on validation scores.

The best threshold of a rare label on a validation set is mostly luck. Three things keep it honest: candidates are 321
fixed values, evenly spaced in the logit; the best is sought on several folds and averaged; and a label's own threshold
is drawn towards one that all labels share, the more the fewer positives it has. `cross_fitted_score` measures the whole
procedure on rows that it did not see.

A target precision is a promise rather than an optimum: there the highest of the folds' thresholds counts, a label is
drawn up to the shared one but never down, and the result is raised until the target holds on all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from hf_mlcl.metrics import DecisionRule, LabelCounts, decide
from hf_mlcl.metrics._arrays import ArrayLike, BoolArray, FloatArray, as_multi_hot, as_scores, divide, not_empty

Objective = Literal["macro_f1", "micro_f1", "precision"]
Scope = Literal["label", "global"]

LOGITS = np.linspace(-8, 8, 321)
CANDIDATES = expit(LOGITS)
"""Thresholds that are tried; 0.5 is the middle one."""

PRIOR_POSITIVES = 20.0
"""A label with so many positives has its threshold half-way, in the logit, between its own best and the shared one."""


@dataclass(frozen=True)
class CrossFittedScore:
    """The objective on rows that the thresholds had not seen, beside the plain threshold 0.5 on the same rows.

    Attributes:
        tuned: Macro- or micro-F1 of tuned thresholds; for the objective precision, micro-precision.
        plain: The same of 0.5.
    """

    tuned: float
    plain: float


def tune_thresholds(
    labels: ArrayLike,
    probabilities: ArrayLike,
    objective: Objective = "macro_f1",
    scope: Scope = "label",
    target_precision: float | None = None,
    folds: int = 5,
    prior_positives: float = PRIOR_POSITIVES,
    seed: int = 0,
) -> DecisionRule:
    """Thresholds that serve `objective` on validation scores.

    Args:
        labels: Multi-hot truth (rows, labels).
        probabilities: Between 0 and 1, same shape.
        objective: ``"macro_f1"``, ``"micro_f1"``, or ``"precision"``: many labels at `target_precision`.
        scope: ``"label"`` gives each label its own threshold, ``"global"`` one to all.
        target_precision: Of each label (or of all decisions together, for a global threshold). It holds on the rows
            given here wherever one of the thresholds that are tried reaches it; on others it is to be expected, not
            certain.
        folds: Parts of the rows; the best threshold without each of them in turn is averaged in the logit (for a target
            precision, the highest counts).
        prior_positives: Strength of the pull of rare labels to the shared threshold, in positives.
        seed: Of the folds.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.random((500, 3)) < [0.5, 0.2, 0.05]
        >>> cautious = np.where(labels, 0.4, 0.1) + rng.normal(0, 0.05, labels.shape)
        >>> thresholds = tune_thresholds(labels, cautious.clip(0, 1))
        >>> all(0.15 < value < 0.4 for value in thresholds.thresholds)
        True
    """
    truth, p = checked_probabilities(labels, probabilities)
    if objective not in ("macro_f1", "micro_f1", "precision"):
        raise ValueError(f"`objective` must be 'macro_f1', 'micro_f1' or 'precision', but is {objective!r}.")
    if scope not in ("label", "global"):
        raise ValueError(f"`scope` must be 'label' or 'global', but is {scope!r}.")
    if (objective == "precision") != (target_precision is not None):
        raise ValueError(
            f"`target_precision` goes with objective='precision' and with no other, but came {target_precision!r} with "
            f"objective={objective!r}."
        )
    if target_precision is not None and not 0 < target_precision < 1:
        raise ValueError(f"`target_precision` must lie between 0 and 1, but is {target_precision}.")
    parts = [_Counts.of(truth[rows], p[rows]) for rows in _folds(len(truth), folds, seed)]
    total = _Counts.sum(parts)
    training = [total.without(part) for part in parts] if len(parts) > 1 else [total]
    joined = np.mean if target_precision is None else np.max
    shared = joined([LOGITS[_best_shared(c, objective, target_precision)] for c in training])
    cut = np.full(truth.shape[1], shared)
    if scope == "label":
        own = joined([LOGITS[_best_each(c, objective, target_precision)] for c in training], axis=0)
        trust = total.actual / (total.actual + prior_positives) if prior_positives > 0 else (total.actual > 0)
        pull = (1 - trust) * (shared - own)
        cut = own + (pull if target_precision is None else pull.clip(min=0))
    if target_precision is not None:
        cut = _precise_enough(cut, total if scope == "label" else total.pooled(), target_precision)
    return DecisionRule(expit(cut if scope == "label" else cut[0]))


def cross_fitted_score(
    labels: ArrayLike,
    probabilities: ArrayLike,
    objective: Objective = "macro_f1",
    folds: int = 5,
    seed: int = 0,
    **tuning: Any,
) -> CrossFittedScore:
    """What tuning is worth on unseen rows: each fold is decided by thresholds tuned on the others.

    Args:
        labels: Multi-hot truth (rows, labels).
        probabilities: Between 0 and 1, same shape.
        objective: As for `tune_thresholds`.
        folds: Parts of the rows.
        seed: Of the folds.
        **tuning: Further arguments of `tune_thresholds`.
    """
    truth, p = checked_probabilities(labels, probabilities)
    decisions = _cross_fitted_decisions(truth, p, objective, folds, seed, **tuning)

    def value(guess: BoolArray) -> float:
        counts = LabelCounts.of(truth, guess)
        if objective == "precision":
            return float(counts.pooled().precision().item())
        return float((counts.pooled() if objective == "micro_f1" else counts).f1().mean())

    return CrossFittedScore(tuned=value(decisions), plain=value(decide(p)))


def _cross_fitted_decisions(
    truth: BoolArray, p: FloatArray, objective: Objective, folds: int, seed: int, **tuning: Any
) -> BoolArray:
    if len(truth) < 2:
        raise ValueError("`labels` has 1 row: a cross-fitted score needs at least 2, one to tune on and one to score.")
    decisions = np.zeros_like(truth)
    for held_out in _folds(len(truth), max(folds, 2), seed):
        rest = np.setdiff1d(np.arange(len(truth)), held_out)
        tuned = tune_thresholds(truth[rest], p[rest], objective, folds=folds, seed=seed + 1, **tuning)
        decisions[held_out] = tuned.decide(p[held_out])
    return decisions


@dataclass(frozen=True)
class ThresholdChoice:
    """Thresholds that do not hurt, and why they were chosen.

    Attributes:
        rule: What to decide by.
        kind: ``"half"`` (0.5 for all), ``"global"`` (one for all) or ``"label"`` (one per label).
        scores: Of each kind the mean of micro- and macro-F1 on rows that its thresholds had not seen.
    """

    rule: DecisionRule
    kind: Literal["half", "global", "label"]
    scores: dict[str, float]


def choose_thresholds(
    labels: ArrayLike,
    probabilities: ArrayLike,
    objective: Literal["macro_f1", "micro_f1"] = "macro_f1",
    folds: int = 5,
    seed: int = 0,
) -> ThresholdChoice:
    """Tuned thresholds where cross-fitting says that they help, 0.5 where it does not.

    What helps is the mean of micro- and macro-F1, so that neither is bought with the other. Of equal ones the simplest
    is kept.

    Args:
        labels: Multi-hot truth (rows, labels).
        probabilities: Between 0 and 1, same shape; of rows that the classifier was not fitted to.
        objective: What tuned thresholds are tuned for.
        folds: Parts of the rows.
        seed: Of the folds.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.random((500, 3)) < [0.5, 0.2, 0.05]
        >>> cautious = (np.where(labels, 0.4, 0.1) + rng.normal(0, 0.05, labels.shape)).clip(0, 1)
        >>> choose_thresholds(labels, cautious).kind == "half"
        False
        >>> choose_thresholds(labels, np.where(labels, 0.9, 0.1)).kind
        'half'
    """
    truth, p = checked_probabilities(labels, probabilities)
    if len(truth) < 2:
        return ThresholdChoice(DecisionRule(), "half", {})

    def value(guess: BoolArray) -> float:
        counts = LabelCounts.of(truth, guess)
        return float(counts.pooled().f1().item() + counts.f1().mean()) / 2

    scores = {"half": value(decide(p))}
    for scope in ("global", "label"):
        scores[scope] = value(_cross_fitted_decisions(truth, p, objective, folds, seed, scope=scope))
    kind: Any = max(scores, key=lambda name: scores[name])  # the first of equal ones, which is the simplest
    found = DecisionRule() if kind == "half" else tune_thresholds(truth, p, objective, kind, folds=folds, seed=seed)
    return ThresholdChoice(found, kind, scores)


@dataclass(frozen=True)
class _Counts:
    """True and predicted positives of each label at every candidate threshold, shape (candidates, labels)."""

    hits: npt.NDArray[np.int64]
    predicted: npt.NDArray[np.int64]
    actual: npt.NDArray[np.int64]

    @classmethod
    def of(cls, truth: BoolArray, p: FloatArray) -> _Counts:
        cuts = CANDIDATES.astype(p.dtype)  # as `decide` compares
        # A cell counts for every candidate that it reaches: histogram the highest one, then sum from the top.
        reached = np.searchsorted(cuts, p, side="right")
        cell = reached * p.shape[1] + np.arange(p.shape[1])
        size = (len(cuts) + 1) * p.shape[1]

        def at_least(cells: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
            table = np.bincount(cells.ravel(), minlength=size).reshape(-1, p.shape[1])
            return np.cumsum(table[::-1], axis=0)[::-1][1:]

        return cls(at_least(cell[truth]), at_least(cell), np.count_nonzero(truth, axis=0))

    @classmethod
    def sum(cls, parts: list[_Counts]) -> _Counts:
        hits, predicted, actual = (
            np.sum([getattr(c, n) for c in parts], axis=0) for n in ("hits", "predicted", "actual")
        )
        return cls(hits, predicted, actual)

    def pooled(self) -> _Counts:
        """Of all labels together, as of one."""
        hits, predicted = self.hits.sum(1, keepdims=True), self.predicted.sum(1, keepdims=True)
        return _Counts(hits, predicted, self.actual.sum(keepdims=True))

    def without(self, part: _Counts) -> _Counts:
        return _Counts(self.hits - part.hits, self.predicted - part.predicted, self.actual - part.actual)


def _best_each(counts: _Counts, objective: Objective, target: float | None) -> npt.NDArray[np.int64]:
    """Index of each label's best candidate."""
    if objective == "macro_f1":
        return _highest(divide(2 * counts.hits, counts.predicted + counts.actual))
    if objective == "precision":
        return _first_precise(counts, target)
    # Micro-F1 is a ratio of sums over labels, 2 hits / (predicted + actual). Dinkelbach: its maximum F is where the
    # best of 2 hits - F predicted, which each label may seek alone, gives the ratio F itself.
    label, score = np.arange(len(counts.actual)), 0.0
    while True:
        best = _highest(2 * counts.hits - score * counts.predicted)
        ratio = divide(2 * counts.hits[best, label].sum(), counts.predicted[best, label].sum() + counts.actual.sum())
        if ratio <= score + 1e-12:
            return best
        score = float(ratio)


def _best_shared(counts: _Counts, objective: Objective, target: float | None) -> int:
    """Index of the candidate that is best for all labels together."""
    if objective == "precision":
        return int(_first_precise(counts.pooled(), target)[0])
    if objective == "micro_f1":
        counts = counts.pooled()
    return int(_highest(divide(2 * counts.hits, counts.predicted + counts.actual).mean(1, keepdims=True))[0])


def _highest(value: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Index of the highest value in each column; among equals the one nearest to threshold 0.5."""
    near = -np.abs(LOGITS)[:, np.newaxis]
    return np.asarray(np.lexsort((np.broadcast_to(near, value.shape), value), axis=0)[-1])


def _first_precise(counts: _Counts, target: float | None) -> npt.NDArray[np.int64]:
    """Index of the lowest candidate whose precision reaches the target; where none does, of the most precise one."""
    precision = divide(counts.hits, counts.predicted)
    reached = precision >= (target or 0.0)
    return np.where(reached.any(0), reached.argmax(0), _highest(precision))


def _precise_enough(cut: FloatArray, counts: _Counts, target: float) -> FloatArray:
    """Each cut raised to the first candidate at which precision reaches the target.

    Where none above reaches it, lowered to the nearest one that does; where none does at all, left as it is.
    """
    reached = divide(counts.hits, counts.predicted) >= target
    above = reached & (LOGITS[:, np.newaxis] >= cut)
    lowest_above, highest = above.argmax(0), len(LOGITS) - 1 - reached[::-1].argmax(0)
    return np.select([above.any(0), reached.any(0)], [LOGITS[lowest_above], LOGITS[highest]], cut)


def checked_probabilities(labels: ArrayLike, probabilities: ArrayLike) -> tuple[BoolArray, FloatArray]:
    """Labels and probabilities as arrays of the same shape; anything else is refused by name."""
    truth = as_multi_hot(labels, "labels")
    p = as_scores(probabilities, "probabilities", like=truth)
    not_empty(truth)
    if p.min() < 0 or p.max() > 1:
        raise ValueError(f"`probabilities` must lie between 0 and 1, but span {p.min():.3g} to {p.max():.3g}.")
    return truth, p


def _folds(rows: int, folds: int, seed: int) -> list[npt.NDArray[np.int64]]:
    if folds < 1:
        raise ValueError(f"`folds` must be at least 1, but is {folds}.")
    return np.array_split(np.random.default_rng(seed).permutation(rows), min(folds, rows))
