"""Which results are the best, or not significantly different from it.

- Over **seeds**, the paired t-test asks whether training again would give the same order. From a handful of seeds no
  rank test can reach 5 % (Wilcoxon needs six); with two seeds the t-test finds next to nothing significant either.
- Over **examples**, approximate randomisation asks whether other test rows would give the same order of *these* trained
  models: the two classifiers' decisions are swapped at random, row by row, and p is the share of swaps that make a
  difference at least as large. It works with a single seed, for metrics that are functions of counts.

``"auto"`` takes seeds where there are three or more, else examples where decisions are at hand, else nothing is tested
and the best stands alone. The p-values of a column are corrected after Holm.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Flags = npt.NDArray[np.bool_]

TESTS = ("auto", "seeds", "examples", "none")
ROUNDS = 1999
SEEDS_FOR_AUTO = 3
COUNTED_METRICS = ("micro_f1", "macro_f1", "hamming_loss", "accuracy", "subset_accuracy")
"""Metrics that the test over examples can handle: functions of counts that are sums over rows."""


@dataclass(frozen=True)
class Scores:
    """One method's scores by seed in one column, and its decisions (rows, labels) where they are at hand."""

    by_seed: Mapping[int, float]
    decisions: Mapping[int, Flags] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """Over seeds."""
        return float(np.mean(list(self.by_seed.values())))

    @property
    def deviation(self) -> float | None:
        """Standard deviation over seeds (n - 1 in the denominator); None for a single one."""
        values = list(self.by_seed.values())
        return float(np.std(values, ddof=1)) if len(values) > 1 else None


@dataclass(frozen=True)
class Comparison:
    """The best of a column, the corrected p-value of each other one against it (NaN where not tested), and the test."""

    best: str
    p_values: Mapping[str, float]
    level: float
    test: str

    @property
    def winners(self) -> set[str]:
        """The best and all that are not significantly different from it; where nothing was tested, the best alone."""
        untold = self.test != "none"
        return {self.best} | {name for name, p in self.p_values.items() if p >= self.level or (untold and p != p)}


def compare(
    methods: Mapping[str, Scores],
    metric: str,
    labels: Flags | None = None,
    higher_is_better: bool = True,
    *,
    test: str = "auto",
    level: float = 0.05,
) -> Comparison:
    """Compare the method with the best mean with every other one, by one of `TESTS` at a level of significance.

    The test over examples needs the truth, `labels` (rows, labels).

    Examples:
        >>> scores = {"good": [0.80, 0.81, 0.82], "as good": [0.81, 0.80, 0.81], "worse": [0.70, 0.72, 0.73]}
        >>> methods = {name: Scores(dict(enumerate(values))) for name, values in scores.items()}
        >>> sorted(compare(methods, "macro_f1").winners)
        ['as good', 'good']
    """
    sign = 1 if higher_is_better else -1
    best = max(methods, key=lambda name: sign * methods[name].mean)
    test = _possible(test, methods, metric, labels)
    p_values = {
        name: 1.0
        if test != "none" and sign * _gain(methods[best], scores) < 0
        else _p_value(test, methods[best], scores, metric, labels)
        for name, scores in methods.items()
        if name != best
    }
    return Comparison(best, holm(p_values), level, test)


def _gain(best: Scores, other: Scores) -> float:
    """Of the best over another on the seeds that both have: with unequal seeds, it may be behind on those."""
    common = best.by_seed.keys() & other.by_seed.keys()
    return float(np.mean([best.by_seed[seed] - other.by_seed[seed] for seed in common])) if common else 0.0


