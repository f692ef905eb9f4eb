"""One run, by way of `hf_mlcl.experiments`: the recipe of its corpus, changed by the study file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hf_mlcl.study.specification import Run

QUIET = {"report_to": "none", "disable_tqdm": True, "export": False}
"""A run's output is a file: no progress bars in it, nothing sent to a tracker, and nothing written for other people,
unless the study file says so."""


def run_experiment_of(run: Run, folder: Path) -> Mapping[str, Any]:
    """Train and evaluate, going on from the last checkpoint that an interrupted attempt completed.

    Args:
        run: The run.
        folder: Gets everything that `run_experiment` saves.

    Returns:
        Its ``metrics`` and ``seconds``, and all ``settings``, also those that the study file left as they are.
    """
    from hf_mlcl.experiments import build_experiment, run_experiment, study_recipe

    settings = {**QUIET, **run.arguments, "output_dir": str(folder), "resume_from_checkpoint": "last"}
    if settings.get("data_dir"):
        settings["data_dir"] = expanded(settings["data_dir"])
    result = run_experiment(*build_experiment(study_recipe(settings["corpus"]), settings))
    # HF counts the training loss from where a training was resumed: it would depend on interruptions.
    metrics = {name: value for name, value in result.metrics.items() if name != "train_loss"}
    return {"metrics": metrics, "seconds": result.seconds, "settings": result.settings}


def expanded(path: str) -> str:
    """A path with ``~`` and environment variables filled in.

    A run is known by what its study file says, so ``$DATA/aapd`` names the same run on machines that keep their data
    in different places.
    """
    full = os.path.expanduser(os.path.expandvars(path))
    if "$" in full:
        raise ValueError(f"data_dir {path!r} names an environment variable that is not set here.")
    return full
