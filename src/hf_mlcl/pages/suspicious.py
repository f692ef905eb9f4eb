"""Rows whose labels are probably wrong or incomplete.

What is expected of a label of a row follows from the row's features *and from its other labels*, by ridge regression on
the other folds of the data: nobody judges himself. A label that is there and is not expected is doubtful, as is one
that is expected and is not there; a row is as suspicious as its most doubtful label.

Regressing each label on the features and on all other labels takes one matrix inverse: with P the inverse of the
(regularised) covariance of labels and features together, the residual of label k is (z P)_k / P_kk.

Of 40 labels that were flipped at random in toy_text's 3,000 rows, 24 to 26 are among the 80 most suspicious rows (four
draws, TF-IDF features); cleanlab's multi-label score on cross-fitted logistic regression, which knows nothing of the
other labels, finds 11 to 16 there and takes a hundred times as long. That is why there is no cleanlab here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hf_mlcl.metrics._arrays import ArrayLike, as_multi_hot

FOLDS = 5
STRENGTHS = (0.01, 0.1, 1.0)
"""Of the ridge on standardised features, in units of the number of rows; the folds choose."""
OF_LABELS = 0.1
"""The ridge on labels, as a part of that on features: they are few."""
DOUBTFUL = 0.5
"""How far a label must be from what is expected to be named."""

Array = npt.NDArray[np.float64]


class Suspicion(NamedTuple):
    """A row, how suspicious it is, and which of its labels are doubtful (ids, the most doubtful first)."""

    row: int
    score: float
    wrong: list[int]
    missing: list[int]


def expected_labels(features: ArrayLike, labels: ArrayLike, folds: int = FOLDS, seed: int = 0) -> Array:
    """What is expected of each label (rows, labels), about 0 to 1, from features and the row's other labels.

    Args:
        features: (rows, size), such as `trainer.extract_features` gives them.
        labels: Multi-hot (rows, labels).
        folds: A row is judged by the rows of the other folds.
        seed: Of the folds.

    Examples:
        >>> labels = np.eye(2, dtype=bool)[np.arange(40) % 2]
        >>> labels[0] = [False, True]  # as if it were the other kind
        >>> expected_labels(np.eye(2)[np.arange(40) % 2], labels)[0].round().tolist()
        [1.0, 0.0]
    """
    truth = as_multi_hot(labels, "labels").astype(np.float64)
    x = np.asarray(features, dtype=np.float64)
    if len(x) != len(truth) or len(x) < 2:
        raise ValueError(f"features and labels must have the same rows, two or more; got {len(x)} and {len(truth)}.")
    x = (x - x.mean(0)) / np.maximum(x.std(0), 1e-9)
    residuals = np.empty((len(STRENGTHS), *truth.shape))
    order = np.random.default_rng(seed).permutation(len(x))
    for held_out in np.array_split(order, min(folds, len(x))):
        known = np.ones(len(x), dtype=bool)
        known[held_out] = False
        residuals[:, held_out] = _residuals(truth, x, known, held_out)
    best = int(np.argmin(np.square(residuals).mean((1, 2))))
    return np.asarray(truth - residuals[best])


def _residuals(truth: Array, x: Array, known: npt.NDArray[np.bool_], held_out: npt.NDArray[np.int64]) -> Array:
    """Of the held-out rows for each strength (strengths, rows, labels)."""
    if truth.sum(1).max() <= 1:  # each label says that the others are not there, right or wrong: features alone tell
        centre, share = x[known].mean(0), truth[known].mean(0)
        a, b = x[known] - centre, truth[known] - share
        weights = [np.linalg.solve(a.T @ a + strength * len(a) * np.eye(x.shape[1]), a.T @ b) for strength in STRENGTHS]
        return np.asarray([truth[held_out] - share - (x[held_out] - centre) @ each for each in weights])
    labels = truth.shape[1]
    both = np.concatenate([truth, x], axis=1)
    mean = both[known].mean(0)
    centred = both[known] - mean
    covariance = centred.T @ centred
    ridge = np.ones(both.shape[1])
    ridge[:labels] = OF_LABELS
    found = []
    for strength in STRENGTHS:
        # The columns of the labels are all that is needed of the inverse.
        columns = np.linalg.solve(
            covariance + np.diag(strength * known.sum() * ridge), np.eye(both.shape[1], labels, dtype=np.float64)
        )
        found.append((both[held_out] - mean) @ columns / np.diag(columns))
    return np.asarray(found)


def suspicious_rows(labels: ArrayLike, expected: Array, most: int | None = None) -> list[Suspicion]:
    """The rows with a doubtful label in the order of how suspicious they are, the most first.

    Examples:
        >>> suspicious_rows([[1, 0], [1, 0]], np.array([[0.9, 0.1], [0.2, 0.7]]), most=1)
        [Suspicion(row=1, score=0.8, wrong=[0], missing=[1])]
    """
    truth = as_multi_hot(labels, "labels")
    doubt: Any = np.abs(truth - expected)
    worst = doubt.max(1)
    found = []
    for row in np.argsort(-worst, kind="stable")[: min(int((worst >= DOUBTFUL).sum()), most or len(worst))].tolist():
        named = [int(label) for label in np.argsort(-doubt[row], kind="stable") if doubt[row, label] >= DOUBTFUL]
        wrong, missing = ([label for label in named if truth[row, label] == has] for has in (True, False))
        found.append(Suspicion(row, float(worst[row]), wrong, missing))
    return found