def paired_t_test(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p-value of the paired t-test; NaN for fewer than two pairs."""
    from scipy.stats import ttest_rel

    if len(first) < 2:
        return float("nan")
    differences = np.subtract(first, second)
    if np.ptp(differences) <= 1e-12 * max(1.0, float(np.abs(differences).max())):  # t is 0 / 0 or x / 0
        return 1.0 if abs(differences[0]) <= 1e-12 else 0.0
    return float(ttest_rel(first, second).pvalue)


def randomisation_test(
    labels: npt.ArrayLike,
    first: Sequence[npt.ArrayLike],
    second: Sequence[npt.ArrayLike],
    metric: str,
    rounds: int = ROUNDS,
) -> float:
    """Two-sided p-value of the paired approximate randomisation test over rows.

    Each method has a matrix of decisions (rows, labels) per seed, in the same order; a row is swapped in all seeds at
    once. The statistic is the mean over seeds of one of `COUNTED_METRICS`; p cannot fall below 1 / (rounds + 1).

    Examples:
        >>> truth = np.eye(4, dtype=bool)[np.arange(200) % 4]
        >>> wrong = truth & (np.arange(200) > 40)[:, None]
        >>> randomisation_test(truth, [truth], [wrong], "micro_f1") < 0.01
        True
    """
    if metric not in COUNTED_METRICS:
        raise ValueError(f"metric must be one of {', '.join(COUNTED_METRICS)}; got {metric!r}.")
    truth = np.asarray(labels, dtype=bool)
    random = np.random.default_rng(0)
    totals, gains = [], []
    for one, other in zip(first, second, strict=True):
        a, b = (_counts(truth, np.asarray(decisions, dtype=bool)) for decisions in (one, other))
        totals.append((a.sum(0, dtype=np.int64), b.sum(0, dtype=np.int64)))
        gains.append(b - a)
    changed = np.flatnonzero(np.any([gain.any(1) for gain in gains], axis=0))  # swapping others changes nothing
    gains = [gain[changed].astype(np.float32) for gain in gains]
    support, rows = truth.sum(0), len(truth)

    def difference(shifts: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
        """Mean over seeds of first minus second, with counts shifted from the second to the first."""
        pairs = [(a + shift, b - shift) for (a, b), shift in zip(totals, shifts, strict=True)]
        each = [_metric(metric, a, support, rows) - _metric(metric, b, support, rows) for a, b in pairs]
        return np.asarray(np.mean(each, axis=0))

    observed = abs(float(difference([np.zeros((1, len(a))) for a, _ in totals])[0]))
    as_large = 0
    for start in range(0, rounds, 200):
        swaps = random.integers(0, 2, (min(200, rounds - start), len(changed)), dtype=np.int8).astype(np.float32)
        shifts = [(swaps @ gain).astype(np.float64) for gain in gains]
        as_large += int(np.count_nonzero(np.abs(difference(shifts)) >= observed - 1e-12))
    return (1 + as_large) / (1 + rounds)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """P-values corrected after Holm for being several; NaN stays and does not count."""
    tested = sorted((p, name) for name, p in p_values.items() if not np.isnan(p))
    corrected = {name: float("nan") for name in p_values}
    highest = 0.0
    for rank, (p, name) in enumerate(tested):
        highest = max(highest, min(1.0, p * (len(tested) - rank)))
        corrected[name] = highest
    return corrected


def _possible(test: str, methods: Mapping[str, Scores], metric: str, labels: Flags | None) -> str:
    if test not in TESTS:
        raise ValueError(f"test must be one of {', '.join(TESTS)}; got {test!r}.")
    possible = metric in COUNTED_METRICS and labels is not None and all(scores.decisions for scores in methods.values())
    if test == "auto":
        seeds = min(len(scores.by_seed) for scores in methods.values())
        test = "seeds" if seeds >= SEEDS_FOR_AUTO else "examples"
    pairs = itertools.combinations([scores.by_seed.keys() for scores in methods.values()], 2)
    if test == "seeds" and max((len(first & second) for first, second in pairs), default=0) < 2:
        return "none"
    return "none" if test == "examples" and not possible else test


def _p_value(test: str, best: Scores, other: Scores, metric: str, labels: Flags | None) -> float:
    if test == "seeds":
        common = sorted(best.by_seed.keys() & other.by_seed.keys())
        return paired_t_test([best.by_seed[seed] for seed in common], [other.by_seed[seed] for seed in common])
    common = sorted(best.decisions.keys() & other.decisions.keys())
    if test == "none" or not common or labels is None:
        return float("nan")
    first, second = ([scores.decisions[seed] for seed in common] for scores in (best, other))
    return randomisation_test(labels, first, second, metric)


def _counts(truth: Flags, decisions: Flags) -> npt.NDArray[np.int8]:
    """What each row adds: true positives and positives of each label, and whether the whole row is right."""
    right = (truth == decisions).all(1, keepdims=True)
    return np.concatenate([truth & decisions, decisions, right], axis=1).astype(np.int8)


def _metric(
    metric: str, counts: npt.NDArray[np.float64], support: npt.NDArray[np.int64], rows: int
) -> npt.NDArray[np.float64]:
    """The metric from summed counts, one per row of `counts`."""
    hits, positives, right = np.split(np.asarray(counts, dtype=np.float64), [len(support), 2 * len(support)], axis=-1)
    if metric in ("accuracy", "subset_accuracy"):
        return right[..., 0] / rows
    if metric == "hamming_loss":
        return np.asarray((positives.sum(-1) + support.sum() - 2 * hits.sum(-1)) / (rows * len(support)))
    if metric == "micro_f1":
        return np.asarray(2 * hits.sum(-1) / np.maximum(positives.sum(-1) + support.sum(), 1))
    return np.asarray((2 * hits / np.maximum(positives + support, 1)).mean(-1))
