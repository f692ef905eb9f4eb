"""Pictures of what `analysis` and `gradients` return. Each function gives a matplotlib Figure.

Figures are made without pyplot: no window opens, no global state changes, and `figure.savefig(path)` saves one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hf_mlcl.colours import PALETTE
from hf_mlcl.evaluation.analysis import FrequencyCurve
from hf_mlcl.metrics._arrays import ArrayLike, as_multi_hot


def plain_axes(width: float = 6.4, height: float = 4.2) -> tuple[Figure, Axes]:
    """A figure with one pair of axes, as all of ours look."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def draw_prr(temperatures: Sequence[float], ratios: Mapping[str, npt.ArrayLike], paper: bool = True) -> Figure:
    """PRR against temperature, one line per encoder; `paper` marks the study's 38 % at 0.1."""
    figure, axes = plain_axes()
    for (name, values), colour in zip(ratios.items(), cycle(PALETTE), strict=False):
        axes.plot(temperatures, 100 * np.asarray(values), marker="o", markersize=4, color=colour, label=name)
    if paper:
        axes.scatter([0.1], [38], marker="*", s=170, color="black", zorder=3, label="the study: 38 % at 0.1")
    axes.set_xscale("log")
    axes.set_xticks(list(temperatures), [f"{t:g}" for t in temperatures])
    axes.minorticks_off()
    highest = max(38.0, *(100 * float(np.nan_to_num(np.asarray(values)).max()) for values in ratios.values()))
    axes.set_ylim(0, 1.6 * highest)  # room for the legend
    axes.set(xlabel="temperature", ylabel="positive pairs with p > T (%)")
    axes.legend(frameon=False)
    return figure


def draw_similarities(similarity: npt.NDArray[np.float64], label_names: Sequence[str]) -> Figure:
    """Label-prototype similarities as a matrix, neighbouring labels side by side (hierarchical clustering)."""
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    order = np.arange(len(similarity))
    if len(similarity) > 2:
        distance = np.clip(1 - (similarity + similarity.T) / 2, 0, None)
        np.fill_diagonal(distance, 0)
        order = leaves_list(linkage(squareform(distance, checks=False), method="average", optimal_ordering=True))
    side = min(4 + 0.12 * len(similarity), 9.5)
    figure = Figure(figsize=(side + 1, side), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(similarity[np.ix_(order, order)], cmap="RdBu_r", vmin=-1, vmax=1)
    names = [label_names[int(i)] for i in order]
    size = 9 if len(names) <= 20 else 6
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=size)
    axes.set_yticks(range(len(names)), names, fontsize=size)
    figure.colorbar(image, ax=axes, shrink=0.8, label="cosine similarity")
    return figure


def draw_map(points: npt.NDArray[np.float64], labels: ArrayLike, label_names: Sequence[str], most: int = 8) -> Figure:
    """A 2-D map of rows, coloured by label.

    A row with several labels takes the colour of its rarest among the `most` frequent ones, so that no colour drowns;
    rows with none of those are grey.
    """
    truth = as_multi_hot(labels, "labels")
    frequency = np.count_nonzero(truth, axis=0)
    shown = [i for i in np.argsort(-frequency, kind="stable")[: min(most, len(PALETTE))] if frequency[i]]
    colour = np.full(len(truth), -1)
    for rank, label in enumerate(shown):  # rarer labels come later and win
        colour[truth[:, label]] = rank
    figure, axes = plain_axes(7.4, 5.2)
    x, y = points[colour < 0].T
    axes.scatter(x, y, s=5, color="#c9ccd1", linewidths=0, label="other")
    for rank, label in enumerate(shown):
        x, y = points[colour == rank].T
        axes.scatter(x, y, s=7, color=PALETTE[rank], linewidths=0, alpha=0.8, label=label_names[label])
    axes.set_xticks([])
    axes.set_yticks([])
    axes.legend(frameon=False, markerscale=3, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def draw_f1_by_frequency(curves: Mapping[str, FrequencyCurve]) -> Figure:
    """F1 of each label against its training frequency, for one or several runs, with the running mean of each."""
    figure, axes = plain_axes()
    for (name, curve), colour in zip(curves.items(), cycle(PALETTE), strict=False):
        frequency = np.maximum(curve.frequency, 0.7)  # a label that never occurs still has a place on a log axis
        axes.scatter(frequency, curve.f1, s=16, color=colour, alpha=0.6, linewidths=0)
        order = np.argsort(curve.frequency, kind="stable")
        window = max(len(order) // 6, 1)
        kernel = np.ones(window) / window
        x = np.exp(np.convolve(np.log(frequency[order]), kernel, mode="valid"))
        axes.plot(x, np.convolve(curve.f1[order], kernel, mode="valid"), color=colour, linewidth=2, label=name)
    axes.set_xscale("log")
    axes.set_ylim(-0.02, 1.02)
    axes.set(xlabel="training examples of the label", ylabel="F1")
    axes.legend(frameon=False)
    return figure
