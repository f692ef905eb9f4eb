"""What a study's folder holds, and every run as a row of a table.

::

    plan.json             the study: name, report, its runs with all that the file sets
    runs/ID/result.json   metrics, times, versions; a run that has a whole one is finished
    runs/ID/failure.json  the traceback of the last attempt, where that failed
    runs/ID/lock          held by the process that does the run; the system frees it, however the process ends
    runs/ID/log.txt       what the run printed
    runs/ID/work/         the run's own files: checkpoints, encoder, classifier
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout

from hf_mlcl.files import PLAN_FILE, RUNS_FOLDER, read_json, strict_json, whole_file, write_json
from hf_mlcl.study.specification import LOWER_IS_BETTER, ReportOptions, Run, Study, StudyError, flat

logger = logging.getLogger(__name__)

RESULT = {"metrics": dict, "seconds": dict, "settings": dict, "finished": str, "versions": dict, "machine": dict}
STATES = ("finished", "running", "waiting", "failed")
ARGUMENT = "argument."
"""How the columns of settings begin; metrics have their plain names."""


def write_plan(study: Study) -> None:
    """Write the study down in its folder; results that are there stay."""
    plan = {**dataclasses.asdict(study), "output_dir": None}
    if read_json(study.output_dir / PLAN_FILE) != json.loads(strict_json(plan)):
        write_json(study.output_dir / PLAN_FILE, plan)


def planned_study(folder: str | Path) -> Study:
    """The study that was planned last in a folder; a `StudyError` where none was."""
    path = Path(folder) / PLAN_FILE
    if not path.exists():
        raise StudyError(f"{folder} holds no study yet: start it with `hf-mlcl study run FILE`.")
    plan = read_json(path, _warn_of_damage, **{field.name: object for field in dataclasses.fields(Study)})
    if plan is None or not all(isinstance(run, dict) for run in plan["runs"]):
        raise StudyError(f"{path} is damaged: `hf-mlcl study run FILE` writes it again.")
    given = plan["report"].items()
    options: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given}
    runs = tuple(Run(**run) for run in plan["runs"])
    return Study(**{**plan, "output_dir": Path(folder), "report": ReportOptions(**options), "runs": runs})


def read_result(folder: Path) -> Any:
    """The result in a run's folder; None where there is none, or a damaged one: the run then counts as not done."""
    path = folder / "result.json"
    result = read_json(path, _warn_of_damage, **RESULT)
    if result and not all(value is None or isinstance(value, Real) for value in result["metrics"].values()):
        return _warn_of_damage(path, "its metrics are not numbers by name")
    return result


def read_failure(folder: Path) -> Any:
    """How the last attempt failed (``error``), and how many did (``attempts``); None where none has."""
    return read_json(folder / "failure.json", _warn_of_damage, error=str, attempts=int)


def run_lock(folder: Path) -> FileLock:
    """The lock of a run's folder: who holds it does the run."""
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / "lock")


def run_state(folder: Path) -> str:
    """One of `STATES`."""
    if read_result(folder):
        return "finished"
    if (folder / "lock").exists():
        try:
            run_lock(folder).acquire(blocking=False).lock.release()
        except Timeout:
            return "running"
    return "failed" if read_failure(folder) else "waiting"


@functools.cache  # once, however often it is looked at
def _warn_of_damage(path: Path, why: str) -> None:
    logger.warning("%s is damaged and not used (%s). `hf-mlcl study run FILE` makes it again.", path, why)


def study_table(study: Study) -> pd.DataFrame:
    """A row for each run, in the order of the study, whether it is finished or not, from the files in its folder.

    Columns: ``id``, ``corpus``, ``loss``, ``setting``, ``seed``, ``choice`` and ``arguments`` (the searched values, and
    all that the study file sets, as JSON), ``state``, ``error``, ``finished``; then the metrics under their own names,
    and ``argument.…`` (all settings), ``seconds.…``, ``version.…``, ``machine.…``.
    """
    return pd.DataFrame([_row(run, study.run_folder(run)) for run in study.runs])


