"""Studies whose results are made by hand, so that their tables and figures are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_mlcl.files import write_json
from hf_mlcl.losses import on_logits_only
from hf_mlcl.study import ReportOptions, Run, Study
from hf_mlcl.study.results import write_plan


def result(metrics: Mapping[str, float], settings: Mapping[str, Any], seconds: float = 60.0) -> dict[str, Any]:
    """Of metrics those with a dot are of another part: ``seconds.cpu``, ``machine.memory_gb``."""
    parts = [(name.split("."), value) for name, value in metrics.items()]
    more = {part: {name[1]: value for name, value in parts if name[0] == part} for part in ("seconds", "machine")}
    return {
        "metrics": {name[0]: value for name, value in parts if len(name) == 1},
        "seconds": {"train": seconds / 2, "total": seconds, **more["seconds"]},
        "settings": dict(settings),
        "finished": "2027-01-15T08:00:00+00:00",
        "versions": {"hf-mlcl": "0.1.0", "torch": "2.15.0"},
        "machine": {"host": "made-up", "device": "CPU", **more["machine"]},
    }


def finished_study(folder: Path, runs: Sequence[tuple[Run, Mapping[str, float]]], **options: Any) -> Study:
    """A study on disk whose runs have these metrics; those with none are not finished."""
    study = Study("made by hand", folder, tuple(run for run, _ in runs), "A & B.", ReportOptions(**options))
    write_plan(study)
    for run, metrics in runs:
        if metrics:
            write_json(study.run_folder(run) / "result.json", result(metrics, run.arguments))
    return study


def fail(study: Study, run: Run, error: str) -> None:
    write_json(study.run_folder(run) / "failure.json", {"error": error, "attempts": 1})


def run(
    corpus: str, loss: str, seed: int, setting: str = "default", choice: Mapping[str, Any] | None = None, **more: Any
):
    arguments = {"corpus": corpus, "loss": loss, "seed": seed, **more}
    kind = "logit" if on_logits_only(loss) else "contrastive"
    return Run(corpus, loss, setting, seed, arguments, dict(choice or {}), kind)


def write_work(study: Study, one: Run, f1: Mapping[str, float]) -> None:
    """What a run leaves in its folder: the F1 of each label, and its training loss."""
    labels = [{"label": name, "train_rows": 10 * (i + 1), "f1": score} for i, (name, score) in enumerate(f1.items())]
    history = [{"step": step, "loss": 5 / step} for step in (10, 20, 30)]
    write_json(study.run_folder(one) / "work" / "metrics.json", {"per_label": labels, "history": history})
