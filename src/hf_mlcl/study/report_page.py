"""The report of a study as a page: verdicts, tables, every run, labels, curves and times, in one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hf_mlcl.metrics import frequency_groups
from hf_mlcl.pages import charts
from hf_mlcl.pages.html import render
from hf_mlcl.study.claims import verdicts
from hf_mlcl.study.rendering import html_filters
from hf_mlcl.study.results import ARGUMENT, finished, kept_files, select
from hf_mlcl.study.specification import Study
from hf_mlcl.study.tables import GROUPS, Cell, ReportTable, Row, column_of, metric_of, place_name

OF_A_RUN = {f"{ARGUMENT}{name}" for name in ("corpus", "loss", "seed", "output_dir", "resume_from_checkpoint")}
"""Settings that have a column of their own, or say nothing of what was run."""
POINTS = 60
"""Of a learning curve, at most."""


def report_page(
    study: Study, table: pd.DataFrame, tables: Sequence[ReportTable], pictures: Sequence[tuple[str, str]] = ()
) -> str:
    """The page; pictures are pairs of an address, such as `hf_mlcl.pages.html.svg` gives, and a caption."""
    done = finished(table).assign(place=lambda runs: list(map(place_name, runs["corpus"], runs["setting"])))
    chosen = select(done, study.report.select_by) if len(done) else done
    kept = [{**run, **kept_files(study, run["id"])} for run in chosen.to_dict("records")]
    per_label, curves, times = _per_label(kept), _curves(kept), _times(done)
    losses = [loss for loss in study.names("loss") if loss in set(chosen.get("loss", ()))]
    specs: dict[str, Any] = {}
    if per_label and len(losses) > 1:
        places = [one["place"] for one in per_label]
        specs["deltas"] = charts.label_deltas(_places(per_label), losses, max(map(places.count, places)))
    if curves:
        specs["curves"] = charts.learning_curves(_places(curves), list(dict.fromkeys(c["loss"] for c in curves)))
    if times:
        specs["times"] = charts.run_times(losses)
    groups = _frequency_table(per_label, losses)
    html_filters()
    return render(
        "report.html.jinja",
        {"charts": specs, "datasets": {"per_label": per_label, "curves": curves, "times": times}},
        study=study,
        verdicts=verdicts(study, table),
        tables=[*tables, *([groups] if groups else [])],
        pictures=pictures,
        charts=list(specs),
        states=table["state"].value_counts().to_dict(),
        **_runs(study, table),
    )


def _places(records: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(record["place"] for record in records))


def _per_label(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """F1 of every label by loss, means over seeds."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for run in runs:
        for label, rows, score in run["labels"]:
            about = {"place": run["place"], "label": label, "rows": rows, "scores": {}}
            one = found.setdefault((run["place"], label), about)
            one["scores"].setdefault(run["loss"], []).append(score)
    for one in found.values():
        one["scores"] = {loss: round(float(np.mean(values)), 4) for loss, values in one["scores"].items()}
    return list(found.values())


def _frequency_table(per_label: list[dict[str, Any]], losses: Sequence[str]) -> ReportTable | None:
    """Macro-F1 of frequent, medium and rare labels, the best of a column in bold."""
    columns: dict[tuple[str, ...], dict[str, float]] = {}
    for place in _places(per_label):
        labels = [one for one in per_label if one["place"] == place]
        groups = frequency_groups(np.array([one["rows"] for one in labels]))
        for title, ids in zip(("frequent", "medium", "rare"), groups.values(), strict=True):
            scores = [labels[i]["scores"] for i in ids]
            known = [loss for loss in losses if scores and all(loss in each for each in scores)]
            if known:
                columns[place, title] = {loss: float(np.mean([each[loss] for each in scores])) for loss in known}
    if not columns:
        return None
    text = metric_of("macro_f1").text
    rows = []
    for loss in losses:
        cells = [
            Cell(text(means[loss]), bold=means[loss] == max(means.values()) > 0) if loss in means else None
            for means in columns.values()
        ]
        rows.append(Row(GROUPS[0], loss, cells))
    notes = ["Thirds of the labels by their training rows; means over seeds. Bold: the best of a column; not tested."]
    return ReportTable("Macro-F1 (%) of frequent and rare labels", list(columns), rows, notes)


def _curves(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The training loss as it was logged."""
    found = []
    for run in runs:
        points = {log["step"]: log["loss"] for log in run["history"] if np.isfinite(log["loss"])}
        every = -(-len(points) // POINTS) or 1
        about = {"place": run["place"], "loss": run["loss"], "seed": str(run["seed"]), "run": run["id"]}
        found += [{**about, "step": int(step), "value": points[step]} for step in sorted(points)[::every]]
    return found


def _times(done: pd.DataFrame) -> list[dict[str, Any]]:
    runs = done.dropna(subset=["seconds.total"]).to_dict("records") if "seconds.total" in done else []
    about = [{"place": run["place"], "loss": run["loss"], "seed": str(run["seed"])} for run in runs]
    minutes = [round(float(run["seconds.total"]) / 60, 3) for run in runs]
    return [{**one, "minutes": each} for one, each in zip(about, minutes, strict=True)]


def _runs(study: Study, table: pd.DataFrame) -> dict[str, Any]:
    """Every run with what it was and what came of it: the settings in which runs differ, and those that all share."""
    metrics = [metric for metric in study.report.metrics if column_of(table, metric)]
    settings = [name for name in table.columns if str(name).startswith(ARGUMENT) and name not in OF_A_RUN]
    texts = {name: [_text(value) for value in table[name]] for name in settings}
    differing = [name for name in settings if len(set(texts[name])) > 1]
    shared = {name.removeprefix(ARGUMENT): texts[name][0] for name in settings if name not in differing}
    heads = ["corpus", "loss", "setting", "seed", "state"]
    rows = []
    for i, run in enumerate(table.to_dict("records")):
        row: list[tuple[str, Any]] = [(str(run[name]), "") for name in heads]
        numbers = [(run.get(column_of(table, metric)), metric_of(metric).text) for metric in metrics]
        for value, text in (*numbers, (run.get("seconds.total"), lambda seconds: f"{seconds / 60:.1f}")):
            row.append(("", "") if pd.isna(value) else (text(value), value))
        rows.append(row + [(texts[name][i], "") for name in differing])
    headings = [*heads, *(metric_of(metric).title for metric in metrics), "minutes"]
    return {
        "run_headings": headings + [name.removeprefix(ARGUMENT) for name in differing],
        "runs": rows,
        "shared": shared,
        "errors": [run for run in table.to_dict("records") if run["state"] == "failed"],
    }


def _text(value: Any) -> str:
    """A setting in print; of a path within a machine the last two parts, where a Hub id has its own."""
    if pd.isna(value):
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    text = str(value)
    return "/".join(Path(text).parts[-2:]) if text.startswith("/") else text
