"""Decision thresholds and the temperature of probabilities, fitted on validation scores.

The best threshold of a rare label on a validation set is mostly luck. Three things keep it honest: candidates are 321
fixed values, evenly spaced in the logit; the best is sought on several folds and averaged; and a label's own threshold
is drawn to one that rests on all labels, the more the fewer positives it has. For micro-F1 that is one value for all.
For macro-F1 it is where the label's probabilities alone, taken at their word, expect the highest F1 (a rare label that
is hard to tell wants a low threshold), moved by a step that all labels share if need be. `cross_fitted_score` measures
the whole procedure on rows that it did not see.

A target precision is a promise rather than an optimum: there the highest of the folds' thresholds counts, a label is
drawn up to the shared one but never down, and the result is raised until the target holds on all rows.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit

from hf_mlcl.metrics import DecisionRule, LabelCounts, decide
from hf_mlcl.metrics._arrays import ArrayLike, BoolArray, FloatArray, IntArray, divide, labels_and_scores

Objective = Literal["macro_f1", "micro_f1", "precision"]
Scope = Literal["label", "global"]

LOGITS = np.linspace(-8, 8, 321)
CANDIDATES = expit(LOGITS)
"""Thresholds that are tried; 0.5 is the middle one."""
HITS, PREDICTED, ACTUAL = range(3)
PRIOR_POSITIVES = 20.0
"""A label with so many positives has its threshold half-way, in the logit, between its own best and that of all."""
HARDLY_WORSE = 0.5
"""A macro-F1 that is lower by so much, divided by the root of the number of positives, may be as good on new rows."""


class CrossFittedScore(NamedTuple):
    """An objective on rows that the thresholds had not seen (`tuned`), and that of 0.5 on the same rows (`plain`)."""

    tuned: float
    plain: float


class ThresholdChoice(NamedTuple):
    """A rule that does not hurt, and whether its thresholds are 0.5 (``half``), one for all or one per label.

    The scores say why: of each kind the mean of micro- and macro-F1 on rows that its thresholds had not seen.
    """

    rule: DecisionRule
    kind: Literal["half", "global", "label"]
    scores: dict[str, float]


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
            given here wherever one of the thresholds that are tried reaches it.
        folds: Parts of the rows, each left out in turn.
        prior_positives: Strength of the pull of rare labels to the threshold that rests on all, in positives.
        seed: Of the folds.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.random((500, 3)) < [0.5, 0.2, 0.05]
        >>> cautious = np.where(labels, 0.4, 0.1) + rng.normal(0, 0.05, labels.shape)
        >>> rule = tune_thresholds(labels, cautious.clip(0, 1))
        >>> all(0.15 < value < 0.4 for value in rule.thresholds)
        True
    """
    truth, p = labels_and_scores(labels, probabilities, "probabilities")
    for name, value, known in (("objective", objective, get_args(Objective)), ("scope", scope, get_args(Scope))):
        if value not in known:
            raise ValueError(f"`{name}` must be one of {', '.join(known)}, but is {value!r}.")
    if (objective == "precision") != (target_precision is not None):
        raise ValueError(
            f"`target_precision` goes with objective='precision' and with no other, but came {target_precision!r} with "
            f"objective={objective!r}."
        )
    if target_precision is not None and not 0 < target_precision < 1:
        raise ValueError(f"`target_precision` must lie between 0 and 1, but is {target_precision}.")
    parts = [_at_candidates(truth[rows], p[rows]) for rows in _folds(len(truth), folds, seed)]
    total = np.sum(parts, axis=0)
    training = [total - part for part in parts] if len(parts) > 1 else [total]
    joined = np.mean if target_precision is None else np.max
    if objective == "macro_f1" and scope == "label":
        shared = _expected_cuts(p, training)
    else:
        best = joined([LOGITS[_best_shared(c, objective, target_precision)] for c in training])
        shared = np.full(truth.shape[1], best)
    cut = shared
    if scope == "label":
        own = joined([LOGITS[_best_each(c, objective, target_precision)] for c in training], axis=0)
        positives = total[ACTUAL, 0]
        trust = positives / (positives + prior_positives) if prior_positives > 0 else (positives > 0)
        pull = (1 - trust) * (shared - own)
        cut = own + (pull if target_precision is None else pull.clip(min=0))
    if target_precision is not None:
        cut = _precise_enough(cut, total if scope == "label" else total.sum(-1, keepdims=True), target_precision)
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

    For the objective precision the score is micro-precision. The arguments are those of `tune_thresholds`.
    """
    truth, p = labels_and_scores(labels, probabilities, "probabilities")
    if len(truth) < 2:
        raise ValueError("`labels` has 1 row: a cross-fitted score needs at least 2, one to tune on and one to score.")

    def value(guess: BoolArray) -> float:
        counts = LabelCounts.of(truth, guess)
        counts = counts if objective == "macro_f1" else counts.pooled()
        return float((counts.precision() if objective == "precision" else counts.f1()).mean())

    tuned = _cross_fitted_decisions(truth, p, objective, folds, seed, **tuning)
    return CrossFittedScore(tuned=value(tuned), plain=value(decide(p)))


def choose_thresholds(
    labels: ArrayLike,
    probabilities: ArrayLike,
    objective: Literal["macro_f1", "micro_f1"] = "macro_f1",
    folds: int = 5,
    seed: int = 0,
) -> ThresholdChoice:
    """Tuned thresholds where cross-fitting says that they help, 0.5 where it does not.

    What helps is the mean of micro- and macro-F1, so that neither is bought with the other. Of equal ones the simplest
    is kept. The rows must be some that the classifier was not fitted to; the arguments are those of `tune_thresholds`.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.random((500, 3)) < [0.5, 0.2, 0.05]
        >>> cautious = (np.where(labels, 0.4, 0.1) + rng.normal(0, 0.05, labels.shape)).clip(0, 1)
        >>> choose_thresholds(labels, cautious).kind == "half", choose_thresholds(labels, 0.1 + 0.8 * labels).kind
        (False, 'half')
    """
    truth, p = labels_and_scores(labels, probabilities, "probabilities")
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


def fit_temperature(labels: ArrayLike, probabilities: ArrayLike) -> float:
    """The divisor of all logits that makes probabilities honest (Guo et al., 2017): the lowest cross-entropy.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(0, 2, (5000, 2))
        >>> labels = rng.random(logits.shape) < expit(logits)
        >>> round(fit_temperature(labels, expit(3 * logits)), 1)
        3.0
    """
    truth, p = labels_and_scores(labels, probabilities, "probabilities")
    tiny = np.finfo(np.float64).eps
    margin = np.where(truth, 1, -1) * logit(np.clip(p.astype(np.float64), tiny, 1 - tiny))

    def loss(log_temperature: float) -> float:
        return float(np.logaddexp(0, -margin / np.exp(log_temperature)).mean())

    found = minimize_scalar(loss, bounds=(np.log(0.05), np.log(20)), method="bounded", options={"xatol": 1e-6})
    return float(np.exp(found.x))


def _cross_fitted_decisions(
    truth: BoolArray, p: FloatArray, objective: Objective, folds: int, seed: int, **tuning: Any
) -> BoolArray:
    decisions = np.zeros_like(truth)
    for held_out in _folds(len(truth), max(folds, 2), seed):
        rest = np.setdiff1d(np.arange(len(truth)), held_out)
        tuned = tune_thresholds(truth[rest], p[rest], objective, folds=folds, seed=seed + 1, **tuning)
        decisions[held_out] = tuned.decide(p[held_out])
    return decisions


def _folds(rows: int, folds: int, seed: int) -> list[IntArray]:
    if folds < 1:
        raise ValueError(f"`folds` must be at least 1, but is {folds}.")
    return np.array_split(np.random.default_rng(seed).permutation(rows), min(folds, rows))


def _at_candidates(truth: BoolArray, p: FloatArray) -> IntArray:
    """Hits, predictions and positives (which are the same at all) of each label at every candidate threshold."""
    cuts = CANDIDATES.astype(p.dtype)  # as `decide` compares
    # A cell counts for every candidate that it reaches: histogram the highest one, then sum from the top.
    cell = np.searchsorted(cuts, p, side="right") * p.shape[1] + np.arange(p.shape[1])

    def at_least(cells: IntArray) -> IntArray:
        table = np.bincount(cells.ravel(), minlength=(len(cuts) + 1) * p.shape[1]).reshape(-1, p.shape[1])
        return np.cumsum(table[::-1], axis=0)[::-1][1:]

    predicted = at_least(cell)
    return np.stack([at_least(cell[truth]), predicted, np.zeros_like(predicted) + np.count_nonzero(truth, axis=0)])


def _most_expected(p: FloatArray) -> IntArray:
    """Index of the candidate at which each label's probabilities themselves expect the highest F1 (Ye et al., 2012)."""
    falling = -np.sort(-p.astype(np.float64), axis=0)
    f1 = divide(2 * np.cumsum(falling, axis=0), np.arange(1, len(p) + 1)[:, np.newaxis] + falling.sum(axis=0))
    chosen = f1.argmax(axis=0)[np.newaxis]
    last, next_ = (np.take_along_axis(falling, np.minimum(chosen + i, len(p) - 1), axis=0)[0] for i in (0, 1))
    tiny = expit(LOGITS[0])
    between = (logit(np.clip(last, tiny, 1 - tiny)) + logit(np.clip(next_, tiny, 1 - tiny))) / 2
    return np.asarray(np.searchsorted(LOGITS, between, side="right").clip(min=1) - 1)


