"""The output folder of an experiment: one process at a time, nothing of the user's replaced, models always whole.

Beside what users see, it has a hidden folder ``.hf-mlcl``::

    lock          held by the process that trains; the system frees it when the process ends, however it ends
    owner.json    who that is, for the message that others get
    run.json      settings of the training that was begun last, whether it was finished, and those of the trainings
                  that the models here came from
    written.json  every file that trainings wrote, and what it looked like; what is not in it, or has changed since,
                  is the user's
    staged/       models on their way to their place
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout

from hf_mlcl.files import HIDDEN_FOLDER, link_or_copy, naming_full_disk, read_json, swap_folder, write_json

SECONDS_FOR_CHILDREN = 30.0
"""How long workers of a loader may hold the lock of a process that was killed, until they notice."""
HASHED = 1 << 20
"""Bytes up to which a file is known by its content; a larger one by its size and time, which copying may change."""
BEING_WRITTEN = "being written"
"""In place of what a file looks like, until it is there."""


class OutputFolder:
    """Where an experiment writes; the folder need not be there yet.

    Examples:
        >>> import tempfile
        >>> output = OutputFolder(tempfile.mkdtemp())
        >>> with output.owned(), output.staging("encoder") as stage:
        ...     _ = (stage / "config.json").write_text("{}")
        ...     output.publish(encoder=stage)
        >>> (output.path / "encoder" / "config.json").read_text()
        '{}'
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder)
        self.hidden = self.path / HIDDEN_FOLDER

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Have the folder for this process alone, and tidy up after one that was killed.

        If another process has it, a ValueError names host, process and time.
        """
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"output_dir {str(self.path)!r} is a file. Choose another --output_dir.")
        lock = FileLock(self.hidden / "lock")
        try:
            self.hidden.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=SECONDS_FOR_CHILDREN if _has_ended(self._owner()) else 0)
        except Timeout:
            raise ValueError(
                f"output_dir {str(self.path)!r} is in use by {_described(self._owner())}. Wait until that "
                "has ended, or choose another --output_dir."
            ) from None
        except OSError as error:
            raise ValueError(
                f"output_dir {str(self.path)!r} cannot be written: {error}. Choose another --output_dir."
            ) from error
        try:
            owner = {"host": socket.gethostname(), "pid": os.getpid(), "since": time.time()}
            self._write("owner.json", {**owner, "started": psutil.Process().create_time()})
            for aside in self.hidden.glob("*.aside"):  # an interruption where folders cannot change places in one step
                if not (target := self.path / aside.stem).exists():
                    os.rename(aside, target)
                shutil.rmtree(aside, ignore_errors=True)
            shutil.rmtree(self.hidden / "staged", ignore_errors=True)
            yield
        finally:
            (self.hidden / "owner.json").unlink(missing_ok=True)
            lock.release()

    def check_replaceable(self, *names: str) -> None:
        """Refuse to replace files and folders that no training wrote, or that were changed since.

        A ValueError names what is in the way.
        """
        written = self._written()
        for name in names:
            known = written.get(name, {})
            foreign = [
                file
                for file in sorted(_files(self.path / name))
                if not {BEING_WRITTEN, _look(self.path / name / file)} & set(known.get(file, ()))
            ]
            if foreign:
                found = (Path(name) / foreign[0]).as_posix() + (f" and {len(foreign) - 1} more" if foreign[1:] else "")
                changed, unknown = "was changed after a training wrote it", "no training is known to have written there"
                whose = changed if foreign[0] in known else unknown
                raise ValueError(
                    f"output_dir {str(self.path)!r} has {found}, which {whose}, and {name!r} would be replaced. Move "
                    "it away, or choose another --output_dir."
                )

    @contextmanager
    def staging(self, name: str, from_published: bool = False) -> Iterator[Path]:
        """A folder to write a model into before it is published; gone after the block.

        With `from_published` it begins with the files that are published under that name.
        """
        stage = self.hidden / "staged" / f"{name}.new"  # a name that nobody looks for
        shutil.rmtree(stage, ignore_errors=True)
        stage.parent.mkdir(parents=True, exist_ok=True)
        try:
            with naming_full_disk(self.path / name):
                if from_published:
                    shutil.copytree(self.path / name, stage, copy_function=link_or_copy)
                else:
                    stage.mkdir()
                yield stage
        finally:
            shutil.rmtree(stage, ignore_errors=True)
            with suppress(OSError):  # others are in it, or it went with the last of them
                stage.parent.rmdir()

    def publish(self, **stages: Path) -> None:
        """Put models, each what `staging` gave, in their place in one step. What training wrote there before goes."""
        new = {name: {file: [_look(stage / file)] for file in _files(stage)} for name, stage in stages.items()}
        old = self._written()  # until it is gone, both are known
        both = dict(old)
        for name, looks in new.items():
            before = old.get(name, {})
            both[name] = {file: [*before.get(file, ()), *looks.get(file, ())] for file in {*before, *looks}}
        self._write("written.json", both)
        if run := self._read("run.json", settings=dict, models=dict):
            self._write("run.json", {**run, "models": {**run["models"], **dict.fromkeys(stages, run["settings"])}})
        for name, stage in stages.items():
            aside = self.hidden / f"{name}.aside"
            swap_folder(stage, self.path / name, aside)
            shutil.rmtree(aside, ignore_errors=True)
        self._write("written.json", {**old, **new})

    def remove(self, name: str) -> None:
        """Take away a model that training wrote, in one step."""
        self.check_replaceable(name)
        if (self.path / name).exists():
            with self.staging(name) as stage:
                os.rename(self.path / name, stage / name)
        self._write("written.json", {known: files for known, files in self._written().items() if known != name})

    @contextmanager
    def writing(self, *names: str) -> Iterator[None]:
        """Write files in the block that a later training knows as its own, also after an interruption within it."""
        self._write("written.json", {**self._written(), **{name: {"": [BEING_WRITTEN]} for name in names}})
        yield
        self._write("written.json", {**self._written(), **{name: {"": [_look(self.path / name)]} for name in names}})

    @contextmanager
    def changing(self, name: str, file: str) -> Iterator[None]:
        """Change a file of a model in the block; it stays ours, if it was."""
        path, written = self.path / name / file, self._written()
        ours = _look(path) in written.get(name, {}).get(file, ())
        yield
        if ours:
            self._write("written.json", {**written, name: {**written[name], file: [_look(path)]}})

    def _written(self) -> dict[str, dict[str, list[str]]]:
        """What each file that trainings wrote may look like, by folder and name; of a file, the name is empty."""
        known = self._read("written.json") or {}
        return {name: files for name, files in known.items() if _are_looks(files)}

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Write down what is going to be trained."""
        self._write("run.json", {"settings": settings, "finished": False, "models": self._models()})

    def finish(self) -> None:
        """Write down that it was."""
        self._write("run.json", {**(self._read("run.json") or {}), "finished": True})

    def interrupted(self) -> dict[str, Any] | None:
        """Settings of the training that was begun here last, if it was not finished."""
        run = self._read("run.json", settings=dict, finished=bool)
        return run["settings"] if run and not run["finished"] else None

    def published(self, name: str) -> dict[str, Any]:
        """Settings of the training that a model here came from, whatever was begun since; none if not known."""
        settings = self._models().get(name)
        return settings if isinstance(settings, dict) else {}

    def _models(self) -> dict[str, Any]:
        models: dict[str, Any] = (self._read("run.json", models=dict) or {}).get("models", {})
        return models

    def _read(self, name: str, **kinds: Any) -> Any:
        return read_json(self.hidden / name, **kinds)  # damaged is as good as not there

    def _owner(self) -> Any:
        return self._read("owner.json", host=str, pid=int, since=(int, float), started=(int, float))

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        write_json(self.hidden / name, content)


