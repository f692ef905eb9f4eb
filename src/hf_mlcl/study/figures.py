"""The paper's figures from the runs of a study. Each function gives a matplotlib Figure; None where runs are missing.

Lines are means over seeds, bands one standard deviation. Where other arguments were searched, each point shows the
values that did best on validation.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure

from hf_mlcl.colours import DPI, loss_styles
from hf_mlcl.files import whole_file
from hf_mlcl.pages.html import svg
from hf_mlcl.study.cost import split_sizes
from hf_mlcl.study.results import ARGUMENT, finished, kept_files, select, study_table
from hf_mlcl.study.specification import Study, flat
from hf_mlcl.study.tables import column_of, metric_of, place_name

SELECT_BY = "validation_micro_f1"
PLACE = ["corpus", "setting"]
PAIRS = ("positive_similarity", "negative_similarity")
LOGGED = ("step", *PAIRS)
ROOM = (0.4, 0.08)
"""What a name takes beside a point, of the width and the height of its panel's points."""
MOST_SIDE_BY_SIDE = 3
"""Panels of a figure; more of them go below."""

logger = logging.getLogger(__name__)


def draw_data_share(table: pd.DataFrame, select_by: str = SELECT_BY) -> Figure | None:
    """Macro-F1 against the share of the training data (``max_train_samples``)."""
    argument = "max_train_samples"
    if ARGUMENT + argument not in table:
        return None
    table = table.assign(share=[100 * _share(row) for row in table.to_dict("records")])
    return draw_curves(table, argument, "macro_f1", "training data (%)", select_by, x="share")


def draw_epochs(table: pd.DataFrame, select_by: str = SELECT_BY) -> Figure | None:
    """Macro-F1 against epochs, of the runs that started from random weights."""
    pretrained = table.get(f"{ARGUMENT}pretrained", pd.Series(True, index=table.index))
    backbone = table.get(f"{ARGUMENT}backbone", pd.Series("", index=table.index))
    at_random = table[pretrained.astype(str).eq("False") | backbone.eq("small")]
    return draw_curves(at_random, "num_train_epochs", "macro_f1", "epochs from random initialisation", select_by)


def draw_alpha(table: pd.DataFrame, select_by: str = SELECT_BY) -> Figure | None:
    """Macro-F1 against alpha, the weight of label overlap."""
    return draw_curves(table, "loss_kwargs.alpha", "macro_f1", "alpha", select_by)


def draw_prr_by_temperature(table: pd.DataFrame, select_by: str = SELECT_BY) -> Figure | None:
    """The Positive Regularisation Ratio at the end of training against temperature.

    The paper's 38 % at 0.1 are not drawn: it does not say on which corpus they were measured.
    """
    figure = draw_curves(table, "temperature", "prr", "temperature", select_by)
    for axes in figure.axes if figure else ():
        temperatures = sorted({float(value) for line in axes.lines for value in np.asarray(line.get_xdata())})
        axes.set_xscale("log")
        axes.set_xticks(temperatures, [f"{value:g}" for value in temperatures])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
    return figure


def draw_space(table: pd.DataFrame, select_by: str = SELECT_BY) -> Figure | None:
    """Alignment against uniformity, one panel per corpus: means over all runs of each loss, lower left is best."""
    if not {"alignment", "uniformity"} <= set(table.columns):
        return None
    chosen = select(table, select_by)
    means = chosen.groupby(["corpus", "loss"], sort=False)[["alignment", "uniformity"]].mean().dropna().reset_index()
    if means["loss"].nunique() < 2:
        return None
    figure, panels = _panels(means, ["corpus"])
    styles = loss_styles(means["loss"])
    for axes, rows in panels:
        places = rows[["uniformity", "alignment"]].to_numpy()
        room = ROOM * np.ptp(places, axis=0)
        for point in rows.sort_values("uniformity").to_dict("records"):
            style, at = styles[point["loss"]], (point["uniformity"], point["alignment"])
            axes.scatter(*at, s=60, color=style.colour, marker=style.marker, label=point["loss"])
            if (np.abs(places - at) <= room).all(axis=1).sum() == 1:  # alone; the legend has them all
                axes.annotate(point["loss"], at, (6, 4), textcoords="offset points", fontsize=8)
        axes.margins(0.15)
        axes.locator_params(axis="x", nbins=5)  # -3.25 and -3.00 must not touch
        axes.set(xlabel="uniformity (lower is better)", ylabel="alignment (lower is better)")
    ranks = means.groupby("loss")[["alignment", "uniformity"]].mean().idxmin()
    seen = f"{ranks['alignment']} keeps positives closest,\n{ranks['uniformity']} spreads rows most evenly"
    figure.suptitle(seen, fontsize=11, x=0.01, ha="left")
    _legend(figure)
    return figure


