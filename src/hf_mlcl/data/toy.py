"""What the two built-in corpora share: correlated, long-tailed sets of labels, and splits of generated examples."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import astuple

import numpy as np
from numpy.typing import NDArray

from hf_mlcl.data.builder import SMALL_FRACTION, CorpusBuilder, Plan
from hf_mlcl.data.splits import SPLITS, Example, Stream, draw


def draw_labels(
    rng: np.random.Generator, groups: Sequence[Sequence[int]], tail: float, in_group: float, across: float
) -> list[int]:
    """Draw the labels of one example.

    A first label comes from a power law with the exponent `tail` over all labels: the long tail. Others follow it: from
    its own group often (`in_group`, less by rank), and from the next group sometimes (`across`). So labels are
    correlated, and rare ones mostly appear beside frequent ones.
    """
    first = int(np.searchsorted(_power_law(sum(map(len, groups)), tail), rng.random()))
    home = next(index for index, group in enumerate(groups) if first in group)
    chosen = {first}
    for rank, label in enumerate(groups[home], start=1):
        if rng.random() < in_group / rank**0.5:
            chosen.add(label)
    if rng.random() < across:
        neighbour = groups[(home + 1) % len(groups)]
        chosen.add(neighbour[min(int(rng.exponential(1.0)), len(neighbour) - 1)])
    return sorted(chosen)


@functools.cache
def _power_law(number: int, tail: float) -> NDArray[np.float64]:
    """Cumulated probabilities of the labels, without the last, which is 1."""
    weights = np.arange(1, number + 1, dtype=np.float64) ** -tail
    return np.asarray(np.cumsum(weights / weights.sum())[:-1])


def generated_plan(
    builder: CorpusBuilder, labels: Sequence[str], make: Callable[[np.random.Generator], Example], seed: int
) -> Plan:
    """Consecutive numbers of examples make up the splits; the small version draws a fifth of those for training.

    Each example has a generator of its own, so that none depends on how many come before.
    """

    def stream(numbers: range) -> Stream:
        return lambda: (make(np.random.default_rng([seed, i]))._replace(key=f"{i:06d}") for i in numbers)

    assert builder.FACTS.sizes is not None
    ends = np.cumsum([0, *astuple(builder.FACTS.sizes)]).tolist()
    splits = {split: stream(range(*ends[i : i + 2])) for i, split in enumerate(SPLITS)}
    if builder.config.size == "small":
        splits["train"], _ = draw(splits["train"], SMALL_FRACTION)
    return Plan(labels, splits)
