"""How sure a score is: percentile intervals over resampled rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from hf_mlcl.metrics._arrays import IntArray


def bootstrap_intervals(
    statistics: Callable[[IntArray], Mapping[str, float]], rows: int, samples: int = 200
) -> dict[str, tuple[float, float]]:
    """A 95 % interval for each of the `statistics` of row numbers, from `rows` drawn with replacement.

    One that the rows cannot tell may be left out. Differences between two classifiers on the same rows are statistics
    like any other: drawn together, they are paired.

    Examples:
        >>> heights = np.random.default_rng(1).normal(170, 10, 400)
        >>> low, high = bootstrap_intervals(lambda rows: {"mean": heights[rows].mean()}, 400)["mean"]
        >>> bool(168 < low < heights.mean() < high < 172)
        True
    """
    if rows < 1:
        raise ValueError(f"rows must be at least 1, got {rows}: there is nothing to draw from.")
    random = np.random.default_rng(0)
    drawn = [statistics(random.integers(rows, size=rows)) for _ in range(samples)]
    intervals = {}
    for name in sorted({name for one in drawn for name in one}):
        low, high = np.percentile([one[name] for one in drawn if name in one], [2.5, 97.5])
        intervals[name] = (float(low), float(high))
    return intervals
