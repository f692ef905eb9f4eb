"""Every run of a study as a row: settings, seed, versions, times and metrics."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pandas as pd

from hf_mlcl.files import whole_file
from hf_mlcl.study.specification import Study
from hf_mlcl.study.worklist import RunStatus, WorkList, read_result

SETTING, SECONDS, VERSION, MACHINE = "setting.", "seconds.", "version.", "machine."
"""How the columns of each kind begin; metrics have their plain names."""


def study_table(study: Study) -> pd.DataFrame:
    """A row for each run, in the order of the study, whether it is finished or not.

    Args:
        study: The study; its folder is read.

    Returns:
        ``id``, ``corpus``, ``loss``, ``group`` (the name of the setting in the study file), ``seed``, ``choice`` and
        ``arguments`` (the searched values, and all that the study file sets, as JSON), ``state``, ``attempts``,
        ``error``, ``started``, ``finished``; then the metrics under their own names, and ``setting.…``,
        ``seconds.…``, ``version.…``, ``machine.…``.
    """
    work_list = WorkList(study.output_dir)
    return pd.DataFrame([_row(work_list, work_list.status(run)) for run in study.runs])


def finished(table: pd.DataFrame) -> pd.DataFrame:
    """The rows with results."""
    return table[table["state"] == "finished"]


def save_table(table: pd.DataFrame, folder: str | os.PathLike[str]) -> list[Path]:
    """Write ``runs.parquet`` and ``runs.csv``, each whole or not at all.

    Returns:
        The two files.
    """
    uniform = table.copy()
    for name in uniform.columns:
        kinds = {type(value) for value in uniform[name] if value is not None and value == value}
        if len(kinds) > 1 and not kinds <= {int, float}:  # Parquet has one type a column
            uniform[name] = [None if value is None or value != value else str(value) for value in uniform[name]]
    paths = []
    for suffix, write in ((".parquet", uniform.to_parquet), (".csv", uniform.to_csv)):
        path = Path(folder) / f"runs{suffix}"
        with whole_file(path) as draft:
            write(draft, index=False)
        paths.append(path)
    return paths


def select(table: pd.DataFrame, by: str, keys: Sequence[str] = ("corpus", "loss", "group")) -> pd.DataFrame:
    """Of the searched values keep those with the best mean of a metric over seeds, within each group of runs.

    Values that have more seeds finished go before those that have fewer, so that a lucky first seed does not win.

    Args:
        table: Finished runs.
        by: A metric, the higher the better.
        keys: Columns that make a group.

    Examples:
        >>> runs = [("a", 0.1, 0), ("a", 0.3, 1), ("b", 0.25, 0), ("b", 0.25, 1)]
        >>> table = pd.DataFrame(
        ...     [dict(corpus="c", loss="l", group="g", choice=c, seed=s, score=v) for c, v, s in runs]
        ... )
        >>> select(table, "score")["choice"].tolist()
        ['b', 'b']
    """
    kept = []
    for _, group in table.groupby(list(keys), sort=False):
        if group["choice"].nunique() > 1:
            if by not in group or group[by].isna().any():
                known = sorted(name for name in table if str(name).startswith("validation_"))
                raise ValueError(
                    f"report.select_by: not all runs have the metric {by!r}, which chooses among the searched values. "
                    f"They have {', '.join(known) or 'none of validation'}."
                )
            means = group.groupby("choice", sort=False)[by].agg(["count", "mean"])
            best = means.sort_values(["count", "mean"], ascending=False, kind="stable").index[0]
            group = group[group["choice"] == best]
        kept.append(group)
    return pd.concat(kept) if kept else table


def _row(work_list: WorkList, status: RunStatus) -> dict[str, Any]:
    run = status.run
    result = read_result(work_list.run_folder(run)) if status.state == "finished" else None
    row: dict[str, Any] = {
        "id": run.id,
        "corpus": run.corpus,
        "loss": run.loss,
        "group": run.setting,
        "seed": run.seed,
        "choice": json.dumps(run.choice),
        "arguments": json.dumps(run.arguments),
        "state": status.state,
        "attempts": status.attempts,
        "error": status.error.strip().splitlines()[-1] if status.error else None,
        "started": _time(result["started"] if result else status.started),
        "finished": _time(result["finished"]) if result else None,
    }
    settings = dict(run.arguments) if result is None else {**result["settings"], **run.arguments}
    row |= dict(result["metrics"]) if result else {}
    row |= {SETTING + name: value for name, value in scalars(settings)}
    if result:
        row |= {SECONDS + name: value for name, value in result["seconds"].items()}
        row |= {VERSION + name: value for name, value in result["versions"].items()}
        row |= {MACHINE + name: value for name, value in result["machine"].items()}
    return row


def scalars(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by dotted name; lists as JSON.

    Examples:
        >>> list(scalars({"loss": "reg", "loss_kwargs": {"alpha": 1}}))
        [('loss', 'reg'), ('loss_kwargs.alpha', 1)]
    """
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from scalars(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", json.dumps(value) if isinstance(value, list) else value


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")
