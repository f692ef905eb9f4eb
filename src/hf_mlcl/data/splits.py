"""Split rules.

Those of corpora depend on which examples there are, never on the order in which they are read: they sort examples by a
seeded hash of a stable key (a file name, a document id, the text itself) and take from the front. So the same example
falls into the same split on every machine, from an archive or from a folder. One's own data are stratified.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SEED = 42
"""The study's seed."""
SPLITS = ("train", "validation", "test")


class Example(NamedTuple):
    """What a builder reads: a stable key, a text or an encoded image, names of labels, and its place for messages."""

    key: str
    content: str | bytes
    labels: tuple[str, ...]
    origin: str = ""


Stream = Callable[[], Iterator[Example]]
"""Examples that can be read again from the start, so that two passes replace a corpus in memory."""


def seeded_rank(key: str, seed: int = SEED) -> int:
    """The place of a key in the seeded order: 64 bits of BLAKE2b."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{key}".encode(), digest_size=8).digest(), "big")


def halves(keys: Sequence[str], seed: int = SEED) -> tuple[set[str], set[str]]:
    """Cut keys into two halves; the first is the smaller one of an odd number."""
    ordered = sorted(keys, key=lambda key: (seeded_rank(key, seed), key))
    middle = len(ordered) // 2
    return set(ordered[:middle]), set(ordered[middle:])


def study_halves(keys: Sequence[str], seed: int = SEED) -> tuple[set[str], set[str]]:
    """The halves of the authors' code, scikit-learn's: they depend on the order of the keys, that of the list."""
    from sklearn.model_selection import train_test_split

    first, second = train_test_split(list(keys), test_size=0.5, random_state=seed)
    return set(first), set(second)


def covering_draw(
    keys: Sequence[str], labels: Sequence[Sequence[str]], size: int, seed: int = SEED
) -> NDArray[np.bool_]:
    """Draw `size` examples, True where one is drawn, so that every label keeps an example in the draw where possible.

    Labels are visited from the rarest on; one that has no example in the draw yet adds its first example in seeded
    order. The rest of the draw is the seeded order itself, so that it stays a random sample.

    Examples:
        >>> covering_draw(["a", "b", "c", "d"], [["x"], ["x"], ["x"], ["rare"]], size=2)[3]
        np.True_
    """
    # Labels break ties between examples with equal keys, so that equal texts with different labels stay in order.
    order = sorted(range(len(keys)), key=lambda i: (seeded_rank(keys[i], seed), keys[i], sorted(labels[i])))
    first = {label: i for i in reversed(order) for label in labels[i]}
    counts = Counter(label for names in labels for label in set(names))
    chosen: list[int] = []
    covered: set[str] = set()
    for label in sorted(first, key=lambda name: (counts[name], name)):
        if label not in covered:
            chosen.append(first[label])
            covered.update(labels[first[label]])
    drawn = np.zeros(len(keys), dtype=bool)
    drawn[list(dict.fromkeys([*chosen, *order]))[:size]] = True
    return drawn


def partition(
    keys: Sequence[str], labels: Sequence[Sequence[str]], train: int, validation: int, seed: int = SEED
) -> NDArray[np.uint8]:
    """Part examples into train (0), validation (1) and the rest (2), each by `covering_draw`."""
    part = np.full(len(keys), 2, dtype=np.uint8)
    part[covering_draw(keys, labels, train, seed)] = 0
    rest = np.flatnonzero(part).tolist()
    drawn = covering_draw([keys[i] for i in rest], [labels[i] for i in rest], validation, seed)
    part[np.asarray(rest, dtype=np.int64)[drawn]] = 1
    return part


def chain(*streams: Stream) -> Stream:
    """One stream after another."""
    return lambda: (example for stream in streams for example in stream())


def repartition(stream: Stream, train: float, validation: float, seed: int = SEED) -> dict[str, Stream]:
    """Split a stream into train, validation and test by fractions, in two passes, without keeping its contents."""
    # A digest stands for a key that may be a whole text: 92,000 blurbs need 8 MB, not 100.
    keys: list[str] = []
    labels: list[tuple[str, ...]] = []
    shared: dict[tuple[str, ...], tuple[str, ...]] = {}
    for example in stream():
        keys.append(f"{seeded_rank(example.key, seed):016x}")
        labels.append(shared.setdefault(example.labels, example.labels))
    part = partition(keys, labels, round(train * len(keys)), round(validation * len(keys)), seed)

    def pick(value: int) -> Iterator[Example]:
        return (example for example, place in zip(stream(), part, strict=True) if place == value)

    return {name: partial(pick, value) for value, name in enumerate(SPLITS)}


def draw(stream: Stream, fraction: float, seed: int = SEED) -> tuple[Stream, Stream]:
    """A seeded part of a stream that keeps every label where possible, and what is left of the stream."""
    parts = repartition(stream, fraction, 0.0, seed)
    return parts["train"], parts["test"]


def stratified_parts(
    labels: Sequence[Sequence[int]], fractions: Sequence[float], seed: int = SEED
) -> NDArray[np.int64]:
    """Part rows by iterative stratification (Sechidis, Tsoumakas, Vlahavas, 2011), so that every label keeps its share.

    Labels are taken from the one with the fewest rows left on. Each of its rows goes to the part that still wants most
    rows of this label; among equals, to the part that wants most rows at all; among those, to the first. A label with
    too few rows for every part is kept by the largest part, which by convention is the one for training. Rows without
    a label fill up what is missing.

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
    shares = [float(share) for share in fractions]
    if len(shares) < 2 or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-6:
        raise ValueError(f"fractions must be two or more positive numbers that sum to 1; got {list(fractions)}.")
    rows = [sorted(set(row)) for row in labels]
    rows_of: list[list[int]] = [[] for _ in range(1 + max((row[-1] for row in rows if row), default=-1))]
    for index in np.random.default_rng(seed).permutation(len(rows)).tolist():
        for label in rows[index]:
            rows_of[label].append(index)
    left = [len(found) for found in rows_of]  # rows of each label that have no part yet
    wanted = [[share * count for count in left] for share in shares]  # of each label, by part
    wanted_rows = [share * len(rows) for share in shares]
    part_of = np.full(len(rows), -1, dtype=np.int64)

    def put(index: int, label: int | None) -> None:
        ranks = [
            (0.0 if label is None else wanted[part][label], wanted_rows[part], -part) for part in range(len(shares))
        ]
        part = -max(ranks)[2]
        part_of[index] = part
        wanted_rows[part] -= 1
        for other in rows[index]:
            left[other] -= 1
            wanted[part][other] -= 1

    # Labels by the rows that they have left. A label whose count has changed is queued again, and its older entry is
    # passed over, so that the work grows with the labels of all rows and not with the square of their number.
    queue = [(count, label) for label, count in enumerate(left) if count]
    heapq.heapify(queue)
    while queue:
        count, rarest = heapq.heappop(queue)
        if count == left[rarest]:
            open_rows = [index for index in rows_of[rarest] if part_of[index] < 0]
            for index in open_rows:
                put(index, rarest)
            for label in {label for index in open_rows for label in rows[index]}:
                if left[label]:
                    heapq.heappush(queue, (left[label], label))
    for index in np.flatnonzero(part_of < 0).tolist():
        put(index, None)
    return part_of