def draw_pairs(table: pd.DataFrame, select_by: str = SELECT_BY) -> Figure | None:
    """How alike rows with a common label become while training, and (dotted) those without: mean cosine of embeddings.

    `table` has the ``history`` of each run, as `kept_files` reads it.
    """
    runs = select(table, select_by).to_dict("records") if "history" in table else []
    logs = pd.DataFrame(
        [
            {**{name: run[name] for name in PLACE}, "line": run["loss"], **{name: log.get(name) for name in LOGGED}}
            for run in runs
            for log in run["history"]
        ],
        columns=[*PLACE, "line", *LOGGED],
    ).dropna()
    logs = logs[logs.groupby(PLACE)["line"].transform("nunique") > 1]  # like is compared with like
    if logs.empty:
        return None
    figure, panels = _panels(logs, PLACE)
    styles = loss_styles(logs["line"])
    ends: dict[str, list[float]] = {}
    for axes, rows in panels:
        for name, points in rows.groupby("line", sort=False):
            means = points.groupby("step")[list(PAIRS)].mean()
            for pairs, line, label in zip(PAIRS, ("solid", "dotted"), (name, None), strict=True):
                axes.plot(means.index, means[pairs], color=styles[name].colour, linestyle=line, label=label)
            common = means.loc[: rows.groupby("line")["step"].max().min()]
            ends.setdefault(name, []).append(float(common[PAIRS[0]].iloc[-1]))
        axes.set(xlabel="step", ylabel="mean cosine similarity of pairs\n(dotted: without a common label)")
    closest, farthest = (best(ends, key=lambda name: np.mean(ends[name])) for best in (max, min))
    seen = f"Positive pairs end closest with {closest}, farthest apart with {farthest}"
    figure.suptitle(seen, fontsize=11, x=0.01, ha="left")
    _legend(figure)
    return figure


def draw_curves(
    table: pd.DataFrame, argument: str, metric: str, x_label: str, select_by: str = SELECT_BY, x: str | None = None
) -> Figure | None:
    """A metric against an argument, in which alone the runs of a line differ: a panel per corpus, a line per loss.

    `metric` is named without ``test_``; `x` is a column to draw against instead of the argument's own.
    """
    x, y = x or ARGUMENT + argument, column_of(table, metric)
    if x not in table or y is None:
        return None
    table = table.dropna(subset=[x, y])
    # A setting or a name of the file that stands for one x only is no line of its own, but a point of one.
    own = f"{ARGUMENT}loss"
    line = "loss" if _varies(table, ["corpus", "loss"], x) or own not in table else own
    panel = ["corpus", "setting"] if _varies(table, ["corpus", "setting", line], x) else ["corpus"]
    if not _varies(table, [*panel, line], x):
        return None
    table = select(_alike(table, x, argument, [*panel, line]), select_by, keys=[*panel, line, x])
    table = table[table.groupby([*panel, line])[x].transform("nunique") > 1]  # a single point is no line
    if table.empty:  # the points differ in other arguments too
        return None
    printed = metric_of(metric)
    figure, panels = _panels(table, panel)
    styles = loss_styles(table[line])
    for axes, rows in panels:
        for name, runs in rows.groupby(line, sort=False):
            points = printed.factor * runs.groupby(x)[y].agg(["mean", "std"]).fillna(0)
            style = styles[name]
            drawn = {"color": style.colour, "marker": style.marker, "markersize": 5, "linestyle": style.line}
            axes.plot(points.index, points["mean"], label=name, **drawn)
            band = (points["mean"] - points["std"], points["mean"] + points["std"])
            axes.fill_between(points.index, *band, color=style.colour, alpha=0.15, linewidth=0)
        axes.set(xlabel=x_label, ylabel=printed.title)
    figure.suptitle(_seen(panels, metric), fontsize=11, x=0.01, ha="left")
    _legend(figure)
    return figure


def _seen(panels: Sequence[tuple[Any, pd.DataFrame]], metric: str) -> str:
    """What a figure of curves shows, in words."""
    lines = {axes.get_title(): {line.get_label(): line.get_ydata() for line in axes.lines} for axes, _ in panels}
    if metric == "prr":
        first, last = (np.mean([each[i] for panel in lines.values() for each in panel.values()]) for i in (0, -1))
        return f"{metric_of(metric).title}: {first:.0f} on the left, {last:.0f} on the right"
    best = {title: max(panel, key=lambda name: float(np.max(panel[name]))) for title, panel in lines.items()}
    if len({name for panel in lines.values() for name in panel}) == 1:
        return f"{metric_of(metric).title} of {next(iter(best.values()))}"
    if len(set(best.values())) == 1:
        return f"{next(iter(best.values()))} reaches the highest {metric_of(metric).title}"
    return f"Highest {metric_of(metric).title}: " + ", ".join(f"{name} on {title}" for title, name in best.items())


class Drawing(NamedTuple):
    """A figure that has a name: its title, how it is drawn, and what it needs."""

    title: str
    draw: Callable[[pd.DataFrame, str], Figure | None]
    needs: str


