"""Workers: they claim runs from the work list and do each in a process of its own.

A run that raises, crashes or is killed by the system ends that process only; it is written down as failed, and the
worker goes on. When a worker dies its runs' processes end too, so that nothing is computed that nobody waits for.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import multiprocessing.forkserver
import os
import platform
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock

from hf_mlcl.files import HIDDEN_FOLDER
from hf_mlcl.study.environment import environment
from hf_mlcl.study.execution import run_experiment_of
from hf_mlcl.study.specification import Run, Study
from hf_mlcl.study.worklist import (
    HEARTBEAT_SECONDS,
    LEASE_SECONDS,
    Claim,
    RunStatus,
    Worker,
    WorkList,
    read_result,
    write_json,
)
from hf_mlcl.versions import library_versions

Runner = Callable[[Run, Path], Mapping[str, Any]]
"""Does a run in a folder of its own, where it may find what an interrupted attempt left, and returns ``metrics``,
``seconds`` (mappings from names to numbers) and, if it likes, ``settings``."""

FORCED_END_SECONDS = 15.0


@dataclass
class Progress:
    """Where a study stands, as one call of `run_study` knows it.

    Attributes:
        total: Number of runs.
        finished: Of those, by whomever.
        failed: The same.
        running: Titles of the runs that this call is at.
    """

    total: int
    finished: int = 0
    failed: int = 0
    running: list[str] = field(default_factory=list)


def run_study(
    study: Study,
    *,
    workers: int | None = None,
    retry_failed: bool = False,
    lease: float = LEASE_SECONDS,
    runner: Runner = run_experiment_of,
    notify: Callable[[str, Progress], None] = lambda line, progress: None,
) -> Progress:
    """Do what is left of a study. May be called by any number of processes on any number of machines at once.

    Args:
        study: The study; its `output_dir` holds the work list.
        workers: Runs at a time in this call: one per GPU (each has its own), or one, if not given.
        retry_failed: Whether runs that failed before this call are tried once more.
        lease: See `hf_mlcl.study.worklist.WorkList`.
        runner: What does a run; must be importable from its module.
        notify: Gets a line and the progress whenever something happens.

    Returns:
        How the study stands when this call has nothing left to do. Runs may still be with other workers.

    Raises:
        KeyboardInterrupt: If interrupted or terminated; its runs are then free for others at once.
    """
    work = _Work(study, WorkList(study.output_dir, lease), runner, notify)
    work.list.plan(study)
    devices = visible_devices()
    slots = _slots(workers, devices)
    with _termination_as_interrupt():
        try:
            work.loop(slots, devices, retry_failed)
        except BaseException:
            work.give_up()
            raise
    work.look()
    return work.progress()


@dataclass
class _Job:
    claim: Claim
    process: Any
    slot: int
    since: float


class _Work:
    """One call of `run_study`."""

    def __init__(
        self, study: Study, work_list: WorkList, runner: Runner, notify: Callable[[str, Progress], None]
    ) -> None:
        self.study = study
        self.list = work_list
        self.runner = runner
        self.notify = notify
        self.me = Worker.this()
        self.jobs: list[_Job] = []
        self.settled: dict[str, str] = {}

    def loop(self, slots: int, devices: Sequence[str], retry_failed: bool) -> None:
        self.look()
        self.say(f"{len(self.study.runs)} runs, {self.progress().finished} of them finished")
        again = {run_id for run_id, state in self.settled.items() if state == "failed"} if retry_failed else set()
        attempts = {run.id: self.list.status(run).attempts for run in self.study.runs if run.id in again}
        for run_id in again:
            del self.settled[run_id]

        def retry(status: RunStatus) -> bool:  # once, even where several workers were asked to
            return attempts.get(status.run.id) == status.attempts

        context = _context(devices, self.runner)
        while True:
            while len(self.jobs) < slots and (claim := self.next_claim(retry)) is not None:
                slot = min(set(range(slots)) - {job.slot for job in self.jobs})
                self.start(context, claim, slot, slots, devices)
            if not self.jobs:
                return
            multiprocessing.connection.wait([job.process.sentinel for job in self.jobs], timeout=HEARTBEAT_SECONDS)
            for job in list(self.jobs):
                if not job.process.is_alive():
                    self.jobs.remove(job)
                    self.conclude(job)
                elif not job.claim.beat():
                    self.jobs.remove(job)
                    _end(job.process)
                    self.say(f"dropped {job.claim.run.title}: another worker has taken it over")

    def next_claim(self, retry: Callable[[RunStatus], bool]) -> Claim | None:
        mine = {job.claim.run.id for job in self.jobs}
        for run in self.study.runs:
            if run.id not in self.settled and run.id not in mine:
                claim = self.list.claim(run, self.me, retry)
                if claim is not None:
                    return claim
                self.settle(run)
        return None

    def settle(self, run: Run) -> None:
        state = self.list.status(run).state
        if state in ("finished", "failed"):
            self.settled[run.id] = state

    def look(self) -> None:
        """Learn what others have done."""
        for run in self.study.runs:
            if run.id not in self.settled:
                self.settle(run)

    def start(self, context: Any, claim: Claim, slot: int, slots: int, devices: Sequence[str]) -> None:
        with environment({"CUDA_VISIBLE_DEVICES": devices[slot % len(devices)]} if devices else {}):
            arguments = (claim, self.runner, self.study.keep, slots if not devices else 1, dict(os.environ))
            process = context.Process(target=_in_own_process, args=arguments, name=claim.run.id)
            process.start()
        self.jobs.append(_Job(claim, process, slot, time.monotonic()))
        self.say(f"started {claim.run.title}" + (f" (attempt {claim.attempt})" if claim.attempt > 1 else ""))

    def conclude(self, job: _Job) -> None:
        claim, seconds = job.claim, time.monotonic() - job.since
        status = self.list.status(claim.run)
        if status.state == "running":  # the process ended without a word
            claim.end("failed", _silent_end(job.process.exitcode, claim.folder / "log.txt"))
            status = self.list.status(claim.run)
        self.settle(claim.run)
        if status.state == "finished":
            self.say(f"finished {claim.run.title} in {seconds:.0f} s{self.scores(claim.run)}")
        else:
            last = (status.error or "").strip().splitlines()[-1:]
            self.say(f"FAILED {claim.run.title} after {seconds:.0f} s: {' '.join(last)} (see {claim.folder}/log.txt)")

    def scores(self, run: Run) -> str:
        (_, result), *_ = self.list.results([run])
        shown = [(name, result["metrics"].get(f"test_{name}")) for name in self.study.report.metrics]
        return "".join(f", {name} {value:.4f}" for name, value in shown if value is not None)

    def give_up(self) -> None:
        for job in self.jobs:
            _end(job.process)
            if self.list.status(job.claim.run).state == "running":
                job.claim.end("interrupted")
        self.jobs.clear()

    def progress(self) -> Progress:
        states = list(self.settled.values())
        running = [job.claim.run.title for job in self.jobs]
        return Progress(len(self.study.runs), states.count("finished"), states.count("failed"), running)

    def say(self, line: str) -> None:
        self.notify(line, self.progress())


# In a run's own process -----------------------------------------------------------------------------------------------


def _in_own_process(claim: Claim, runner: Runner, keep: str, share: int, environment: Mapping[str, str]) -> None:
    os.environ.update(environment)  # the server that processes are copied from has that of its own beginning
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker, which then ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    log = os.open(claim.folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    if share > 1 and "OMP_NUM_THREADS" not in os.environ:
        import torch

        torch.set_num_threads(max(1, torch.get_num_threads() // share))
    # An orphan of a killed worker may still be about to end; on one machine this keeps the two apart.
    with FileLock(claim.folder / "work.lock"):
        if not read_result(claim.folder):
            _run_and_record(claim, runner)
        if read_result(claim.folder):
            _clean(claim.folder / "work", keep)


def _run_and_record(claim: Claim, runner: Runner) -> None:
    print(f"--- attempt {claim.attempt}, {time.strftime('%Y-%m-%d %H:%M:%S')}, {claim.run.title}", flush=True)
    begun, clock = time.time(), time.perf_counter()
    work = claim.folder / "work"
    work.mkdir(exist_ok=True)
    try:
        outcome = runner(claim.run, work)
    except Exception:
        error = traceback.format_exc()
        print(error, flush=True)
        claim.end("failed", error)
        return
    result = {
        "metrics": {name: float(value) for name, value in outcome["metrics"].items()},
        "seconds": {**outcome.get("seconds", {}), "total": time.perf_counter() - clock},
        "settings": outcome.get("settings", claim.run.arguments),
        "started": begun,
        "finished": time.time(),
        "attempt": claim.attempt,
        "versions": library_versions(),
        "machine": machine(),
    }
    write_json(claim.folder / "result.json", result)
    claim.end("finished")


def _clean(work: Path, keep: str) -> None:
    """Delete what a finished run no longer needs; small files always stay."""
    folders = [path for path in work.iterdir() if path.is_dir()] if work.exists() else []
    for path in folders:
        if path.name == HIDDEN_FOLDER:  # small files, by which a later attempt knows what an earlier one wrote
            continue
        if keep == "results" or (keep == "models" and path.name.startswith(("checkpoint-", "damaged-checkpoint-"))):
            shutil.rmtree(path, ignore_errors=True)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def machine() -> dict[str, str]:
    """Where a run takes place."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    device = gpu or f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    return {"host": platform.node(), "device": device}


