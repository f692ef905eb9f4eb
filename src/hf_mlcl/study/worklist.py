"""The work list: plain files in one folder, safe for many workers on one machine or on a shared file system.

::

    plan.json               the study: name, report, ids of its runs
    runs/ID/run.json        settings of a run
    runs/ID/attempt-1.json  who is at it: host, process, time. Its modification time is the worker's heartbeat
    runs/ID/ended-1.json    how that attempt ended: finished, failed (with the traceback) or interrupted
    runs/ID/result.json     metrics, times, versions; a run that has a whole one is finished
    runs/ID/log.txt         what the run printed
    runs/ID/work/           the run's own files: checkpoints, encoder, classifier

A claim is the creation of ``attempt-N.json`` by hard link, which exactly one of several workers can do, on NFS as well,
and which appears with its whole content. Claims are never taken away. A run whose last attempt failed, was interrupted
or belongs to a dead worker is claimed by creating the next attempt, which again only one can do; so there is no moment
at which two workers believe a run to be theirs.

A worker is dead if its process is gone, where that can be seen (same machine), or if its heartbeat is older than the
lease, measured by the file system's clock, so that the machines' own clocks do not matter.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import os
import re
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, Literal

import psutil

from hf_mlcl.files import strict_json, whole_file
from hf_mlcl.study.specification import ReportOptions, Run, Study, StudyError

logger = logging.getLogger(__name__)

RESULT_KEYS = ("metrics", "seconds", "settings", "started", "finished", "versions", "machine")
LEASE_SECONDS = 600.0
HEARTBEAT_SECONDS = 20.0

State = Literal["waiting", "running", "finished", "failed"]
Ending = Literal["finished", "failed", "interrupted"]


def write_json(path: Path, data: Any) -> None:
    """Write a file whole or not at all."""
    with whole_file(path) as draft:
        draft.write_text(strict_json(data), encoding="utf-8")


def read_json(path: Path, *keys: str) -> Any:
    """Content of a JSON file; None where there is none, or a damaged one, of which a warning tells.

    Args:
        path: The file.
        *keys: What a whole one has.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        _warn_of_damage(path, str(error))
        return None
    missing = [key for key in keys if not isinstance(content, dict) or key not in content]
    if missing:
        _warn_of_damage(path, f"it has no {missing[0]!r}")
    return None if missing else content


def read_result(folder: Path) -> Any:
    """The result in a run's folder; None where there is none, or a damaged one: the run then counts as not done."""
    path = folder / "result.json"
    result = read_json(path, *RESULT_KEYS)
    if result is None:
        return None
    metrics = result["metrics"]
    if not isinstance(metrics, dict) or not all(value is None or isinstance(value, Real) for value in metrics.values()):
        _warn_of_damage(path, "its metrics are not numbers by name")
        return None
    return result


@functools.cache  # once, however often it is looked at
def _warn_of_damage(path: Path, why: str) -> None:
    logger.warning("%s is damaged and not used (%s). `hf-mlcl study run FILE` makes it again.", path, why)


