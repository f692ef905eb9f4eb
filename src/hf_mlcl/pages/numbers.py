"""What the page of a classifier says of its labels, as plain numbers for tables and charts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hf_mlcl.metrics import DecisionRule, LabelCounts, average_precision, expected_calibration_error
from hf_mlcl.pages.charts import STEPS

Flags = npt.NDArray[np.bool_]
Probabilities = npt.NDArray[np.float32]

BINS = 10
"""Of a reliability curve."""
LABELS_IN_A_MATRIX = 25
PAIRS = 300


def label_table(
    truth: Flags, probabilities: Probabilities, rule: DecisionRule, train_rows: list[int] | None
) -> list[dict[str, Any]]:
    """Rows, scores, threshold and calibration error of each label; None where a number is not defined."""
    counts = LabelCounts.of(truth, rule.decide(probabilities))
    scores = {"precision": counts.precision(), "recall": counts.recall(), "F1": counts.f1()}
    ranked = average_precision(truth, probabilities, absent=float("nan"))
    given = rule.decide(probabilities).sum(0)
    cuts = rule.per_label(truth.shape[1])
    return [
        {
            "train": None if train_rows is None else int(train_rows[label]),
            "rows": int(truth[:, label].sum()),
            "given": int(given[label]),
            **{name: float(values[label]) for name, values in scores.items()},
            "AP": None if np.isnan(ranked[label]) else float(ranked[label]),
            "threshold": None if rule.single_label else float(cuts[label]),
            "calibration": expected_calibration_error(truth[:, [label]], probabilities[:, [label]], BINS),
        }
        for label in range(truth.shape[1])
    ]


def threshold_curves(truth: Flags, probabilities: Probabilities) -> list[dict[str, Any]]:
    """Of each label the true and the false positives at every threshold of the slider, and its rows.

    Examples:
        >>> curve = threshold_curves(np.array([[True], [False]]), np.array([[0.9], [0.4]], np.float32))[0]
        >>> [(curve["tp"][step], curve["fp"][step]) for step in (0, 40, 41, 90, 91)]
        [(1, 1), (1, 1), (1, 0), (1, 0), (0, 0)]
    """
    # In float32, as the rule decides: a probability of 0.4 reaches a threshold of 0.4.
    cuts = np.linspace(0, 1, STEPS + 1).astype(np.float32)
    found = []
    for label in range(truth.shape[1]):
        p, has = np.asarray(probabilities[:, label], dtype=np.float32), truth[:, label]
        true, false = np.sort(p[has]), np.sort(p[~has])
        found.append(
            {
                "label": label,
                "rows": len(true),
                "tp": (len(true) - np.searchsorted(true, cuts)).tolist(),
                "fp": (len(false) - np.searchsorted(false, cuts)).tolist(),
            }
        )
    return found


def reliability(truth: Flags, probabilities: Probabilities) -> list[dict[str, Any]]:
    """Of each label and bin of probabilities: their mean, the share of rows that have the label, and the rows."""
    found = []
    bins = np.minimum((probabilities * BINS).astype(int), BINS - 1)
    for label in range(truth.shape[1]):
        weights = (None, probabilities[:, label], truth[:, label])
        rows, said, seen = (np.bincount(bins[:, label], w, minlength=BINS).tolist() for w in weights)
        found += [
            {"label": label, "said": round(said[b] / rows[b], 4), "seen": round(seen[b] / rows[b], 4), "rows": rows[b]}
            for b in range(BINS)
            if rows[b]
        ]
    return found


def confusions(truth: Flags, decided: Flags, names: list[str]) -> list[dict[str, Any]]:
    """How many rows miss one label and are given another, miss both, have both, or are given both.

    Of many labels those with the most errors.
    """
    missed, extra = truth & ~decided, decided & ~truth
    errors = missed.sum(0) + extra.sum(0)
    some = np.sort(np.argsort(-errors, kind="stable")[:LABELS_IN_A_MATRIX])
    kinds = {
        "missed, and this given instead": (missed, extra),
        "both missed": (missed, missed),
        "both in the labels": (truth, truth),
        "both in the predictions": (decided, decided),
    }
    found = []
    for kind, (a, b) in kinds.items():
        counts = a[:, some].T.astype(np.int64) @ b[:, some].astype(np.int64)
        if a is b:  # a label with itself is its number of rows, beside which nothing else would be seen
            np.fill_diagonal(counts, 0)
        found += [
            {"kind": kind, "first": names[some[i]], "second": names[some[j]], "count": int(counts[i, j])}
            for i in range(len(some))
            for j in range(len(some))
        ]
    return found


def pairs(truth: Flags, decided: Flags, names: list[str]) -> list[dict[str, Any]]:
    """The most frequent pairs of labels: rows that have both, and rows that are given both."""
    said, made = (one.T.astype(np.int64) @ one.astype(np.int64) for one in (truth, decided))
    first, second = np.triu_indices(truth.shape[1], k=1)
    together = np.maximum(said, made)[first, second]
    order = [i for i in np.argsort(-together, kind="stable")[:PAIRS] if together[i]]
    return [
        {"pair": f"{names[first[i]]} + {names[second[i]]}", "labels": int(said[first[i], second[i]])}
        | {"predictions": int(made[first[i], second[i]])}
        for i in order
    ]
