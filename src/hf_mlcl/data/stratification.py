"""Splits in which every label keeps its share: iterative stratification (Sechidis, Tsoumakas, Vlahavas, ECML 2011)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hf_mlcl.data.splits import SEED


def stratified_parts(
    labels: Sequence[Sequence[int]], fractions: Sequence[float], seed: int = SEED
) -> NDArray[np.int64]:
    """Part rows so that the rows of each label, and all rows, are shared out by `fractions`.

    Labels are taken from the one with the fewest rows left on. Each of its rows goes to the part that still wants most
    rows of this label; among equals, to the part that wants most rows at all; among those, to the first. So a rare
    label, which cannot be fixed later, gets its share first. A label with too few rows for every part is kept by
    the largest part, which by convention is the one for training. Rows without a label fill up what is missing.

    Args:
        labels: The label ids of each row.
        fractions: The share of each part; they sum to 1.
        seed: Of the order in which rows are taken.

    Returns:
        The number of the part that each row goes to.

    Examples:
        >>> parts = stratified_parts([[0]] * 80 + [[1]] * 15 + [[0, 1]] * 5, (0.8, 0.2))
        >>> [int((parts[80:] == part).sum()) for part in (0, 1)]
        [16, 4]
    """
    shares = np.asarray(fractions, dtype=float)
    if shares.ndim != 1 or len(shares) < 2 or (shares <= 0).any() or abs(shares.sum() - 1) > 1e-6:
        raise ValueError(f"fractions must be two or more positive numbers that sum to 1; got {list(fractions)}.")
    rows = [sorted(set(row)) for row in labels]
    num_labels = 1 + max((row[-1] for row in rows if row), default=-1)
    rows_of: list[list[int]] = [[] for _ in range(num_labels)]
    for index in np.random.default_rng(seed).permutation(len(rows)).tolist():
        for label in rows[index]:
            rows_of[label].append(index)
    left = [len(found) for found in rows_of]  # rows of each label that have no part yet
    wanted = [[float(share) * count for count in left] for share in shares]  # of each label, by part
    wanted_rows = [float(share) * len(rows) for share in shares]
    numbers = range(len(shares))
    part_of = np.full(len(rows), -1, dtype=np.int64)

    def put(index: int, part: int) -> None:
        part_of[index] = part
        wanted_rows[part] -= 1
        for label in rows[index]:
            left[label] -= 1
            wanted[part][label] -= 1

    # Labels by the rows that they have left. A label whose count has changed is queued again, and its older entry is
    # passed over, so that the work grows with the labels of all rows and not with the square of their number.
    queue = [(count, label) for label, count in enumerate(left) if count]
    heapq.heapify(queue)
    while queue:
        count, rarest = heapq.heappop(queue)
        if count != left[rarest]:
            continue
        changed: set[int] = set()
        for index in rows_of[rarest]:
            if part_of[index] < 0:
                put(index, max(numbers, key=lambda part: (wanted[part][rarest], wanted_rows[part], -part)))
                changed.update(rows[index])
        for label in changed:
            if left[label]:
                heapq.heappush(queue, (left[label], label))
    for index in np.flatnonzero(part_of < 0).tolist():
        put(index, max(numbers, key=lambda part: (wanted_rows[part], -part)))
    return part_of
