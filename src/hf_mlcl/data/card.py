"""A corpus on one page, in numbers and as a figure: how many, how rare, how many together."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
from datasets import ClassLabel, Dataset, DatasetDict, List
from numpy.typing import NDArray

from hf_mlcl.data.registry import load_corpus

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Counts = NDArray[np.int64]
INK, MUTED, ACCENT = "#222222", "#6b7280", "#2a6f97"
SPLIT_COLOURS = {"train": "#2a6f97", "validation": "#f4a259", "test": "#a7c4d6"}
NAMED_LABELS = 40
"""Past so many labels their names would be too small to read in a figure."""


@dataclass(frozen=True)
class CorpusCard:
    """Statistics of a corpus; `print` shows them, `figure` draws them.

    By split: examples in `split_sizes`, those without a label in `unlabelled`, of each label in `counts`. Over all
    splits: `set_sizes[k]` examples have k labels; `co_occurrence` counts those that have both of two labels.

    Examples:
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

    def __str__(self) -> str:
        ranked = [
            f"{self.label_names[i]} {self.frequencies[i]:,}" for i in np.argsort(-self.frequencies, kind="stable")
        ]
        never = int((self.frequencies == 0).sum())
        bare = self.unlabelled
        sizes = [f"{split} {size:,} ({bare[split]:,} without a label)" for split, size in self.split_sizes.items()]
        numbers = [f"{count:,} with {size}" for size, count in enumerate(self.set_sizes) if count]
        pairs = [f"{a} + {b} {count:,} (lift {lift:.1f})" for a, b, count, lift in self.strongest_pairs()]
        ratios = f"mean ratio {self.mean_imbalance:.1f}, largest {self.largest_imbalance:.1f}"
        head = f"the most frequent fifth of the labels has {self.head_share:.0%} of the assignments"
        lines = {
            "examples": ", ".join(sizes),
            "labels/ex.": f"at most {len(self.set_sizes) - 1}; {', '.join(numbers)}",
            "imbalance": f"{ratios}; {head}" + (f"; {never} never occur" if never else ""),
            "frequent": ", ".join(ranked[:5]),
            "rare": ", ".join(ranked[:-6:-1]),
            "together": ", ".join(pairs),
        }
        title = f"{self.name}: {len(self.label_names)} labels, {self.cardinality:.2f} per example"
        return "\n".join([title, *(f"{heading:13}{text}" for heading, text in lines.items())])

    def figure(self) -> Figure:
        """Draw the card: frequencies on the left, labels per example below them, co-occurrence on the right."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(12.5, 7.2), layout="constrained", facecolor="white")
        grid = figure.add_gridspec(2, 2, width_ratios=(1.0, 1.15), height_ratios=(1.75, 1.0))
        titles = {
            "Examples of each label": (grid[0, 0], _draw_frequencies),
            "Labels per example": (grid[1, 0], _draw_set_sizes),
            "How often a row's label brings the column's label with it": (grid[:, 1], _draw_co_occurrence),
        }
        for title, (place, draw) in titles.items():
            axes = figure.add_subplot(place)
            axes.set_title(title, loc="left", fontsize=10, color=INK)
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(colors=MUTED, labelcolor=INK, labelsize=8)
            draw(axes, self, np.argsort(-self.frequencies, kind="stable"))
        unlabelled = sum(self.unlabelled.values())
        heading = (
            f"{self.name}   {' / '.join(f'{size:,}' for size in self.split_sizes.values())} examples "
            f"({', '.join(self.split_sizes)})\n{len(self.label_names)} labels · {self.cardinality:.2f} per example · "
            f"most frequent to rarest {self.largest_imbalance:.0f} : 1 · top fifth of the labels holds "
            f"{self.head_share:.0%}{f' · {unlabelled:,} examples without a label' if unlabelled else ''}"
        )
        figure.suptitle(heading, x=0.01, ha="left", fontsize=13, color=INK, linespacing=1.5)
        return figure


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

    cells = rows.select_columns(["labels"]).with_format("arrow")[:]["labels"]
    ids, starts = pc.list_flatten(cells).to_numpy(), np.cumsum([0, *pc.list_value_length(cells).to_pylist()])
    return csr_array((np.ones(len(ids), dtype=np.int64), ids, starts), shape=(len(rows), labels))


def _divided(numerator: Any, denominator: Counts, otherwise: float) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(denominator > 0, numerator / denominator, otherwise)


def _draw_frequencies(axes: Axes, card: CorpusCard, order: Counts) -> None:
    base = np.zeros(len(order))
    for split, counts in card.counts.items():
        colour = SPLIT_COLOURS.get(split, MUTED)
        axes.bar(np.arange(len(order)), counts[order], bottom=base, color=colour, label=split, width=0.85)
        base += counts[order]
    axes.set_xlim(-0.6, len(order) - 0.4)
    axes.legend(frameon=False, fontsize=8)
    few = len(order) <= NAMED_LABELS
    places = range(len(order)) if few else [round(part * (len(order) - 1)) for part in (0, 0.25, 0.5, 0.75, 1)]
    names = [card.label_names[order[place]] for place in places]
    axes.set_xticks(places, names, rotation=60 if few else 20, ha="right", rotation_mode="anchor")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(axis="y", color="#e5e7eb", linewidth=0.7)
    axes.set_axisbelow(True)


def _draw_set_sizes(axes: Axes, card: CorpusCard, order: Counts) -> None:
    share = card.set_sizes / max(1, card.set_sizes.sum())
    bars = axes.bar(np.arange(len(share)), share, color=ACCENT, width=0.75)
    texts = ["" if value == 0 else f"{value:.0%}" if value >= 0.005 else "<1%" for value in share]
    axes.bar_label(bars, texts, fontsize=8, color=INK)
    axes.set_xticks(np.arange(len(share)))
    axes.set_ylim(0, 1.15 * share.max(initial=0.01))
    axes.yaxis.set_visible(False)
    axes.spines["left"].set_visible(False)


def _draw_co_occurrence(axes: Axes, card: CorpusCard, order: Counts) -> None:
    from matplotlib.colors import PowerNorm

    shares = card.conditional()[np.ix_(order, order)]
    np.fill_diagonal(shares, np.nan)
    # The square root opens up the small shares, which are most of them.
    image = axes.imshow(shares, cmap="Blues", norm=PowerNorm(0.5, 0, 1), interpolation="nearest")
    axes.set_facecolor("#eeeeee")
    if len(order) <= NAMED_LABELS:
        names = [card.label_names[i] for i in order]
        axes.set_xticks(range(len(order)), names, rotation=60, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(len(order)), names)
    else:
        axes.set_xlabel("labels, most frequent first", fontsize=8, color=MUTED)
        axes.set_ylabel("labels, most frequent first", fontsize=8, color=MUTED)
    axes.spines[:].set_visible(False)
    assert axes.figure is not None
    bar = axes.figure.colorbar(image, ax=axes, ticks=[0, 0.05, 0.2, 0.5, 1], format="{x:.0%}", shrink=0.6, aspect=30)
    for part in (axes, bar.ax):
        part.tick_params(length=0, labelsize=8, labelcolor=INK)
    bar.outline.set_visible(False)
