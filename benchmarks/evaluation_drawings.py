"""Pictures that only `docs/evaluation.md` needs; those that users draw are in `hf_mlcl.evaluation.figures`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from hf_mlcl.colours import BLUE, GREEN, GREY, ORANGE, PALETTE, loss_styles
from hf_mlcl.evaluation import FrequencyCurve, GradientStudy, LinearEvaluationResult
from hf_mlcl.evaluation.figures import plain_axes


def draw_space_quality(spaces: Mapping[str, dict[str, float]]) -> Figure:
    """Alignment against uniformity of several spaces; the lower left corner is the best."""
    figure, axes = plain_axes()
    styles = loss_styles(spaces, in_order=True)
    for index, (name, space) in enumerate(sorted(spaces.items(), key=lambda item: item[1]["uniformity"])):
        style = {"color": styles[name].colour, "marker": styles[name].marker}
        axes.scatter(space["uniformity"], space["alignment"], s=60, **style)
        offset = (7, 4 if index % 2 == 0 else -13)  # neighbours have their names above and below: they do not overlap
        axes.annotate(name, (space["uniformity"], space["alignment"]), xytext=offset, textcoords="offset points")
    axes.margins(0.25)
    axes.set(xlabel="uniformity (lower is better)", ylabel="alignment (lower is better)")
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
    regularised = [study.attraction, 0.0, study.repulsion]
    right.bar(position + 0.2, regularised, 0.38, color=GREEN, label="reg")
    right.set_xticks(position, names)
    right.set_ylabel("sum an anchor")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25, linewidth=0.6)
        axes.set_axisbelow(True)
    return figure


def draw_comparison(curves: Mapping[str, FrequencyCurve]) -> Figure:
    """Gain in F1 of the second of two runs over the first, labels from the most frequent to the rarest."""
    (first, one), (second, two) = curves.items()
    order = np.argsort(-one.frequency, kind="stable")
    gain = (two.f1 - one.f1)[order]
    figure, axes = plain_axes(max(6.4, 0.17 * len(order) + 2))
    axes.bar(np.arange(len(order)), gain, color=[GREEN if value >= 0 else ORANGE for value in gain])
    axes.axhline(0, color="black", linewidth=0.8)
    names = [one.label_names[i] for i in order]
    axes.set_xticks(np.arange(len(order)), names, rotation=90, fontsize=9 if len(order) <= 20 else 6)
    axes.margins(x=0.01)
    axes.grid(visible=False, axis="x")
    axes.set(ylabel=f"F1: {second} - {first}", xlabel="labels, most frequent first")
    axes.set_title(f"macro-F1 {one.f1.mean():.3f} → {two.f1.mean():.3f}", fontsize=10)
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