def _files(path: Path) -> set[str]:
    """Names of the files in a folder; of a file, or of a link, the empty one."""
    if path.is_symlink() or path.is_file():
        return {""}
    return {found.relative_to(path).as_posix() for found in path.rglob("*") if found.is_symlink() or found.is_file()}


def _look(path: Path) -> str:
    """What a file looks like: by its content where it is small, by where it leads if it is a link."""
    if path.is_symlink():
        return f"link to {os.readlink(path)}"
    status = path.stat()
    if status.st_size > HASHED:
        return f"{status.st_size} bytes of {status.st_mtime_ns}"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _are_looks(files: Any) -> bool:
    return isinstance(files, dict) and all(
        isinstance(looks, list) and all(isinstance(look, str) for look in looks) for looks in files.values()
    )


def _has_ended(owner: Mapping[str, Any] | None) -> bool:
    """Whether a process is gone, where that can be seen."""
    if owner is None or owner["host"] != socket.gethostname():
        return False
    try:
        process = psutil.Process(owner["pid"])
        return bool(abs(process.create_time() - owner["started"]) > 1 or process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
    except (psutil.Error, ValueError, OverflowError):  # a number that no process has
        return False


def _described(owner: Mapping[str, Any] | None) -> str:
    if owner is None:
        return "another process"
    try:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(owner["since"]))
    except (ValueError, OverflowError, OSError):  # no time of this world
        since = "an unknown time"
    return f"process {owner['pid']} on {owner['host']} since {since}"
