"""The picture of a `CorpusCard`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    _frequencies(_axes(figure, grid[0, 0], "Examples of each label"), card, order)
    _set_sizes(_axes(figure, grid[1, 0], "Labels per example"), card)
    _co_occurrence(_axes(figure, grid[:, 1], "How often a row's label brings the column's label with it"), card, order)
    unlabelled = sum(card.unlabelled.values())
    extra = f" · {unlabelled:,} examples without a label" if unlabelled else ""
    title = (
        f"{card.name}   {' / '.join(f'{size:,}' for size in card.split_sizes.values())} examples "
        f"({', '.join(card.split_sizes)})\n{len(card.label_names)} labels · {card.cardinality:.2f} per example · most "
        f"frequent to rarest {card.largest_imbalance:.0f} : 1 · top fifth of the labels holds {card.head_share:.0%}"
        f"{extra}"
    )
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, color=INK, linespacing=1.5)
    return figure


def _axes(figure: Figure, place: Any, title: str) -> Axes:
    axes: Axes = figure.add_subplot(place)
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=MUTED, labelcolor=INK, labelsize=8)
    return axes


def _frequencies(axes: Axes, card: CorpusCard, order: np.ndarray) -> None:
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


def _set_sizes(axes: Axes, card: CorpusCard) -> None:
    share = card.set_sizes / max(1, card.set_sizes.sum())
    bars = axes.bar(np.arange(len(share)), share, color=ACCENT, width=0.75)
    texts = ["" if value == 0 else f"{value:.0%}" if value >= 0.005 else "<1%" for value in share]
    axes.bar_label(bars, texts, fontsize=8, color=INK)
    axes.set_xticks(np.arange(len(share)))
    axes.set_ylim(0, 1.15 * share.max(initial=0.01))
    axes.yaxis.set_visible(False)
    axes.spines["left"].set_visible(False)


def _co_occurrence(axes: Axes, card: CorpusCard, order: np.ndarray) -> None:
    shares = card.conditional()[np.ix_(order, order)]
    np.fill_diagonal(shares, np.nan)
    # The square root opens up the small shares, which are most of them.
    image = axes.imshow(np.sqrt(shares), cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    axes.set_facecolor("#eeeeee")
    if len(order) <= NAMED_LABELS:
        names = [card.label_names[i] for i in order]
        axes.set_xticks(range(len(order)), names, rotation=60, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(len(order)), names)
    else:
        axes.set_xlabel("labels, most frequent first", fontsize=8, color=MUTED)
        axes.set_ylabel("labels, most frequent first", fontsize=8, color=MUTED)
    axes.spines[:].set_visible(False)
    bar = axes.get_figure().colorbar(image, ax=axes, shrink=0.6, pad=0.02, aspect=30)
    ticks = np.array([0.0, 0.05, 0.2, 0.5, 1.0])
    bar.set_ticks(np.sqrt(ticks).tolist(), labels=[f"{tick:.0%}" for tick in ticks])
    for part in (axes, bar.ax):
        part.tick_params(length=0, labelsize=8, labelcolor=INK)
    bar.outline.set_visible(False)
