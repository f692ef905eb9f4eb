"""Pictures of what `analysis` and `gradients` return. Each function gives a matplotlib Figure.

Figures are made without pyplot: no window opens, no global state changes, and `figure.savefig(path)` saves one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hf_mlcl.colours import GREY, MARKERS, PALETTE, loss_styles
from hf_mlcl.evaluation.analysis import FrequencyCurve
from hf_mlcl.metrics._arrays import ArrayLike, as_multi_hot

TITLE: dict[str, Any] = {"fontsize": 11, "loc": "left"}


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
    for (name, values), style in zip(ratios.items(), loss_styles(ratios, in_order=True).values(), strict=True):
        drawn: dict[str, Any] = {"marker": style.marker, "color": style.colour, "linestyle": style.line}
        axes.plot(temperatures, 100 * np.asarray(values), label=name, markersize=5, **drawn)
    if paper:
        axes.scatter([0.1], [38], marker="*", s=170, color="black", zorder=3, label="the study: 38 % at 0.1")
    axes.set_xscale("log")
    axes.set_xticks(list(temperatures), [f"{t:g}" for t in temperatures])
    axes.minorticks_off()
    highest = max(38.0, *(100 * float(np.nan_to_num(np.asarray(values)).max()) for values in ratios.values()))
    axes.set_ylim(0, 1.6 * highest)  # room for the legend
    axes.set(xlabel="temperature", ylabel="positive pairs with p > T (%)")
    axes.set_title("Positive pairs that would be pushed apart without the regulariser", **TITLE)
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
    image = axes.imshow(similarity[np.ix_(order, order)], cmap="PuOr_r", vmin=-1, vmax=1)
    if len(similarity) > 1:
        apart = np.where(np.eye(len(similarity), dtype=bool), -np.inf, similarity)
        first, second = np.unravel_index(int(apart.argmax()), apart.shape)
        axes.set_title(f"Most alike: {label_names[int(first)]} and {label_names[int(second)]}", **TITLE)
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
        style: dict[str, Any] = {"color": PALETTE[rank], "marker": MARKERS[rank], "linewidths": 0, "alpha": 0.8}
        axes.scatter(x, y, s=11, label=label_names[label], **style)
    axes.set_title("Rows where the encoder puts them, by label", **TITLE)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.legend(frameon=False, markerscale=2, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def draw_f1_by_frequency(curves: Mapping[str, FrequencyCurve]) -> Figure:
    """F1 of each label against its training frequency, for one or several runs, with the running mean of each.

    Of a single run, points have the names of their labels where these do not overlap.
    """
    figure, axes = plain_axes()
    for (name, curve), style in zip(curves.items(), loss_styles(curves, in_order=True).values(), strict=True):
        colour = style.colour
        frequency = np.maximum(curve.frequency, 0.7)  # a label that never occurs still has a place on a log axis
        axes.scatter(frequency, curve.f1, s=18, color=colour, marker=style.marker, alpha=0.6, linewidths=0)
        if len(curves) == 1:
            _name_points(axes, frequency, curve)
        order = np.argsort(curve.frequency, kind="stable")
        window = max(len(order) // 6, 1)
        kernel = np.ones(window) / window
        x = np.exp(np.convolve(np.log(frequency[order]), kernel, mode="valid"))
        mean = np.convolve(curve.f1[order], kernel, mode="valid")
        axes.plot(x, mean, color=colour, linewidth=2, linestyle=style.line, label=name)
    axes.set_xscale("log")
    axes.set_ylim(-0.02, 1.02)
    axes.set(xlabel="training examples of the label", ylabel="F1")
    axes.set_title(_f1_title(curves), **TITLE)
    axes.legend(frameon=False)
    return figure


def _name_points(axes: Axes, frequency: npt.NDArray[np.float64], curve: FrequencyCurve) -> None:
    """Names beside points, where they have a place: first those that are found worst."""
    low, reach = np.log(frequency.min()), max(float(np.log(frequency.max() / frequency.min())), 1e-9)
    places = [(float((np.log(x) - low) / reach), float(y)) for x, y in zip(frequency, curve.f1, strict=True)]
    order = [int(i) for i in np.argsort(curve.f1, kind="stable")]
    for point, (name, shown) in enumerate(
        zip(curve.label_names, without_overlap(places, curve.label_names, order), strict=True)
    ):
        if shown:
            at = (float(frequency[point]), float(curve.f1[point]))
            axes.annotate(name, at, (4, 0), textcoords="offset points", fontsize=7, color=GREY, va="center")


def _f1_title(curves: Mapping[str, FrequencyCurve]) -> str:
    """What is seen: how the rarest third of the labels fares."""
    found = {}
    for name, curve in curves.items():
        rare, *_, frequent = np.array_split(curve.f1[np.argsort(curve.frequency, kind="stable")], 3)
        if len(rare) and len(frequent):
            found[name] = (float(rare.mean()), float(frequent.mean()))
    if not found:
        return "F1 of each label"
    if len(found) == 1:
        ((rare_f1, frequent_f1),) = found.values()
        return f"Rare labels have F1 {rare_f1:.2f}, frequent ones {frequent_f1:.2f}"
    best = max(found, key=lambda name: found[name][0])
    return f"Best on rare labels: {best} (F1 {found[best][0]:.2f})"


def without_overlap(
    points: Sequence[tuple[float, float]], names: Sequence[str], order: Sequence[int], size: tuple[int, int] = (100, 40)
) -> list[bool]:
    """Whether a point's name has a place to its right; points lie in the unit square, `order` says who is first.

    `size` is that of the chart in characters and lines: on a phone it is about 30 x 24.

    Examples:
        >>> without_overlap([(0.1, 0.5), (0.11, 0.5), (0.1, 0.9)], ["joy", "anger", "fear"], [0, 1, 2])
        [True, False, True]
    """
    taken: list[tuple[float, float, float]] = []
    shown = [False] * len(points)
    for i in order:
        x, y, width = size[0] * points[i][0], size[1] * points[i][1], len(names[i]) + 2
        if all(abs(y - b) >= 1.6 or x > a + w or a > x + width for a, b, w in taken):
            taken.append((x, y, width))
            shown[i] = True
    return shown
