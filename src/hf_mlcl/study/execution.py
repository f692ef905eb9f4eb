"""One run, by way of `hf_mlcl.experiments`: a function of its settings, whose result appears whole in its folder."""

from __future__ import annotations

import functools
import json
import os
import platform
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from filelock import Timeout

from hf_mlcl.files import HIDDEN_FOLDER, write_json
from hf_mlcl.study.results import read_failure, read_result, run_lock
from hf_mlcl.study.specification import Run
from hf_mlcl.versions import library_versions, processor_name

if TYPE_CHECKING:
    from hf_mlcl.data.own import OwnData
    from hf_mlcl.experiments import Recipe
    from hf_mlcl.experiments.dry_run import DryRun

Runner = Callable[[Run, Path], Mapping[str, Any]]
"""Does a run in a folder of its own, where it may find what an interrupted attempt left, and returns ``metrics``,
``seconds`` (mappings from names to numbers) and, if it likes, ``settings``."""

QUIET = {"report_to": "none", "disable_tqdm": True, "export": False}
"""A run's output is a file: no progress bars in it, nothing sent to a tracker, and nothing written for other people,
unless the study file says so."""
OF_THE_MACHINE = ("data_dir", "tf32", "deepspeed")
"""Arguments that only the machine which does the runs can meet: studies are planned on others too."""
PATHS = ("corpus", "data_dir", "backbone", "backbone_weights")
"""Arguments that may name places which differ from machine to machine, by environment variables."""
USED = "used_"
"""Before the name of a path that was stated by a variable: the name of the file or folder that it was."""
LAUNCHER_VARIABLES = ("LOCAL_RANK", "WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
"""What accelerate takes for a sign that processes train together."""


@dataclass(frozen=True)
class Job:
    """A run that is to be done in a folder (an absolute path)."""

    run: Run
    folder: Path
    runner: Runner
    keep: str
    failure: dict[str, Any] | None = None  # when it was decided to do it; with another, it has been tried since


def do(job: Job, wait: bool = False) -> None:
    """Do a run in a process of its own: it prints to the run's log from now on.

    The result or the failure is written, unless the run has been done since, or another process is at it. With `wait`,
    the end of that process is awaited, and what it has not done is done.
    """
    with _locked(job, wait) as is_open:
        log = os.open(job.folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for stream in (1, 2):
            os.dup2(log, stream)
        if is_open:
            _attempt(job)
        if read_result(job.folder):
            (job.folder / "failure.json").unlink(missing_ok=True)
            _clean(job.folder / "work", job.keep)


@contextmanager
def _locked(job: Job, wait: bool = False) -> Iterator[bool]:
    """Hold the lock of a job; whether it is still to be done."""
    try:
        lock = run_lock(job.folder).acquire(blocking=wait)
    except Timeout:
        yield False
        return
    with lock:
        yield read_result(job.folder) is None and read_failure(job.folder) == job.failure


def _attempt(job: Job) -> None:
    print(f"--- {_now()}, {job.run.title}", flush=True)
    begun, before = time.perf_counter(), _cpu_seconds()
    work = job.folder / "work"
    work.mkdir(exist_ok=True)
    goes_on = any(work.iterdir())
    try:
        outcome = job.runner(job.run, work)
    except Exception:
        print(traceback.format_exc(), flush=True)
        _write_failure(job, traceback.format_exc())
        return
    import torch

    cpu = f"CPU ({processor_name()}), {torch.get_num_threads()} threads"
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else cpu
    memory = (torch.cuda.max_memory_reserved() if torch.cuda.is_available() else 0) or peak_memory()
    seconds = {**outcome.get("seconds", {}), "total": time.perf_counter() - begun}
    result = {
        "metrics": {name: float(value) for name, value in outcome["metrics"].items()},
        "seconds": seconds if goes_on else {**seconds, "cpu": _cpu_seconds() - before},  # not of a part of a run
        "settings": outcome.get("settings", job.run.arguments),
        "finished": _now(),
        "versions": library_versions(),
        "machine": {"host": platform.node(), "device": device, "memory_gb": memory / 1e9},
    }
    write_json(job.folder / "result.json", result)


def _cpu_seconds() -> float:
    """Of this process on all cores, and of its children that have ended, such as the workers of a loader."""
    return float(sum(psutil.Process().cpu_times()[:4]))


def peak_memory() -> int:
    """The most memory in bytes that this process has had (on Linux, since its peak was reset)."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    for line in (line for line in lines if line.startswith("VmHWM")):
        return int(line.split()[1]) * 1024
    facts = psutil.Process().memory_info()
    if hasattr(facts, "peak_wset"):  # Windows
        return int(facts.peak_wset)
    import resource

    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


def record_failure(job: Job, error: str) -> None:
    """Write down that the process of a job has died, unless another has gone on with it since."""
    with _locked(job) as is_open:
        if is_open:
            _write_failure(job, error)


def _write_failure(job: Job, error: str) -> None:
    attempts = 1 + (job.failure["attempts"] if job.failure else 0)
    write_json(job.folder / "failure.json", {"error": error, "attempts": attempts})


def _clean(work: Path, keep: str) -> None:
    """Delete what a finished run no longer needs; small files stay, and the hidden folder, by which we know ours."""
    for path in work.iterdir() if work.exists() else ():
        checkpoint = path.name.startswith(("checkpoint-", "damaged-checkpoint-"))
        needless = {"results": path.name != HIDDEN_FOLDER, "models": checkpoint}.get(keep, False)
        if needless and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)


def _now() -> str:
    """For people to read: nothing is decided by it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def run_experiment_of(run: Run, folder: Path) -> Mapping[str, Any]:
    """Train and evaluate, going on from the last checkpoint that an interrupted attempt completed.

    `folder` gets everything that `run_experiment` saves; ``settings`` are all, also those that the file leaves alone.
    """
    import datasets
    from transformers.utils import logging

    from hf_mlcl.experiments import build_experiment, run_experiment
    from hf_mlcl.experiments.checkpoints import clear_broken_checkpoints
    from hf_mlcl.training.checkpoints import last_whole_checkpoint

    datasets.disable_progress_bars()
    logging.disable_progress_bar()  # of huggingface_hub too; the trainer's own is a matter of its arguments
    clear_broken_checkpoints(folder)
    resume = {"resume_from_checkpoint": "last"} if last_whole_checkpoint(folder) else {}
    settings = {**QUIET, **run.arguments, "output_dir": str(folder), **resume}
    settings |= paths_of(settings)
    own = own_data_of(settings)
    if own is not None and has_other_data(folder, own):
        settings |= {"resume_from_checkpoint": None, "overwrite": True}  # it knows rows that are for testing now
    result = run_experiment(*build_experiment(recipe_of(settings), settings), own and own.splits)
    # HF counts the training loss from where a training was resumed: it would depend on interruptions.
    metrics = {name: value for name, value in result.metrics.items() if name != "train_loss"}
    as_stated = {name: run.arguments[name] for name in PATHS if name in run.arguments}  # on any machine
    as_stated |= {f"{USED}{name}": Path(settings[name]).name for name, path in as_stated.items() if "$" in str(path)}
    known = {name: value for name, value in result.settings.items() if name not in ("output_dir", "logging_dir")}
    return {"metrics": metrics, "seconds": result.seconds, "settings": known | as_stated}


def has_other_data(folder: Path, own: OwnData) -> bool:
    """Whether a run was interrupted in a folder while its data, one's own, were others than they are now."""
    from hf_mlcl.data.own import data_fingerprint
    from hf_mlcl.experiments.output_folder import OutputFolder
    from hf_mlcl.experiments.results import DATA_FINGERPRINT

    before = (OutputFolder(folder).interrupted() or {}).get(DATA_FINGERPRINT)
    return before is not None and before != data_fingerprint(own.splits)


def own_data_of(settings: Mapping[str, Any]) -> OwnData | None:
    """The data of a run where they are the user's own, as its backbone reads them; they are read once."""
    from hf_mlcl.data import list_corpora
    from hf_mlcl.experiments.inputs import OWN_DATA

    if settings["corpus"] in list_corpora():
        return None
    how = {name: settings.get(name) for name in (*OWN_DATA, "trust_remote_code")}
    paths = paths_of(settings)
    return _read(paths["corpus"], json.dumps({**how, "backbone": paths.get("backbone")}))


@functools.lru_cache(maxsize=8)
def _read(source: str, settings: str) -> OwnData:
    from hf_mlcl.experiments.own import read_for

    return read_for(source, json.loads(settings))


def recipe_of(settings: Mapping[str, Any]) -> Recipe:
    """What a run's settings go over: the paper's for a corpus; for data of your own, those of `hf-mlcl train`."""
    from hf_mlcl.experiments import own_recipe, study_recipe

    own, corpus = own_data_of(settings), str(settings["corpus"])
    if own is None:
        return study_recipe(corpus)
    return own_recipe(own, corpus, paths_of(settings).get("backbone"), settings.get("max_train_samples"))


def paths_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """Those of the settings that are paths, `expanded`."""
    return {name: expanded(settings[name], name) for name in PATHS if settings.get(name)}


def expanded(path: str, name: str = "data_dir") -> str:
    """A path with ``~`` and variables filled in: ``$DATA/aapd`` names one run on machines with different folders."""
    full = os.path.expanduser(os.path.expandvars(path))
    if "$" in full:
        variable = full[full.index("$") :].split("/")[0]
        raise ValueError(
            f"{name} {path!r} names an environment variable that is not set here: {variable}. Set it before the "
            f"command ({variable.strip('${}')}=/path/to/it hf-mlcl study ...), or give a path: --set {name}=PATH."
        )
    return full


def check_arguments(run: Run) -> None:
    """Build the arguments of a run as `run_experiment_of` will; a ValueError says what is wrong with them."""
    from hf_mlcl.experiments import build_experiment
    from hf_mlcl.experiments.parsing import check_kind

    recipe, own = recipe_of(run.arguments), own_data_of(run.arguments)
    if own is not None:
        check_kind(run.arguments, own.modality, own.single_label)
    with _planned_settings(run) as settings:
        build_experiment(recipe, {**QUIET, **settings})


def dry_run_of(run: Run) -> DryRun:
    """Every setting of a run with its origin, its rows, steps and time."""
    from hf_mlcl.experiments.dry_run import dry_run

    recipe, own = recipe_of(run.arguments), own_data_of(run.arguments)
    modality, rows = (None, None) if own is None else (own.modality, own.sizes)
    with _planned_settings(run) as settings:
        return dry_run(recipe, settings, said_by="study", modality=modality, rows=rows)


@contextmanager
def _planned_settings(run: Run) -> Iterator[dict[str, Any]]:
    """Settings to build training arguments of, as if this process stood alone and had no GPU, leaving no trace.

    A process that a launcher started must not wait for others. And new arguments make accelerate forget its state,
    without which a trainer of this process cannot go on: it has no public way to keep it.
    """
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import patch_environment

    before = [(shared._shared_state, dict(shared._shared_state)) for shared in (AcceleratorState, PartialState)]
    with patch_environment(**dict.fromkeys(LAUNCHER_VARIABLES, "-1")):  # as if they were not set
        try:
            plain = {name: value for name, value in run.arguments.items() if name not in OF_THE_MACHINE}
            yield {**plain, "output_dir": "", "use_cpu": True}
        finally:
            for state, content in before:
                state.clear()
                state.update(content)
