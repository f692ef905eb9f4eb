"""A corpus on one page, in numbers: how many, how rare, how many together."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hf_mlcl.data.registry import load_corpus

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class CorpusCard:
    """Statistics of a corpus; `print` shows them, `figure` draws them.

    Args:
        name: Name of the corpus.
        label_names: The labels.
        split_sizes: Examples a split.
        unlabelled: Examples without a label a split.
        counts: Examples of each label a split.
        set_sizes: `set_sizes[k]` examples have k labels, over all splits.
        co_occurrence: Examples that have both labels, over all splits; the diagonal has each label's own.

    Examples:
        >>> from hf_mlcl.data import corpus_card
        >>> card = corpus_card("toy_text")
        >>> card.split_sizes["train"], len(card.label_names), round(card.cardinality, 1)
        (3000, 28, 2.2)
    """

    name: str
    label_names: tuple[str, ...]
    split_sizes: Mapping[str, int]
    unlabelled: Mapping[str, int]
    counts: Mapping[str, NDArray[np.int64]]
    set_sizes: NDArray[np.int64]
    co_occurrence: NDArray[np.int64]

    @property
    def frequencies(self) -> NDArray[np.int64]:
        """Examples of each label over all splits."""
        total: NDArray[np.int64] = np.sum(list(self.counts.values()), axis=0)
        return total

    @property
    def cardinality(self) -> float:
        """Mean number of labels an example."""
        return float(self.frequencies.sum() / max(1, sum(self.split_sizes.values())))

    @property
    def imbalance_ratios(self) -> NDArray[np.float64]:
        """How many times the most frequent label is as frequent as each label; infinite for one that never occurs."""
        frequencies = self.frequencies
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(frequencies > 0, frequencies.max(initial=0) / frequencies, np.inf)

    @property
    def mean_imbalance(self) -> float:
        """Mean of the imbalance ratios of the labels that occur (MeanIR)."""
        finite = self.imbalance_ratios[np.isfinite(self.imbalance_ratios)]
        return float(finite.mean()) if len(finite) else 1.0

    @property
    def head_share(self) -> float:
        """Part of all label assignments that falls to the most frequent fifth of the labels."""
        ordered = np.sort(self.frequencies)[::-1]
        head = max(1, round(len(ordered) / 5))
        return float(ordered[:head].sum() / max(1, ordered.sum()))

    def conditional(self) -> NDArray[np.float64]:
        """P(column label | row label)."""
        own = np.diag(self.co_occurrence)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(own[:, None] > 0, self.co_occurrence / own[:, None], 0.0)

    def strongest_pairs(self, number: int = 5) -> list[tuple[str, str, int, float]]:
        """Pairs of 5 examples or more that meet most often against chance, as (label, label, examples, lift)."""
        total = max(1, sum(self.split_sizes.values()))
        own = np.diag(self.co_occurrence).astype(np.float64)
        expected = np.outer(own, own) / total
        with np.errstate(divide="ignore", invalid="ignore"):
            lift = np.where(expected > 0, self.co_occurrence / expected, 0.0)
        lift[(self.co_occurrence < 5) | (np.tri(len(own)) > 0)] = 0.0
        best = np.argsort(-lift, axis=None, kind="stable")[:number]
        rows, columns = np.unravel_index(best, lift.shape)
        return [
            (self.label_names[i], self.label_names[j], int(self.co_occurrence[i, j]), float(lift[i, j]))
            for i, j in zip(rows, columns, strict=True)
            if lift[i, j] > 0
        ]

    def figure(self) -> Figure:
        """Draw the card; save it with `.savefig(path)`."""
        from hf_mlcl.data.card_figure import draw_card

        return draw_card(self)

    def __str__(self) -> str:
        frequencies, ratios = self.frequencies, self.imbalance_ratios
        order = np.argsort(-frequencies, kind="stable")
        never = int((frequencies == 0).sum())
        finite = ratios[np.isfinite(ratios)]
        lines = [
            f"{self.name}: {len(self.label_names)} labels, {self.cardinality:.2f} an example",
            "examples     "
            + ", ".join(
                f"{split} {size:,} ({self.unlabelled[split]:,} without a label)"
                for split, size in self.split_sizes.items()
            ),
            f"labels/ex.   at most {len(self.set_sizes) - 1}; "
            + ", ".join(f"{count:,} with {size}" for size, count in enumerate(self.set_sizes) if count),
            f"imbalance    mean ratio {self.mean_imbalance:.1f}, largest {finite.max(initial=1.0):.1f}; the most "
            f"frequent fifth of the labels has {self.head_share:.0%} of the assignments"
            + (f"; {never} never occur" if never else ""),
            "frequent     " + ", ".join(f"{self.label_names[i]} {frequencies[i]:,}" for i in order[:5]),
            "rare         " + ", ".join(f"{self.label_names[i]} {frequencies[i]:,}" for i in order[::-1][:5]),
            "together     "
            + ", ".join(f"{a} + {b} {n:,} (lift {lift:.1f})" for a, b, n, lift in self.strongest_pairs()),
        ]
        return "\n".join(lines)


def corpus_card(
    corpus: str | DatasetDict,
    size: str = "full",
    data_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> CorpusCard:
    """Count what makes a corpus hard: long tail, labels together, labels an example.

    Args:
        corpus: A name for `load_corpus`, or a corpus that is loaded.
        size: As for `load_corpus`.
        data_dir: As for `load_corpus`.
        cache_dir: As for `load_corpus`.

    Examples:
        >>> from hf_mlcl.data import corpus_card
        >>> print(corpus_card("toy_images"))  # doctest: +ELLIPSIS
        toy_images: 15 labels, ... an example
        examples     train 2,400 (0 without a label), ...
    """
    name = corpus if isinstance(corpus, str) else "corpus"
    loaded = load_corpus(corpus, size, data_dir, cache_dir) if isinstance(corpus, str) else corpus
    first = next(iter(loaded.values()))
    feature = getattr(first.features.get("labels"), "feature", None)
    if feature is None or not hasattr(feature, "names"):
        raise ValueError(
            f"The corpus has no column 'labels' with lists of ClassLabel ids: its columns are {first.features}. Cast "
            f"it with cast_column('labels', List(ClassLabel(names=[...])))."
        )
    names = tuple(feature.names)
    number = len(names)
    counts, unlabelled = {}, {}
    set_sizes = np.zeros(1, dtype=np.int64)
    together = np.zeros((number, number), dtype=np.int64)
    for split, dataset in loaded.items():
        rows, ids = label_pairs(dataset)
        counts[split] = np.bincount(ids, minlength=number).astype(np.int64)
        per_example = np.bincount(rows, minlength=len(dataset))
        unlabelled[split] = int((per_example == 0).sum())
        histogram = np.bincount(per_example)
        longest = max(len(set_sizes), len(histogram))
        set_sizes = np.pad(set_sizes, (0, longest - len(set_sizes))) + np.pad(histogram, (0, longest - len(histogram)))
        together += _co_occurrence(rows, ids, len(dataset), number)
    if not isinstance(corpus, str) and first.info.dataset_name:
        name = str(first.info.dataset_name).removeprefix("hf_mlcl_")
    return CorpusCard(
        name, names, {split: len(data) for split, data in loaded.items()}, unlabelled, counts, set_sizes, together
    )


def label_pairs(dataset: Dataset) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All (row, label id) pairs of a split, from the Arrow column itself: 800,000 rows take a moment, not minutes."""
    column = dataset.with_format("arrow")[:]["labels"].combine_chunks() if len(dataset) else None
    if column is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    lengths = column.value_lengths().to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(len(dataset)), lengths)
    return rows.astype(np.int64), column.flatten().to_numpy(zero_copy_only=False).astype(np.int64)


def _co_occurrence(rows: NDArray[np.int64], ids: NDArray[np.int64], examples: int, labels: int) -> NDArray[np.int64]:
    from scipy.sparse import csr_array

    matrix = csr_array((np.ones(len(ids), dtype=np.int64), (rows, ids)), shape=(examples, labels))
    matrix.data[:] = 1
    product: NDArray[np.int64] = (matrix.T @ matrix).toarray()
    return product
