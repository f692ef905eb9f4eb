"""Studies whose results are made by hand, so that their tables and figures are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_mlcl.study import ReportOptions, Run, Study, WorkList
from hf_mlcl.study.worklist import Worker, write_json


def result(metrics: Mapping[str, float], settings: Mapping[str, Any], seconds: float = 60.0) -> dict[str, Any]:
    return {
        "metrics": dict(metrics),
        "seconds": {"train": seconds / 2, "total": seconds},
        "settings": dict(settings),
        "started": 1.8e9,
        "finished": 1.8e9 + seconds,
        "attempt": 1,
        "versions": {"hf-mlcl": "0.1.0", "torch": "2.15.0"},
        "machine": {"host": "made-up", "device": "CPU"},
    }


def finished_study(folder: Path, runs: Sequence[tuple[Run, Mapping[str, float]]], **options: Any) -> Study:
    """A study on disk whose runs have these metrics; those with none are not finished."""
    study = Study("made by hand", folder, tuple(run for run, _ in runs), "A & B.", ReportOptions(**options))
    work_list = WorkList(folder)
    work_list.plan(study)
    for run, metrics in runs:
        if metrics:
            claim = work_list.claim(run, Worker.this())
            write_json(claim.folder / "result.json", result(metrics, run.arguments))
            claim.end("finished")
    return study


def run(
    corpus: str, loss: str, seed: int, setting: str = "default", choice: Mapping[str, Any] | None = None, **more: Any
):
    arguments = {"corpus": corpus, "loss": loss, "seed": seed, **more}
    return Run(corpus, loss, setting, seed, arguments, dict(choice or {}))
