"""One run, by way of `hf_mlcl.experiments`: the recipe of its corpus, changed by the study file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_mlcl.study.environment import environment
from hf_mlcl.study.specification import Run

if TYPE_CHECKING:
    from hf_mlcl.experiments.dry_run import DryRun

QUIET = {"report_to": "none", "disable_tqdm": True, "export": False}
"""A run's output is a file: no progress bars in it, nothing sent to a tracker, and nothing written for other people,
unless the study file says so."""

OF_THE_MACHINE = ("data_dir", "tf32", "deepspeed")
"""Arguments that only the machine which does the runs can meet: studies are planned on others too."""
LAUNCHER_VARIABLES = ("LOCAL_RANK", "WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
"""What accelerate takes for a sign that processes train together."""


def run_experiment_of(run: Run, folder: Path) -> Mapping[str, Any]:
    """Train and evaluate, going on from the last checkpoint that an interrupted attempt completed.

    Args:
        run: The run.
        folder: Gets everything that `run_experiment` saves.

    Returns:
        Its ``metrics`` and ``seconds``, and all ``settings``, also those that the study file left as they are.
    """
    from hf_mlcl.experiments import build_experiment, run_experiment, study_recipe
    from hf_mlcl.experiments.checkpoints import clear_broken_checkpoints
    from hf_mlcl.training.checkpoints import last_whole_checkpoint

    _disable_progress_bars()
    clear_broken_checkpoints(folder)
    resume = {"resume_from_checkpoint": "last"} if last_whole_checkpoint(folder) else {}
    settings = {**QUIET, **run.arguments, "output_dir": str(folder), **resume}
    if settings.get("data_dir"):
        settings["data_dir"] = expanded(settings["data_dir"])
    result = run_experiment(*build_experiment(study_recipe(settings["corpus"]), settings))
    # HF counts the training loss from where a training was resumed: it would depend on interruptions.
    metrics = {name: value for name, value in result.metrics.items() if name != "train_loss"}
    return {"metrics": metrics, "seconds": result.seconds, "settings": result.settings}


def _disable_progress_bars() -> None:
    """Those of the libraries below; the trainer's own is a matter of its arguments."""
    import datasets
    from transformers.utils import logging

    datasets.disable_progress_bars()
    logging.disable_progress_bar()  # of huggingface_hub too


def check_arguments(run: Run) -> None:
    """Build the arguments of a run as `run_experiment_of` will, without a look at data, models or devices.

    Raises:
        ValueError: What is wrong with them.
    """
    from hf_mlcl.experiments import build_experiment, study_recipe

    with _without_this_machine():
        build_experiment(study_recipe(str(run.arguments["corpus"])), {**QUIET, **_planned_settings(run)})


def dry_run_of(run: Run) -> DryRun:
    """Every setting of a run with its origin, its rows, steps and time."""
    from hf_mlcl.experiments import study_recipe
    from hf_mlcl.experiments.dry_run import dry_run

    with _without_this_machine():
        return dry_run(study_recipe(str(run.arguments["corpus"])), _planned_settings(run), said_by="study")


def _planned_settings(run: Run) -> dict[str, Any]:
    settings = {**run.arguments, "output_dir": "", "use_cpu": True}  # a GPU is the run's own process's
    return {name: value for name, value in settings.items() if name not in OF_THE_MACHINE}


@contextmanager
def _without_this_machine() -> Iterator[None]:
    # A worker that a launcher started must not wait for others here: workers do not know each other.
    with environment(dict.fromkeys(LAUNCHER_VARIABLES)), _accelerate_as_it_was():
        yield


@contextmanager
def _accelerate_as_it_was() -> Iterator[None]:
    """New training arguments make accelerate forget its state, without which a trainer of this process cannot go on."""
    from accelerate.state import AcceleratorState, PartialState

    before = [(shared._shared_state, dict(shared._shared_state)) for shared in (AcceleratorState, PartialState)]
    try:
        yield
    finally:
        for state, content in before:
            state.clear()
            state.update(content)


def expanded(path: str) -> str:
    """A path with ``~`` and environment variables filled in.

    A run is known by what its study file says, so ``$DATA/aapd`` names the same run on machines that keep their data
    in different places.
    """
    full = os.path.expanduser(os.path.expandvars(path))
    if "$" in full:
        raise ValueError(f"data_dir {path!r} names an environment variable that is not set here.")
    return full
