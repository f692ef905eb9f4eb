"""Split rules that depend on which examples there are, never on the order in which they are read.

Every rule sorts examples by a seeded hash of a stable key (a file name, a document id, the text itself) and takes from
the front. So the same example falls into the same split on every machine, from an archive or from a folder, and
nothing needs a list of indices to be stored.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SEED = 42
"""The study's seed."""


class Example(NamedTuple):
    """What a builder reads: a stable key, a text or an encoded image, names of labels, and its place for messages."""

    key: str
    content: str | bytes
    labels: tuple[str, ...]
    origin: str = ""


Stream = Callable[[], Iterator[Example]]
"""Examples that can be read again from the start, so that two passes replace a corpus in memory."""


def seeded_rank(key: str, seed: int = SEED) -> int:
    """The place of a key in the seeded order: 64 bits of BLAKE2b.

    Examples:
        >>> seeded_rank("000012.jpg") == seeded_rank("000012.jpg") != seeded_rank("000012.jpg", seed=1)
        True
    """
    return int.from_bytes(hashlib.blake2b(f"{seed}:{key}".encode(), digest_size=8).digest(), "big")


def halves(keys: Sequence[str], seed: int = SEED) -> tuple[set[str], set[str]]:
    """Cut keys into two halves; the first is the smaller one of an odd number.

    Examples:
        >>> first, second = halves([str(i) for i in range(5)])
        >>> len(first), len(second), first & second
        (2, 3, set())
        >>> halves(["4", "2", "0", "3", "1"]) == (first, second)
        True
    """
    ordered = sorted(keys, key=lambda key: (seeded_rank(key, seed), key))
    middle = len(ordered) // 2
    return set(ordered[:middle]), set(ordered[middle:])


def study_halves(keys: Sequence[str], seed: int = SEED) -> tuple[set[str], set[str]]:
    """The halves of the authors' code, scikit-learn's: they depend on the order of the keys, that of the official list.

    Examples:
        >>> first, second = study_halves(["000001", "000002", "000003", "000004"])
        >>> sorted(first), sorted(second)
        (['000001', '000003'], ['000002', '000004'])
    """
    from sklearn.model_selection import train_test_split

    first, second = train_test_split(list(keys), test_size=0.5, random_state=seed)
    return set(first), set(second)


def covering_draw(
    keys: Sequence[str], labels: Sequence[Sequence[str]], size: int, seed: int = SEED
) -> NDArray[np.bool_]:
    """Draw `size` examples so that, where possible, every label keeps an example in the draw.

    Labels are visited from the rarest on; one that has no example in the draw yet adds its first example in seeded
    order. The rest of the draw is the seeded order itself, so that it stays a random sample.

    Args:
        keys: A stable key for each example.
        labels: The labels of each example.
        size: How many to draw.
        seed: Seed of the order.

    Returns:
        True where an example is drawn.

    Examples:
        >>> covering_draw(["a", "b", "c", "d"], [["x"], ["x"], ["x"], ["rare"]], size=2)[3]
        np.True_
    """
    # Labels break ties between examples with equal keys, so that equal texts with different labels stay in order.
    order = sorted(range(len(keys)), key=lambda i: (seeded_rank(keys[i], seed), keys[i], sorted(labels[i])))
    drawn = np.zeros(len(keys), dtype=bool)
    size = min(size, len(keys))
    first: dict[str, int] = {}
    counts: Counter[str] = Counter()
    for i in order:
        for label in set(labels[i]):
            first.setdefault(label, i)
            counts[label] += 1
    covered: set[str] = set()
    taken = 0
    for label in sorted(first, key=lambda name: (counts[name], name)):
        if taken == size:
            break
        if label not in covered and not drawn[first[label]]:
            drawn[first[label]] = True
            covered.update(labels[first[label]])
            taken += 1
    for i in order:
        if taken == size:
            break
        if not drawn[i]:
            drawn[i] = True
            taken += 1
    return drawn


def partition(
    keys: Sequence[str], labels: Sequence[Sequence[str]], train: int, validation: int, seed: int = SEED
) -> NDArray[np.uint8]:
    """Part examples into train (0), validation (1) and the rest (2), each by `covering_draw`.

    Examples:
        >>> keys = [str(i) for i in range(10)]
        >>> np.bincount(partition(keys, [["x"]] * 10, train=2, validation=3)).tolist()
        [2, 3, 5]
    """
    part = np.full(len(keys), 2, dtype=np.uint8)
    in_train = covering_draw(keys, labels, train, seed)
    part[in_train] = 0
    rest = np.flatnonzero(~in_train).tolist()
    in_validation = covering_draw([keys[i] for i in rest], [labels[i] for i in rest], validation, seed)
    part[np.asarray(rest, dtype=np.int64)[in_validation]] = 1
    return part


def scaled(part: int, whole: int, available: int) -> int:
    """`part` of `whole` when only `available` examples are there: exact for the official files, in proportion else.

    Examples:
        >>> scaled(4_350, 55_840, available=55_840), scaled(4_350, 55_840, available=12_000)
        (4350, 935)
    """
    return round(part * available / whole)


def pick(stream: Stream, part: NDArray[np.uint8] | NDArray[np.bool_], value: int) -> Stream:
    """The examples of a stream whose place in `part` holds `value`."""

    def picked() -> Iterator[Example]:
        return (example for example, place in zip(stream(), part, strict=True) if place == value)

    return picked


def chain(*streams: Stream) -> Stream:
    """One stream after another."""

    def chained() -> Iterator[Example]:
        for stream in streams:
            yield from stream()

    return chained


def _keys_and_labels(stream: Stream, seed: int) -> tuple[list[str], list[tuple[str, ...]]]:
    """One pass over a stream. A digest stands for a key that may be a whole text: 92,000 blurbs need 8 MB, not 100."""
    keys: list[str] = []
    labels: list[tuple[str, ...]] = []
    shared: dict[tuple[str, ...], tuple[str, ...]] = {}
    for example in stream():
        keys.append(f"{seeded_rank(example.key, seed):016x}")
        labels.append(shared.setdefault(example.labels, example.labels))
    return keys, labels


def repartition(stream: Stream, train: float, validation: float, seed: int = SEED) -> dict[str, Stream]:
    """Part a stream anew into train, validation and test, in two passes and without keeping its contents.

    Args:
        stream: All examples.
        train: Fraction of the examples for training.
        validation: Fraction for validation.
        seed: Seed of the order.
    """
    keys, labels = _keys_and_labels(stream, seed)
    part = partition(keys, labels, round(train * len(keys)), round(validation * len(keys)), seed)
    return {name: pick(stream, part, value) for value, name in enumerate(("train", "validation", "test"))}


def draw(stream: Stream, fraction: float, seed: int = SEED) -> tuple[Stream, Stream]:
    """A seeded part of a stream that keeps every label where possible, and what is left of the stream."""
    keys, labels = _keys_and_labels(stream, seed)
    drawn = covering_draw(keys, labels, round(fraction * len(keys)), seed)
    return pick(stream, drawn, 1), pick(stream, drawn, 0)
