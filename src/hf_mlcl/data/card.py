"""A corpus on one page, in numbers: how many, how rare, how many together."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
from datasets import ClassLabel, List
from numpy.typing import NDArray

from hf_mlcl.data.registry import load_corpus

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict
    from matplotlib.figure import Figure

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class CorpusCard:
    """Statistics of a corpus; `print` shows them, `figure` draws them.

    Args:
        name: Name of the corpus.
        label_names: The labels.
        split_sizes: Examples of each split.
        unlabelled: Examples without a label, of each split.
        counts: Examples of each label, of each split.
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
    counts: Mapping[str, Counts]
    set_sizes: Counts
    co_occurrence: Counts

    @property
    def frequencies(self) -> Counts:
        """Examples of each label over all splits."""
        return np.asarray(np.sum(list(self.counts.values()), axis=0))

    @property
    def cardinality(self) -> float:
        """Mean number of labels per example."""
        return float(self.frequencies.sum() / max(1, sum(self.split_sizes.values())))

    @property
    def imbalance_ratios(self) -> NDArray[np.float64]:
        """How many times the most frequent label is as frequent as each label; infinite for one that never occurs."""
        return _divided(self.frequencies.max(initial=0), self.frequencies, np.inf)

    @property
    def mean_imbalance(self) -> float:
        """Mean of the imbalance ratios of the labels that occur (MeanIR)."""
        return float(np.mean(self.imbalance_ratios[self.frequencies > 0])) if self.frequencies.any() else 1.0

    @property
    def largest_imbalance(self) -> float:
        """The imbalance ratio of the rarest label that occurs."""
        return float(self.imbalance_ratios[self.frequencies > 0].max(initial=1.0))

    @property
    def head_share(self) -> float:
        """Part of all label assignments that falls to the most frequent fifth of the labels."""
        ordered = np.sort(self.frequencies)[::-1]
        return float(ordered[: max(1, round(len(ordered) / 5))].sum() / max(1, ordered.sum()))

    def conditional(self) -> NDArray[np.float64]:
        """P(column label | row label)."""
        return _divided(self.co_occurrence, np.diag(self.co_occurrence)[:, None], 0.0)

    def strongest_pairs(self, number: int = 5) -> list[tuple[str, str, int, float]]:
        """Pairs of 5 examples or more that meet most often against chance, as (label, label, examples, lift)."""
        own = np.diag(self.co_occurrence)
        lift = _divided(self.co_occurrence * sum(self.split_sizes.values()), np.outer(own, own), 0.0)
        lift[(self.co_occurrence < 5) | (np.tri(len(own)) > 0)] = 0.0
        best = zip(*np.unravel_index(np.argsort(-lift, axis=None, kind="stable")[:number], lift.shape), strict=True)
        names = self.label_names
        return [(names[i], names[j], int(self.co_occurrence[i, j]), float(lift[i, j])) for i, j in best if lift[i, j]]

    def figure(self) -> Figure:
        """Draw the card; save it with `.savefig(path)`."""
        from hf_mlcl.data.card_figure import draw_card

        return draw_card(self)

    def __str__(self) -> str:
        order = np.argsort(-self.frequencies, kind="stable")
        ranked = [f"{self.label_names[i]} {self.frequencies[i]:,}" for i in order]
        never = int((self.frequencies == 0).sum())
        bare = self.unlabelled
        sizes = [f"{split} {size:,} ({bare[split]:,} without a label)" for split, size in self.split_sizes.items()]
        numbers = [f"{count:,} with {size}" for size, count in enumerate(self.set_sizes) if count]
        pairs = [f"{a} + {b} {count:,} (lift {lift:.1f})" for a, b, count, lift in self.strongest_pairs()]
        imbalance = (
            f"mean ratio {self.mean_imbalance:.1f}, largest {self.largest_imbalance:.1f}; the most "
            f"frequent fifth of the labels has {self.head_share:.0%} of the assignments"
        )
        lines = {
            "examples": ", ".join(sizes),
            "labels/ex.": f"at most {len(self.set_sizes) - 1}; {', '.join(numbers)}",
            "imbalance": imbalance + (f"; {never} never occur" if never else ""),
            "frequent": ", ".join(ranked[:5]),
            "rare": ", ".join(ranked[:-6:-1]),
            "together": ", ".join(pairs),
        }
        title = f"{self.name}: {len(self.label_names)} labels, {self.cardinality:.2f} per example"
        return "\n".join([title, *(f"{heading:13}{text}" for heading, text in lines.items())])


def corpus_card(
    corpus: str | DatasetDict,
    size: str = "full",
    data_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> CorpusCard:
    """Count what makes a corpus hard: long tail, labels together, labels per example.

    The corpus is one that is loaded, or a name for `load_corpus`, which takes the other arguments.

    Examples:
        >>> print(corpus_card("toy_images"))  # doctest: +ELLIPSIS
        toy_images: 15 labels, ... per example
        examples     train 2,400 (0 without a label), ...
    """
    loaded = load_corpus(corpus, size, data_dir, cache_dir) if isinstance(corpus, str) else corpus
    first = next(iter(loaded.values()))
    feature = first.features.get("labels")
    if not isinstance(feature, List) or not isinstance(feature.feature, ClassLabel):
        raise ValueError(
            f"The corpus has no column 'labels' with lists of ClassLabel ids: its columns are {first.features}. Cast "
            f"it with cast_column('labels', List(ClassLabel(names=[...])))."
        )
    truth = {split: _multi_hot(rows, len(feature.feature.names)) for split, rows in loaded.items()}
    per_example = {split: np.asarray(matrix.sum(axis=1)) for split, matrix in truth.items()}
    return CorpusCard(
        corpus if isinstance(corpus, str) else (first.info.dataset_name or "corpus").removeprefix("hf_mlcl_"),
        tuple(feature.feature.names),
        {split: len(rows) for split, rows in loaded.items()},
        {split: int((sizes == 0).sum()) for split, sizes in per_example.items()},
        {split: np.asarray(matrix.sum(axis=0)) for split, matrix in truth.items()},
        np.bincount(np.concatenate(list(per_example.values())), minlength=1),
        np.sum([(matrix.T @ matrix).toarray() for matrix in truth.values()], axis=0),
    )


def _multi_hot(rows: Dataset, labels: int) -> Any:
    """A sparse matrix of the labels of a split, from the Arrow column: 800,000 rows take a moment, not minutes."""
    from scipy.sparse import csr_array

    if not len(rows):
        return csr_array((0, labels), dtype=np.int64)
    cells = rows.select_columns(["labels"]).with_format("arrow")[:]["labels"]
    ids, starts = pc.list_flatten(cells).to_numpy(), np.cumsum([0, *pc.list_value_length(cells).to_pylist()])
    return csr_array((np.ones(len(ids), dtype=np.int64), ids, starts), shape=(len(rows), labels))


def _divided(numerator: Any, denominator: NDArray[np.int64], otherwise: float) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(denominator > 0, numerator / denominator, otherwise)