def _expected_cuts(p: FloatArray, training: list[IntArray]) -> FloatArray:
    """What each label's probabilities suggest, moved by the smallest step that all share and that is not clearly worse.

    Probabilities that can be taken at their word need no step, and the best one on few rows is mostly luck.
    """
    start = _most_expected(p)
    moved = np.clip(np.arange(len(LOGITS))[:, np.newaxis] - len(LOGITS) // 2 + start, 0, len(LOGITS) - 1)
    reached = np.mean([np.take_along_axis(_f1(counts), moved, axis=0).mean(axis=1) for counts in training], axis=0)
    positives = max(float(training[0][ACTUAL, 0].sum()), 1.0)
    enough = reached >= reached.max() * (1 - HARDLY_WORSE / np.sqrt(positives))
    return np.asarray(LOGITS[start] + LOGITS[enough][np.abs(LOGITS[enough]).argmin()])


def _f1(counts: IntArray) -> FloatArray:
    return divide(2 * counts[HITS], counts[PREDICTED] + counts[ACTUAL])


def _best_each(counts: IntArray, objective: Objective, target: float | None) -> IntArray:
    """Index of each label's best candidate."""
    if objective == "macro_f1":
        return _highest(_f1(counts))
    if objective == "precision":
        return _first_precise(counts, target)
    # Micro-F1 is a ratio of sums over labels, 2 hits / (predicted + actual). Dinkelbach: its maximum F is where the
    # best of 2 hits - F predicted, which each label may seek alone, gives the ratio F itself.
    label, score = np.arange(counts.shape[-1]), 0.0
    while True:
        best = _highest(2 * counts[HITS] - score * counts[PREDICTED])
        ratio = float(_f1(counts[:, best, label].sum(-1)))
        if ratio <= score + 1e-12:
            return best
        score = ratio


def _best_shared(counts: IntArray, objective: Objective, target: float | None) -> int:
    counts = counts if objective == "macro_f1" else counts.sum(-1, keepdims=True)
    if objective == "precision":
        return int(_first_precise(counts, target)[0])
    return int(_highest(_f1(counts).mean(1, keepdims=True))[0])


def _highest(value: FloatArray) -> IntArray:
    """Index of the highest value in each column; among equals the one nearest to threshold 0.5."""
    near = -np.abs(LOGITS)[:, np.newaxis]
    return np.asarray(np.lexsort((np.broadcast_to(near, value.shape), value), axis=0)[-1])


def _first_precise(counts: IntArray, target: float | None) -> IntArray:
    """Index of the lowest candidate whose precision reaches the target; where none does, of the most precise one."""
    precision = divide(counts[HITS], counts[PREDICTED])
    reached = precision >= (target or 0.0)
    return np.where(reached.any(0), reached.argmax(0), _highest(precision))


def _precise_enough(cut: FloatArray, counts: IntArray, target: float) -> FloatArray:
    """Each cut raised to the first candidate at which precision reaches the target, or else lowered to the nearest."""
    reached = divide(counts[HITS], counts[PREDICTED]) >= target
    above = reached & (LOGITS[:, np.newaxis] >= cut)
    lowest_above, highest = above.argmax(0), len(LOGITS) - 1 - reached[::-1].argmax(0)
    return np.select([above.any(0), reached.any(0)], [LOGITS[lowest_above], LOGITS[highest]], cut)
