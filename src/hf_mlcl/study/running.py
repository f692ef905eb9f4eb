"""A study's runs, each in a process of its own: a pool on this machine, or Ray's workers on many.

What is left to do is what has no result. There are no claims and no clocks: the process that does a run holds the lock
in its folder, which the system frees when the process ends, however it ends.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import multiprocessing.forkserver
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from hf_mlcl.study.execution import Job, Runner, do, paths_of, record_failure, run_experiment_of
from hf_mlcl.study.on_ray import on_ray
from hf_mlcl.study.results import read_failure, read_result, run_state, write_plan
from hf_mlcl.study.specification import Study


@dataclass
class Progress:
    """Where the runs of one call of `run_study` stand: how many there are, finished (by whomever) and failed."""

    total: int
    finished: int = 0
    failed: int = 0


Notify = Callable[[str, Progress], None]


def run_study(
    study: Study,
    *,
    workers: int | None = None,
    shard: tuple[int, int] = (1, 1),
    ray: bool | str = False,
    retry_failed: bool = False,
    runner: Runner = run_experiment_of,
    notify: Notify = lambda line, progress: None,
) -> Progress:
    """Do what is left of a study. Calls at the same time share the work: a run that another is at is left to it.

    Args:
        study: The study; its `output_dir` gets the results.
        workers: Runs at a time: one per GPU (each has its own), or one, if not given.
        shard: ``(k, n)``: every n-th run, beginning with the k-th, for n machines that do not know each other.
        ray: True for the Ray cluster of this machine, which is started where there is none; or a cluster's address.
        retry_failed: Whether runs that failed before this call are tried once more.
        runner: What does a run; must be importable from its module.
        notify: Gets a line and the progress whenever something happens.

    Returns:
        How the runs stand when this call has nothing left to do. Some may still be with other calls.
    """
    number, shards = shard
    if not 1 <= number <= shards:
        raise ValueError(f"shard must be (k, n) with k from 1 to n; got {shard}.")
    if workers is not None and (ray or workers < 1):
        problem = "cannot be given with ray, which decides it itself" if ray else "must be at least 1"
        raise ValueError(f"workers {problem}; got {workers}.")
    write_plan(study)
    runs = study.runs[number - 1 :: shards]
    before = {run.id: read_failure(study.run_folder(run)) for run in runs}
    progress = Progress(len(runs))

    def left() -> list[Job]:
        """What has no result, nor failed in this call or, unless it is to be retried, before it."""
        progress.finished = progress.failed = 0
        jobs = []
        for run in runs:
            folder = study.run_folder(run)
            failure = read_failure(folder)
            if read_result(folder):
                progress.finished += 1
            elif failure and not (retry_failed and failure == before[run.id]):
                progress.failed += 1
            else:
                jobs.append(Job(run, folder.absolute(), runner, study.keep, failure))
        return jobs

    jobs = left()
    if not ray and runner is run_experiment_of:  # on Ray, variables are those of the machine that does the run
        for job in jobs:
            paths_of(job.run.arguments)
    notify(f"{len(runs)} runs, {progress.finished} of them finished", progress)
    while jobs:
        ended = on_ray(jobs, ray) if ray else _in_pool(jobs, workers, lambda line: notify(line, progress))
        for job, trouble in ended:
            if trouble:
                record_failure(job, trouble)
            left()
            notify(_ending(job, study.report.metrics), progress)
        jobs = [job for job in left() if run_state(job.folder) != "running"]  # another call was at them and is gone
    return progress


def _ending(job: Job, metrics: Sequence[str]) -> str:
    result, failure = read_result(job.folder), read_failure(job.folder)
    if result:
        shown = [(name, result["metrics"].get(f"test_{name}")) for name in metrics]
        scores = "".join(f", {name} {value:.4f}" for name, value in shown if value is not None)
        return f"finished {job.run.title} in {result['seconds']['total']:.0f} s{scores}"
    if failure and failure != job.failure:
        error = failure["error"].strip().splitlines()[-1]
        return f"FAILED {job.run.title}: {error} (see {job.folder}/log.txt)"
    return f"left {job.run.title} to another command"


def _in_pool(jobs: Sequence[Job], workers: int | None, say: Callable[[str], None]) -> Iterator[tuple[Job, str | None]]:
    """Do jobs on this machine, a process each, and yield each at its end, with what was wrong where it died."""
    import torch
    from accelerate.utils import patch_environment

    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    devices = (named or [str(index) for index in range(torch.cuda.device_count())])[: torch.cuda.device_count()]
    slots = list(range(workers or max(1, len(devices))))
    share = 1 if devices else len(slots)
    runner = jobs[0].runner
    heavy = ["hf_mlcl.experiments.running"] if runner is run_experiment_of else []
    context = processes(*heavy, runner.__module__, cuda=bool(devices))
    waiting = list(jobs)
    running: dict[Any, tuple[Any, Job, int]] = {}
    try:
        while waiting or running:
            while waiting and slots:
                job = waiting.pop(0)
                if run_state(job.folder) == "running":
                    yield job, None
                    continue
                slot = slots.pop(0)
                with patch_environment(**{"CUDA_VISIBLE_DEVICES": devices[slot % len(devices)]} if devices else {}):
                    process = context.Process(target=_in_own_process, args=(job, share, dict(os.environ)))
                    process.start()
                running[process.sentinel] = (process, job, slot)
                say(f"started {job.run.title}")
            for sentinel in multiprocessing.connection.wait(list(running)) if running else ():
                process, job, slot = running.pop(sentinel)
                process.join()
                slots.append(slot)
                yield job, _death(process.exitcode, job.folder / "log.txt") if process.exitcode else None
    finally:
        for process, _, _ in running.values():
            process.kill()  # what it has written is whole
            process.join()


def _in_own_process(job: Job, share: int, variables: Mapping[str, str]) -> None:
    os.environ.update(variables)  # the server that processes are copied from has those of its own beginning
    become_worker(share)
    do(job)


def become_worker(share: int) -> None:
    """Make this process one of `share` that train beside each other: it ends with its parent, however that ends."""

    def end_with_parent() -> None:
        multiprocessing.connection.wait([multiprocessing.parent_process().sentinel])  # type: ignore[union-attr]
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends this process
    threading.Thread(target=end_with_parent, daemon=True).start()
    tqdm.set_lock(threading.RLock())  # its own is a semaphore of the system, which a killed process leaves behind
    if share > 1 and "OMP_NUM_THREADS" not in os.environ:
        import torch

        torch.set_num_threads(max(1, torch.get_num_threads() // share))


def _death(exit_code: int, log: Path) -> str:
    how = f"exit code {exit_code}"
    if exit_code < 0:
        name = signal.Signals(-exit_code).name
        how = f"signal {name}" + (": perhaps the machine had no memory left" if name == "SIGKILL" else "")
    tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:] if log.exists() else []
    return "\n".join([*tail, f"The run's process ended with {how}."])


def processes(*modules: str, cuda: bool = False) -> Any:
    """Where processes come from: new interpreters; on Linux without CUDA, which must not be copied, copies of one.

    Args:
        modules: What that one has imported.
        cuda: Whether the processes use CUDA.
    """
    from accelerate.utils import patch_environment

    if cuda or sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *modules])
    # The server looks for modules where a new interpreter would, not where this one does.
    with patch_environment(PYTHONPATH=os.pathsep.join(map(os.path.abspath, sys.path))):
        multiprocessing.forkserver.ensure_running()
    return context
