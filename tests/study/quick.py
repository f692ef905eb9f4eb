"""A runner that does in milliseconds what an experiment does in minutes, and writes down when it began and ended."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

from hf_mlcl.study import ReportOptions, Run, Study


def make_study(
    folder: Path, corpora=("toy_text", "toy_images"), losses=("bce", "wo_reg", "reg"), seeds=(0, 1), **report
):
    """A study whose runs are made by hand, without a file."""
    runs = [
        Run(corpus, loss, "default", seed, {"corpus": corpus, "loss": loss, "seed": seed})
        for seed in seeds
        for corpus in corpora
        for loss in losses
    ]
    return Study("made by hand", folder, tuple(runs), report=ReportOptions(**report))


def scores(run: Run) -> dict[str, float]:
    number = int(hashlib.sha256(run.id.encode()).hexdigest()[:8], 16) / 16**8
    return {"test_micro_f1": number, "test_macro_f1": number / 2, "validation_micro_f1": number / 3}


def note(run: Run, what: str) -> None:
    with open(os.environ["JOURNAL"], "a") as journal:
        journal.write(f"{what} {run.id} {os.getpid()} {os.getppid()}\n")


def journal(path: Path, what: str) -> list[str]:
    """The runs that began or ended, in order."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.split()[1] for line in lines if line.startswith(what)]


def commands(path: Path) -> set[str]:
    """The processes that runs were begun by, where each command copies itself for them."""
    return {line.split()[3] for line in path.read_text().splitlines() if line.startswith("began")}


def quick_runner(run: Run, folder: Path):
    """Takes SECONDS; all runs after the first HOLD_AFTER ones take until they are killed.

    With COMMANDS, runs wait until so many commands have begun one.
    """
    start = time.perf_counter()
    note(run, "began")
    path = Path(os.environ["JOURNAL"])
    while len(journal(path, "began")) > int(os.environ.get("HOLD_AFTER", sys.maxsize)):
        time.sleep(0.01)
    while len(commands(path)) < int(os.environ.get("COMMANDS", "1")):
        time.sleep(0.01)
    time.sleep(float(os.environ.get("SECONDS", "0")))
    trouble = json.loads(os.environ.get("TROUBLE", "{}")).get(run.loss)
    if trouble == "raise":
        raise RuntimeError("the loss is not a number")
    if trouble == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    (folder / "encoder").mkdir(exist_ok=True)
    (folder / "checkpoint-1").mkdir(exist_ok=True)
    note(run, "ended")
    return {"metrics": scores(run), "seconds": {"train": time.perf_counter() - start}}
