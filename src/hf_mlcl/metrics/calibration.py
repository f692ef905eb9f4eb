"""Whether a probability means what it says."""

from __future__ import annotations

import numpy as np

from hf_mlcl.metrics._arrays import ArrayLike, as_multi_hot, as_scores, chunks, not_empty


def expected_calibration_error(labels: ArrayLike, probabilities: ArrayLike, bins: int = 15) -> float:
    """Mean gap between predicted probability and observed frequency, over all rows x labels decisions.

    The decisions are sorted into `bins` intervals of equal width by the probability of the label; a bin's gap is
    |mean probability - share of true labels|, weighted by its number of decisions. In multi-label data most decisions
    are easy noes, so the number is small for any sensible model: compare models by it, not with multi-class tables.

    Args:
        labels: Multi-hot truth (rows, labels).
        probabilities: Between 0 and 1, same shape.
        bins: Number of intervals; 1 itself belongs to the last one.

    Examples:
        >>> expected_calibration_error([[1, 0], [1, 0]], [[0.9, 0.1], [0.9, 0.1]]).__round__(3)
        0.1
    """
    truth = as_multi_hot(labels, "labels")
    values = as_scores(probabilities, "probabilities", like=truth)
    not_empty(truth)
    if bins < 1:
        raise ValueError(f"`bins` must be at least 1, but is {bins}.")
    if values.min() < 0 or values.max() > 1:
        raise ValueError(
            f"`probabilities` must lie between 0 and 1, but span {values.min():.3g} to {values.max():.3g}. Apply a "
            "sigmoid to logits first."
        )
    gap = np.zeros(bins)
    for rows in chunks(truth.shape):
        p = values[rows].ravel().astype(np.float64)
        index = np.minimum((p * bins).astype(np.int64), bins - 1)
        gap += np.bincount(index, weights=p - truth[rows].ravel(), minlength=bins)
    return float(np.abs(gap).sum() / truth.size)