@dataclass(frozen=True)
class Worker:
    """A process that works on a list.

    Attributes:
        host: Name of its machine.
        boot: Identifies the machine's start and the name space of its processes: equal where process ids can be
            compared.
        pid: Its process id.
        started: When the process started, since ids are used again.
        token: Tells it from every other worker.
    """

    host: str
    boot: str
    pid: int
    started: float
    token: str

    @classmethod
    def this(cls) -> Worker:
        """The current process."""
        started = psutil.Process().create_time()
        return cls(socket.gethostname(), _boot(), os.getpid(), started, uuid.uuid4().hex)

    def is_visible(self) -> bool:
        """Whether this process could see that worker's."""
        return self.host == socket.gethostname() and self.boot == _boot()

    def is_alive(self) -> bool:
        """Whether the process is there; only for a worker that `is_visible`."""
        try:
            process = psutil.Process(self.pid)
            # A process that has ended but was not yet waited for does no work any more.
            same = abs(process.create_time() - self.started) < 1
            return bool(same and process.status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + os.readlink("/proc/self/ns/pid")
    except OSError:  # not Linux
        return str(round(psutil.boot_time()))


@dataclass(frozen=True)
class RunStatus:
    """Where a run stands.

    Attributes:
        run: The run.
        state: ``"waiting"`` (also after an interruption), ``"running"``, ``"finished"`` or ``"failed"``.
        attempts: Number of attempts so far.
        worker: Who is or was at it last.
        error: Traceback of the last attempt, if that failed.
        started: Unix time of the last attempt's start.
    """

    run: Run
    state: State
    attempts: int = 0
    worker: Worker | None = None
    error: str | None = None
    started: float | None = None


@dataclass(frozen=True)
class Claim:
    """A run that is this worker's to do."""

    run: Run
    folder: Path
    attempt: int
    worker: Worker

    @property
    def path(self) -> Path:
        """The file that says so."""
        return self.folder / f"attempt-{self.attempt}.json"

    def beat(self) -> bool:
        """Show that the worker lives; False where another has taken the run over, so that it must be dropped."""
        try:
            os.utime(self.path)
        except FileNotFoundError:  # the folder was removed
            return False
        return _last_attempt(self.folder) == self.attempt

    def end(self, how: Ending, error: str | None = None) -> None:
        """Write down how the attempt ended."""
        ending = {"ending": how, "at": time.time(), "error": error}
        write_json(self.folder / f"ended-{self.attempt}.json", ending)


class WorkList:
    """The runs of a study in a folder; see the module's text for the files.

    Args:
        folder: The study's output folder.
        lease: Seconds after which a worker that cannot be seen and does not show itself counts as dead.
    """

    def __init__(self, folder: str | Path, lease: float = LEASE_SECONDS) -> None:
        self.folder = Path(folder)
        self.lease = lease

    # The plan -----------------------------------------------------------------------------------------------------

    def plan(self, study: Study) -> None:
        """Put the runs of a study on the list. Runs that are there already stay as they are."""
        (self.folder / "runs").mkdir(parents=True, exist_ok=True)
        for run in study.runs:
            path = self.run_folder(run) / "run.json"
            if read_json(path) is None:
                path.parent.mkdir(exist_ok=True)
                write_json(path, run.to_json())
        plan = {
            "name": study.name,
            "description": study.description,
            "keep": study.keep,
            "report": dataclasses.asdict(study.report),
            "runs": [run.id for run in study.runs],
        }
        if read_json(self.folder / "plan.json") != json.loads(json.dumps(plan)):
            write_json(self.folder / "plan.json", plan)

    def study(self) -> Study:
        """The study that was planned here last.

        Raises:
            StudyError: If none was.
        """
        plan = read_json(self.folder / "plan.json")
        if plan is None and (self.folder / "plan.json").exists():
            raise StudyError(f"{self.folder}/plan.json is damaged: `hf-mlcl study run FILE` writes it again.")
        if plan is None:
            raise StudyError(f"{self.folder} holds no study yet: start it with `hf-mlcl study run FILE`.")
        runs = [read_json(self.folder / "runs" / run_id / "run.json") for run_id in plan["runs"]]
        if None in runs:
            lost = plan["runs"][runs.index(None)]
            raise StudyError(
                f"{self.folder}/runs/{lost}/run.json is gone or damaged: `hf-mlcl study run FILE` writes it again."
            )
        report = ReportOptions(**{**plan["report"], "metrics": tuple(plan["report"]["metrics"])})
        planned = tuple(Run.from_json(run) for run in runs)
        return Study(plan["name"], self.folder, planned, plan["description"], report, plan["keep"])

    def run_folder(self, run: Run) -> Path:
        """Where a run's files are."""
        return self.folder / "runs" / run.id

    # Status -------------------------------------------------------------------------------------------------------

    def status(self, run: Run) -> RunStatus:
        """Where a run stands now."""
        folder = self.run_folder(run)
        number = _last_attempt(folder)
        attempt = read_json(folder / f"attempt-{number}.json", "worker", "at") if number else None
        if attempt is None:
            return RunStatus(run, "finished" if read_result(folder) else "waiting", number)
        worker = Worker(**attempt["worker"])
        state, error = self._state(folder, number, worker)
        return RunStatus(run, state, number, worker, error, attempt["at"])

    def _state(self, folder: Path, attempt: int, worker: Worker) -> tuple[State, str | None]:
        if read_result(folder):
            return "finished", None
        ended = read_json(folder / f"ended-{attempt}.json", "ending", "error")
        if ended is not None:
            return ("failed", ended["error"]) if ended["ending"] == "failed" else ("waiting", None)
        return ("running" if self._lives(folder / f"attempt-{attempt}.json", worker) else "waiting"), None

    def _lives(self, claim: Path, worker: Worker) -> bool:
        if worker.is_visible():
            return worker.is_alive()
        with tempfile.NamedTemporaryFile(prefix=".clock.", dir=claim.parent) as clock:
            now = os.fstat(clock.fileno()).st_mtime
        return now - claim.stat().st_mtime < self.lease

    # Claims -------------------------------------------------------------------------------------------------------

    def claim(
        self, run: Run, worker: Worker, retry: Callable[[RunStatus], bool] = lambda status: False
    ) -> Claim | None:
        """Take a run that waits, or that failed and `retry` wants again.

        Returns:
            The claim; None where the run is finished, failed or another's.
        """
        status = self.status(run)
        if status.state != "waiting" and not (status.state == "failed" and retry is not None and retry(status)):
            return None
        claim = Claim(run, self.run_folder(run), status.attempts + 1, worker)
        if not _create(claim.path, {"worker": dataclasses.asdict(worker), "at": time.time()}):
            return None
        if read_result(claim.folder):  # finished by a dying worker between the look and the claim
            claim.end("finished")
            return None
        return claim

    def results(self, runs: Iterable[Run]) -> list[tuple[Run, Mapping[str, Any]]]:
        """The finished ones among some runs, with their results."""
        found = ((run, read_result(self.run_folder(run))) for run in runs)
        return [(run, result) for run, result in found if result is not None]


def _last_attempt(folder: Path) -> int:
    names = os.listdir(folder) if folder.is_dir() else []
    numbers = (re.fullmatch(r"attempt-(\d+)\.json", name) for name in names)
    return max((int(number.group(1)) for number in numbers if number), default=0)


def _create(path: Path, data: Any) -> bool:
    """Make a file that does not exist yet; False where it does. It appears whole, and only one of many makes it."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    write_json(temporary, data)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError:
        # NFS may lose the answer to a link that it made; what counts is whether the file now has two names.
        if os.stat(temporary).st_nlink != 2:
            raise
    finally:
        os.unlink(temporary)
    return True