# Around it ------------------------------------------------------------------------------------------------------------


def visible_devices() -> list[str]:
    """The GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    import torch

    count = torch.cuda.device_count()
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return named[:count] if named else [str(index) for index in range(count)]


def _slots(workers: int | None, devices: Sequence[str]) -> int:
    if workers is None:
        return max(1, len(devices))
    if workers < 1:
        raise ValueError(f"workers must be at least 1; got {workers}.")
    return workers


def _context(devices: Sequence[str], runner: Runner) -> Any:
    """How processes are started.

    Each is a fresh interpreter, but on Linux without a GPU a copy of a server that has the imports behind it: there
    runs may be short, and importing would take most of their time. CUDA must not be copied.
    """
    if devices or sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    heavy = ["hf_mlcl.experiments.running"] if runner is run_experiment_of else []
    context.set_forkserver_preload([*heavy, __name__, runner.__module__])
    # The server looks for modules where a new interpreter would, not where this one does.
    with environment({"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}):
        multiprocessing.forkserver.ensure_running()
    return context


def _end(process: Any) -> None:
    process.terminate()
    process.join(FORCED_END_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()


def _silent_end(exit_code: int | None, log: Path) -> str:
    how = f"exit code {exit_code}"
    if exit_code is not None and exit_code < 0:
        name = signal.Signals(-exit_code).name
        how = f"signal {name}" + (": perhaps the machine had no memory left" if name == "SIGKILL" else "")
    tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:] if log.exists() else []
    return "\n".join([*tail, f"The run's process ended with {how}."])


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """Schedulers announce the end with SIGTERM: treat it like Ctrl-C, which gives the runs back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(signum: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
