"""The picture of a `CorpusCard`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from hf_mlcl.data.card import CorpusCard

INK, MUTED, ACCENT = "#222222", "#6b7280", "#2a6f97"
SPLIT_COLOURS = {"train": "#2a6f97", "validation": "#f4a259", "test": "#a7c4d6"}
NAMED_LABELS = 40
"""Past so many labels their names would be too small to read."""


def draw_card(card: CorpusCard) -> Figure:
    """Frequencies on the left, labels per example below them, co-occurrence on the right."""
    order = np.argsort(-card.frequencies, kind="stable")
    figure = Figure(figsize=(12.5, 7.2), layout="constrained", facecolor="white")
    grid = GridSpec(2, 2, figure=figure, width_ratios=(1.0, 1.15), height_ratios=(1.75, 1.0))
    _frequencies(figure.add_subplot(grid[0, 0]), card, order)
    _set_sizes(figure.add_subplot(grid[1, 0]), card)
    _co_occurrence(figure, figure.add_subplot(grid[:, 1]), card, order)
    figure.suptitle(_title(card), x=0.01, ha="left", fontsize=13, color=INK, linespacing=1.5)
    return figure


def _title(card: CorpusCard) -> str:
    sizes = " / ".join(f"{size:,}" for size in card.split_sizes.values())
    unlabelled = sum(card.unlabelled.values())
    extra = f" · {unlabelled:,} examples without a label" if unlabelled else ""
    return (
        f"{card.name}   {sizes} examples ({', '.join(card.split_sizes)})\n"
        f"{len(card.label_names)} labels · {card.cardinality:.2f} per example · most frequent to rarest "
        f"{card.finite_ratios.max(initial=1.0):.0f} : 1 · top fifth of the labels holds {card.head_share:.0%}{extra}"
    )


def _plain(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(colors=MUTED, labelcolor=INK, labelsize=8)


def _frequencies(axes: Axes, card: CorpusCard, order: np.ndarray) -> None:
    places = np.arange(len(order))
    base = np.zeros(len(order))
    for split, counts in card.counts.items():
        axes.bar(places, counts[order], bottom=base, color=SPLIT_COLOURS.get(split, MUTED), label=split, width=0.85)
        base += counts[order]
    axes.set_title("Examples of each label", loc="left", fontsize=10, color=INK)
    axes.set_xlim(-0.6, len(order) - 0.4)
    axes.legend(frameon=False, fontsize=8)
    if len(order) <= NAMED_LABELS:
        axes.set_xticks(places, [card.label_names[i] for i in order], rotation=60, ha="right", rotation_mode="anchor")
    else:
        ends = [0, len(order) // 4, len(order) // 2, 3 * len(order) // 4, len(order) - 1]
        axes.set_xticks(ends, [card.label_names[order[place]] for place in ends], rotation=20, ha="right")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(axis="y", color="#e5e7eb", linewidth=0.7)
    axes.set_axisbelow(True)
    _plain(axes)


def _set_sizes(axes: Axes, card: CorpusCard) -> None:
    share = card.set_sizes / max(1, card.set_sizes.sum())
    sizes = np.arange(len(share))
    bars = axes.bar(sizes, share, color=ACCENT, width=0.75)
    for bar, value in zip(bars, share, strict=True):
        if value > 0:
            text = f"{value:.0%}" if value >= 0.005 else "<1%"
            axes.text(bar.get_x() + bar.get_width() / 2, value, text, ha="center", va="bottom", fontsize=8, color=INK)
    axes.set_title("Labels per example", loc="left", fontsize=10, color=INK)
    axes.set_xticks(sizes)
    axes.set_ylim(0, 1.15 * share.max(initial=0.01))
    axes.yaxis.set_visible(False)
    axes.spines["left"].set_visible(False)
    _plain(axes)


def _co_occurrence(figure: Figure, axes: Axes, card: CorpusCard, order: np.ndarray) -> None:
    shares = card.conditional()[np.ix_(order, order)]
    np.fill_diagonal(shares, np.nan)
    # The square root opens up the small shares, which are most of them.
    image = axes.imshow(np.sqrt(shares), cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    axes.set_facecolor("#eeeeee")
    axes.set_title("How often a row's label brings the column's label with it", loc="left", fontsize=10, color=INK)
    if len(order) <= NAMED_LABELS:
        names = [card.label_names[i] for i in order]
        axes.set_xticks(range(len(order)), names, rotation=60, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(len(order)), names)
    else:
        axes.set_xlabel("labels, most frequent first", fontsize=8, color=MUTED)
        axes.set_ylabel("labels, most frequent first", fontsize=8, color=MUTED)
    axes.tick_params(length=0, labelsize=8, labelcolor=INK)
    for spine in axes.spines.values():
        spine.set_visible(False)
    ticks = np.array([0.0, 0.05, 0.2, 0.5, 1.0])
    bar = figure.colorbar(image, ax=axes, shrink=0.6, pad=0.02, aspect=30)
    bar.set_ticks(np.sqrt(ticks).tolist(), labels=[f"{tick:.0%}" for tick in ticks])
    bar.ax.tick_params(labelsize=8, length=0, labelcolor=INK)
    bar.outline.set_visible(False)
