"""Pictures of what `analysis`, `gradients` and `linear` return. Each function gives a matplotlib Figure.

Figures are made without pyplot: no window opens, no global state changes, and `figure.savefig(path)` saves one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hf_mlcl.colours import BLUE, GREEN, GREY, ORANGE, PALETTE
from hf_mlcl.evaluation.analysis import FrequencyCurve, RunComparison, SpaceQuality
from hf_mlcl.evaluation.gradients import GradientStudy
from hf_mlcl.evaluation.linear import LinearEvaluationResult
from hf_mlcl.metrics._arrays import ArrayLike, as_multi_hot


def _axes(width: float = 6.4, height: float = 4.2) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def draw_space_quality(spaces: Mapping[str, SpaceQuality]) -> Figure:
    """Alignment against uniformity of several spaces; the lower left corner is the best."""
    figure, axes = _axes()
    colours = dict(zip(spaces, PALETTE * len(spaces), strict=False))
    for index, (name, space) in enumerate(sorted(spaces.items(), key=lambda item: item[1].uniformity)):
        axes.scatter(space.uniformity, space.alignment, s=60, color=colours[name])
        offset = (7, 4 if index % 2 == 0 else -13)  # neighbours have their names above and below: they do not overlap
        axes.annotate(name, (space.uniformity, space.alignment), xytext=offset, textcoords="offset points")
    axes.margins(0.25)
    axes.set(xlabel="uniformity (lower is better)", ylabel="alignment (lower is better)")
    return figure


def draw_prr(temperatures: Sequence[float], ratios: Mapping[str, npt.ArrayLike], paper: bool = True) -> Figure:
    """PRR against temperature, one line an encoder; `paper` marks the study's 38 % at 0.1."""
    figure, axes = _axes()
    for (name, values), colour in zip(ratios.items(), PALETTE * len(ratios), strict=False):
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


def draw_gradient_study(study: GradientStudy) -> Figure:
    """Pull on the positive pairs of a batch without the regulariser, and the sums with and without it."""
    figure = Figure(figsize=(9.2, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    # Quantiles keep a few extreme pairs from hiding all others.
    bound = max(float(np.quantile(np.abs(study.pulls), 0.99)), 1e-12) if len(study.pulls) else 1.0
    bins = np.linspace(-bound, bound, 61)
    shown = study.pulls
    left.hist(shown[shown < 0], bins=list(bins), color=ORANGE, label=f"pushed apart ({study.prr:.0%})")
    left.hist(shown[shown >= 0], bins=list(bins), color=BLUE, label=f"pulled together ({1 - study.prr:.0%})")
    if len(study.pulls):
        left.set_yscale("log")
    left.set(xlabel="pull T - p on a positive pair", ylabel="positive pairs")
    left.legend(frameon=False)
    names = ["pull on\npositives", "push on\npositives", "push on\nnegatives"]
    position = np.arange(3)
    right.bar(position - 0.2, [study.attraction, study.wrong, study.repulsion], 0.38, color=GREY, label="wo_reg")
    regularised = [study.attraction, study.wrong_regularised, study.repulsion]
    right.bar(position + 0.2, regularised, 0.38, color=GREEN, label="reg")
    right.set_xticks(position, names)
    right.set_ylabel("sum an anchor")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25, linewidth=0.6)
        axes.set_axisbelow(True)
    return figure


def draw_similarities(similarity: npt.NDArray[np.float64], label_names: Sequence[str]) -> Figure:
    """Label-prototype similarities as a matrix, neighbouring labels side by side (hierarchical clustering)."""
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    order = np.arange(len(similarity))
    if len(similarity) > 2:
        distance = np.clip(1 - (similarity + similarity.T) / 2, 0, None)
        np.fill_diagonal(distance, 0)
        tree = linkage(squareform(distance, checks=False), method="average", optimal_ordering=True)
        order = leaves_list(tree)
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
    figure, axes = _axes(7.4, 5.2)
    axes.scatter(points[colour < 0, 0], points[colour < 0, 1], s=5, color="#c9ccd1", linewidths=0, label="other")
    for rank, label in enumerate(shown):
        rows = colour == rank
        style = {"s": 7, "color": PALETTE[rank], "linewidths": 0, "alpha": 0.8, "label": label_names[label]}
        axes.scatter(points[rows, 0], points[rows, 1], **style)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.legend(frameon=False, markerscale=3, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def draw_f1_by_frequency(curves: Mapping[str, FrequencyCurve]) -> Figure:
    """F1 of each label against its training frequency, for one or several runs, with the running mean of each."""
    figure, axes = _axes()
    for (name, curve), colour in zip(curves.items(), PALETTE * len(curves), strict=False):
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


def draw_comparison(comparison: RunComparison, first: str = "first", second: str = "second") -> Figure:
    """Gain in F1 of the second run over the first, labels from the most frequent to the rarest."""
    order = np.argsort(-comparison.first.frequency, kind="stable")
    gain = comparison.gain[order]
    figure, axes = _axes(max(6.4, 0.17 * len(order) + 2), 4.2)
    axes.bar(np.arange(len(order)), gain, color=[GREEN if value >= 0 else ORANGE for value in gain])
    axes.axhline(0, color="black", linewidth=0.8)
    names = [comparison.first.label_names[i] for i in order]
    axes.set_xticks(np.arange(len(order)), names, rotation=90, fontsize=9 if len(order) <= 20 else 6)
    axes.margins(x=0.01)
    axes.grid(visible=False, axis="x")
    axes.set(ylabel=f"F1: {second} - {first}", xlabel="labels, most frequent first")
    axes.set_title(f"macro-F1 {comparison.first.f1.mean():.3f} → {comparison.second.f1.mean():.3f}", fontsize=10)
    return figure


def draw_learning_curves(result: LinearEvaluationResult) -> Figure:
    """Training loss and validation macro-F1 of every grid point over the epochs of a linear evaluation."""
    if not result.curves:
        raise ValueError("`result` has no learning curves: protocol='best' has no epochs.")
    figure = Figure(figsize=(9.2, 3.8), layout="constrained")
    panels: Any = figure.subplots(1, 2)
    titles = {"train_loss": "training loss", "validation_macro_f1": "validation macro-F1"}
    styles = dict(
        zip(result.config.learning_rates, ["-", "--", ":", "-."] * len(result.config.learning_rates), strict=False)
    )
    colours = dict(zip(result.config.weight_decays, PALETTE * len(result.config.weight_decays), strict=False))
    for axes, (key, title) in zip(panels, titles.items(), strict=True):
        for index, (rate, decay) in enumerate(result.config.grid()):
            label = f"lr {rate:g}, wd {decay:g}"
            line = {"color": colours[decay], "linestyle": styles[rate] if rate is not None else "-"}
            axes.plot(result.curves["epoch"], result.curves[key][:, index], label=label, **line)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.set(xlabel="epoch", ylabel=title)
    panels[1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
