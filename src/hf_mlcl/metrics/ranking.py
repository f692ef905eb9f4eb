"""Metrics of scores: how high the true labels stand, and whether a probability means what it says.

scikit-learn has average precision and LRAP, and the tests hold ours to it. On the 781,000 x 103 scores of RCV1 it would
take about half a minute and two minutes: here a column costs one sort, and the rows of LRAP go through numpy together.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hf_mlcl.metrics._arrays import ArrayLike, chunks, divide, labels_and_scores

COLUMN_BLOCK = 16
"""Columns copied out of the score matrix together: one cache line of float32 holds as many."""


def average_precision(labels: ArrayLike, scores: ArrayLike, absent: float = 0.0) -> npt.NDArray[np.float64]:
    """Average precision of each label.

    It is the mean, over the rows that carry the label, of the precision at that row's score: of all rows that score at
    least as high, the share that carries the label. Rows that tie thus stand on the same rank, as in scikit-learn. A
    label that no row carries gets `absent`.

    Examples:
        >>> average_precision([[1, 0], [0, 1], [1, 0]], [[0.9, 0.1], [0.8, 0.7], [0.7, 0.2]]).round(3).tolist()
        [0.833, 1.0]
    """
    truth, values = labels_and_scores(labels, scores)
    result = np.full(truth.shape[1], absent, dtype=np.float64)
    for start in range(0, truth.shape[1], COLUMN_BLOCK):
        block = slice(start, min(start + COLUMN_BLOCK, truth.shape[1]))
        columns = np.array(values[:, block].T, order="C")  # a copy: it is sorted in place
        carried = np.ascontiguousarray(truth[:, block].T)
        for label, column, relevant in zip(range(block.start, block.stop), columns, carried, strict=True):
            hits = np.sort(column[relevant])
            if len(hits):
                column.sort()
                at_least = len(column) - np.searchsorted(column, hits, side="left")
                hits_at_least = len(hits) - np.searchsorted(hits, hits, side="left")
                result[label] = np.mean(hits_at_least / at_least)
    return result


def mean_average_precision(labels: ArrayLike, scores: ArrayLike, absent: float = 0.0) -> float:
    """Mean over labels of `average_precision`: the study's ranking metric (mAP).

    A label that no row carries counts `absent`: 0 as in scikit-learn, NaN leaves it out of the mean.

    Examples:
        >>> labels, scores = [[1, 0, 0], [0, 1, 0]], [[0.9, 0.1, 0.3], [0.8, 0.7, 0.2]]
        >>> mean_average_precision(labels, scores, absent=float("nan"))
        1.0
    """
    each = average_precision(labels, scores, absent)
    counted = each[~np.isnan(each)]
    return float(counted.mean()) if len(counted) else 0.0


def label_ranking_average_precision(labels: ArrayLike, scores: ArrayLike) -> float:
    """Mean over rows of: for each true label, the share of true ones among the labels ranked at least as high (LRAP).

    A row with no label, or with all of them, counts 1, as in scikit-learn.

    Examples:
        >>> label_ranking_average_precision([[1, 0, 0], [0, 0, 1]], [[0.75, 0.5, 1.0], [1.0, 0.2, 0.1]]).__round__(4)
        0.4167
    """
    truth, values = labels_and_scores(labels, scores)
    share = np.zeros(len(truth))
    carried, label = np.nonzero(truth)  # as many as there are true labels: few, next to all cells
    for part in chunks((len(carried), truth.shape[1])):
        rows = carried[part]
        at_least = values[rows] >= values[rows, label[part], np.newaxis]
        precision = np.count_nonzero(at_least & truth[rows], axis=1) / np.count_nonzero(at_least, axis=1)
        share += np.bincount(rows, weights=precision, minlength=len(truth))
    count = np.count_nonzero(truth, axis=1)
    return float(np.where(count == 0, 1.0, divide(share, count)).mean())


def precision_at_k(labels: ArrayLike, scores: ArrayLike, k: int) -> float:
    """Mean over rows of the share of true labels among the `k` best-scored; of tied labels the lower id goes first.

    Examples:
        >>> precision_at_k([[1, 0, 1], [0, 1, 0]], [[0.9, 0.5, 0.1], [0.3, 0.3, 0.1]], k=2)
        0.5
    """
    truth, values = labels_and_scores(labels, scores)
    if not 1 <= k <= truth.shape[1]:
        raise ValueError(f"`k` must lie between 1 and the number of labels, {truth.shape[1]}, but is {k}.")
    hits = 0
    for rows in chunks(truth.shape):
        best = np.argsort(-values[rows], axis=1, kind="stable")[:, :k]
        hits += int(np.count_nonzero(np.take_along_axis(truth[rows], best, axis=1)))
    return hits / (len(truth) * k)


def expected_calibration_error(labels: ArrayLike, probabilities: ArrayLike, bins: int = 15) -> float:
    """Mean gap between predicted probability and observed frequency, over all rows x labels decisions.

    A gap is that of one of `bins` intervals of equal width, weighted by its number of decisions. Most decisions of
    multi-label data are easy noes, so that the number is small for any sensible model: compare models by it.

    Examples:
        >>> expected_calibration_error([[1, 0], [1, 0]], [[0.9, 0.1], [0.9, 0.1]]).__round__(3)
        0.1
    """
    truth, values = labels_and_scores(labels, probabilities, "probabilities")
    if bins < 1:
        raise ValueError(f"`bins` must be at least 1, but is {bins}.")
    gap = np.zeros(bins)
    for rows in chunks(truth.shape):
        p = values[rows].ravel().astype(np.float64)
        index = np.minimum((p * bins).astype(np.int64), bins - 1)
        gap += np.bincount(index, weights=p - truth[rows].ravel(), minlength=bins)
    return float(np.abs(gap).sum() / truth.size)