FIGURES = {
    "data_share": Drawing("Macro-F1 against the share of training data", draw_data_share, "several max_train_samples"),
    "epochs": Drawing(
        "Macro-F1 against epochs from random weights", draw_epochs, "pretrained: false and several num_train_epochs"
    ),
    "prr": Drawing(
        "Positive Regularisation Ratio against temperature", draw_prr_by_temperature, "several values of temperature"
    ),
    "space": Drawing("Alignment and uniformity", draw_space, "two losses or more"),
    "pairs": Drawing("Similarity of pairs of rows while training", draw_pairs, "two contrastive losses or more"),
    "alpha": Drawing("Macro-F1 against alpha", draw_alpha, "reg or wo_reg with several loss_kwargs.alpha"),
}


def save_figures(
    study: Study,
    folder: str | Path,
    table: pd.DataFrame | None = None,
    names: Sequence[str] | None = None,
    suffix: str = "png",
    embedded: dict[str, str] | None = None,
    prefix: str = "",
) -> tuple[dict[str, Path], dict[str, str]]:
    """Draw figures that the finished runs of a study allow: of `FIGURES` those with these names, or all.

    One that fails is logged, and the others are drawn. `embedded` gets each picture as an SVG that can stand in a page.
    Returns the pictures in `folder`, whose names begin with `prefix`, and what those that could not be drawn need.
    """
    formats = FigureCanvasBase.get_supported_filetypes()
    for what, given, known in (("figure", names or (), FIGURES), ("picture format", (suffix,), formats)):
        unknown = sorted(set(given) - known.keys())
        if unknown:
            raise ValueError(f"There is no {what} {unknown[0]!r}. There are {', '.join(sorted(known))}.")
    done = finished(study_table(study) if table is None else table)
    if "pairs" in (names or FIGURES):
        done = done.assign(history=[kept_files(study, run)["history"] for run in done["id"]])
    drawn: dict[str, Path] = {}
    missing: dict[str, str] = {}
    for name in names or FIGURES:
        path = Path(folder) / f"{prefix}{name}.{suffix}"
        try:
            figure = None if done.empty else FIGURES[name].draw(done, study.report.select_by)
            if figure is None:
                missing[name] = FIGURES[name].needs
                continue
            with whole_file(path) as draft:
                figure.savefig(draft, dpi=DPI, format=suffix)
            if embedded is not None:
                embedded[name] = svg(figure)
        except Exception as error:  # a picture is no reason to lose the report of a study
            logger.warning("The figure %s could not be drawn: %s: %s", name, type(error).__name__, error)
        else:
            drawn[name] = path
    return drawn, missing


def _panels(table: pd.DataFrame, keys: Sequence[str]) -> tuple[Figure, list[tuple[Any, pd.DataFrame]]]:
    """A figure with a panel for each set of rows with equal keys, and the panels with their rows."""
    parts = list(table.groupby(list(keys), sort=False))
    lines = math.ceil(len(parts) / MOST_SIDE_BY_SIDE)
    columns = math.ceil(len(parts) / lines)
    figure = Figure(figsize=(max(5.2, 4.2 * columns), 3.9 * lines), layout="constrained")
    panels = []
    every = figure.subplots(lines, columns, squeeze=False).flat
    for axes in list(every)[len(parts) :]:
        axes.remove()
    for axes, (key, rows) in zip(figure.axes, parts, strict=True):
        axes.set_title(place_name(*key), fontsize=11)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.set_axisbelow(True)
        panels.append((axes, rows))
    return figure, panels


def _legend(figure: Figure) -> None:
    """One legend for all panels, each name once."""
    pairs = [pair for axes in figure.axes for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
    named = {label: handle for handle, label in pairs}
    figure.legend(list(named.values()), list(named), frameon=False, loc="outside right center")


def _share(row: dict[Any, Any]) -> float:
    """Part of the corpus's training rows that a run learned from."""
    rows = split_sizes(row[f"{ARGUMENT}corpus"], row.get(f"{ARGUMENT}size", "full")).train
    most: Any = row.get(f"{ARGUMENT}max_train_samples")
    return 1.0 if pd.isna(most) else min(1.0, float(most) / rows)


def _alike(table: pd.DataFrame, x: str, argument: str, keys: Sequence[str]) -> pd.DataFrame:
    """Of each line's runs those that differ in one argument only; of several such sets the one with the most points.

    A study may vary several things, one at a time: a point of one figure must not be drawn into another.
    """

    def context(row: dict[Any, Any]) -> str:
        searched = json.loads(row["choice"]).keys() - {argument}
        free = {argument, "seed", "corpus", "loss", *searched}
        fixed = [item for item in flat(json.loads(row["arguments"])) if item[0] not in free]
        return json.dumps([sorted(searched), sorted(fixed, key=str)])

    table = table.assign(context=[context(row) for row in table.to_dict("records")])
    kept = []
    for _, runs in table.groupby(list(keys), sort=False):
        points = runs.groupby("context", sort=False)[x].nunique()
        kept.append(runs[runs["context"] == points.idxmax()])
    return pd.concat(kept) if kept else table


def _varies(table: pd.DataFrame, keys: Sequence[str], x: str) -> bool:
    return bool(len(table)) and bool((table.groupby(list(keys))[x].nunique() > 1).any())