def _row(run: Run, folder: Path) -> dict[str, Any]:
    state = run_state(folder)
    result = read_result(folder) if state == "finished" else None
    failure = read_failure(folder) if state == "failed" else None
    row: dict[str, Any] = {
        **{name: getattr(run, name) for name in ("id", "corpus", "loss", "setting", "seed")},
        "choice": json.dumps(run.choice),
        "arguments": json.dumps(run.arguments),
        "state": state,
        "error": failure["error"].strip().splitlines()[-1] if failure else None,
        "finished": result["finished"] if result else None,
    }
    settings = dict(result["settings"] if result else {})  # which say what came of an "auto" in the file
    settings |= {name: value for name, value in run.arguments.items() if value != "auto" or name not in settings}
    parts = {ARGUMENT: {name: value for name, value in flat(settings) if value is not None and value != {}}}
    if result:
        row |= result["metrics"]
        parts |= {"seconds.": result["seconds"], "version.": result["versions"], "machine.": result["machine"]}
    for prefix, values in parts.items():
        row |= {prefix + name: json.dumps(v) if isinstance(v, list | dict) else v for name, v in values.items()}
    return row


def kept_files(study: Study, run_id: str) -> dict[str, Any]:
    """What a run has written beside its result: ``labels`` (name, training rows, F1) and the ``history`` of its log.

    Both are empty where it has kept nothing, or where that is damaged.
    """
    from hf_mlcl.experiments.results import METRICS_FILE

    path = study.output_dir / RUNS_FOLDER / run_id / "work" / METRICS_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        labels = [(str(one["label"]), int(one["train_rows"]), float(one["f1"])) for one in content["per_label"]]
        history = [
            {name: float("nan" if value is None else value) for name, value in log.items()}  # which JSON does not have
            for log in content.get("history", ())
        ]
        return {"labels": labels, "history": [log for log in history if {"step", "loss"} <= log.keys()]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if not isinstance(error, FileNotFoundError):
            logger.warning("%s is damaged and not used: %s", path, error)
        return {"labels": [], "history": []}


def finished(table: pd.DataFrame) -> pd.DataFrame:
    """The rows with results."""
    return table[table["state"] == "finished"]


def save_table(table: pd.DataFrame, folder: str | Path) -> list[Path]:
    """Write ``runs.parquet`` and ``runs.csv``, each whole or not at all, and return their paths."""
    uniform = table.copy()
    for name in uniform.columns:
        types = {type(value) for value in uniform[name].dropna()}
        if len(types) > 1 and not types <= {int, float}:  # Parquet has one type per column
            uniform[name] = [None if pd.isna(value) else str(value) for value in uniform[name]]
    paths = [Path(folder) / "runs.parquet", Path(folder) / "runs.csv"]
    for path, write in zip(paths, (uniform.to_parquet, uniform.to_csv), strict=True):
        with whole_file(path) as draft:
            write(draft, index=False)
    return paths


def select(table: pd.DataFrame, by: str, keys: Sequence[str] = ("corpus", "loss", "setting")) -> pd.DataFrame:
    """Of the searched values keep those with the best mean of a metric over seeds, among finished runs with equal keys.

    Values that have more seeds finished go before those that have fewer, so that a lucky first seed does not win.

    Examples:
        >>> runs = [("a", 0.1, 0), ("a", 0.3, 1), ("b", 0.25, 0), ("b", 0.25, 1)]
        >>> table = pd.DataFrame([dict(loss="reg", choice=c, seed=s, score=v) for c, v, s in runs])
        >>> select(table, "score", ["loss"])["choice"].tolist()
        ['b', 'b']
    """
    kept = []
    for _, rows in table.groupby(list(keys), sort=False):
        if rows["choice"].nunique() > 1:
            if by not in rows or rows[by].isna().any():
                known = sorted(name for name in table if str(name).startswith("validation_"))
                raise ValueError(
                    f"report.select_by: not all runs have the metric {by!r}, which chooses among the searched values. "
                    f"They have {', '.join(known) or 'none of validation'}."
                )
            means = rows.groupby("choice", sort=False)[by].agg(["count", "mean"])
            lower = by.endswith(LOWER_IS_BETTER)
            best = means.sort_values(["count", "mean"], ascending=[False, lower], kind="stable").index[0]
            rows = rows[rows["choice"] == best]
        kept.append(rows)
    return pd.concat(kept) if kept else table
