"""Files that appear whole or not at all, whenever a process is interrupted."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HIDDEN_FOLDER = ".hf-mlcl"
"""In an experiment's folder: small files about it; see `hf_mlcl.experiments.output_folder`."""
PLAN_FILE, RUNS_FOLDER = "plan.json", "runs"
"""In a study's folder: what it consists of, and the folders of its runs; see `hf_mlcl.study.results`."""


class FullDiskError(OSError):
    """A file or folder could not be written, since no space is left."""


@contextmanager
def naming_full_disk(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name `path` where a write in the block finds the disk full: libraries do not, and use words of their own."""
    try:
        yield
    except FullDiskError:
        raise
    except Exception as error:
        # torch's writer only says that it is at another position than it should be.
        silent = "inline_container" in str(error) and _is_full(Path(path))
        if not tells_full_disk(error) and not silent and "No space left" not in str(error):
            raise
        what = "No space left to write this; what was there before is unchanged. Free some space and run it again"
        raise FullDiskError(errno.ENOSPC, what, os.fspath(path)) from error


def tells_full_disk(error: Exception) -> bool:
    """Whether an error, or what led to it, says that no space is left: datasets wraps what the disk says."""
    causes = (error, error.__cause__, error.__context__)
    return any(isinstance(one, OSError) and one.errno in (errno.ENOSPC, errno.EDQUOT) for one in causes)


def _is_full(path: Path) -> bool:
    there = next(folder for folder in path.absolute().parents if folder.is_dir())
    return shutil.disk_usage(there).free < 2**20


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A draft that becomes `path` when the block ends without an error, and is removed when it does not.

    Drafts of several processes have different names, so that the last one wins with all of its file. They are hidden
    and end in ``.part``, so that no pattern takes a draft for the file itself. A link stays, and what it leads to is
    written; a pipe or a device is written to straight away.
    """
    given = Path(path)
    if given.exists() and not given.is_file() and not given.is_dir():
        with naming_full_disk(given):
            yield given
        return
    target = Path(os.path.realpath(given))
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        with naming_full_disk(target):
            yield draft
            _to_disk(draft)
            os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def strict_json(content: Any) -> str:
    """JSON that every program reads: numbers that are none (NaN, infinities) become null, other objects text."""
    plain = json.loads(json.dumps(content, default=str), parse_constant=lambda constant: None)
    return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False)


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write `strict_json`, whole or not at all."""
    with whole_file(path) as draft:
        draft.write_text(strict_json(content), encoding="utf-8")


def read_json(path: Path, damaged: Callable[[Path, str], None] = lambda path, why: None, **kinds: Any) -> Any:
    """An object in a JSON file that has these keys, of these types; None where there is none, or a damaged one.

    What is wrong with one that is there is told to `damaged`.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        return damaged(path, str(error))
    if not isinstance(content, dict):
        return damaged(path, "it holds no object")
    wrong = [key for key, kind in kinds.items() if key not in content or not isinstance(content[key], kind)]
    return damaged(path, f"it has no {wrong[0]!r}") if wrong else content


@contextmanager
def staged(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary folder whose files move to `folder` when the block ends without an error.

    An error in the block leaves `folder` as it was. Afterwards each file is replaced in one step, one after another;
    what is in `folder` under other names stays.
    """
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise ValueError(f"{target} is a file, but a folder is to be written there.")
    # Within a folder that is there: it may be a mount point, or its parent closed to us.
    where = target if target.is_dir() else target.parent
    where.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(dir=where, prefix=".staged-"))
    try:
        with naming_full_disk(target):
            yield stage
            for source in sorted(path for path in stage.rglob("*") if path.is_file()):
                destination = target / source.relative_to(stage)
                destination.parent.mkdir(parents=True, exist_ok=True)
                os.replace(source, destination)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def swap_folder(new: Path, target: Path, aside: Path) -> None:
    """Put the folder `new` at `target`, and what was at `target` at `aside`, where nothing is; all on one file system.

    On Linux the two change places in one step: whoever looks sees the old folder or the new one. Where the system or
    the file system cannot, there is a moment without `target`; an interruption in it leaves the old one at `aside`.
    """
    for path in new.rglob("*"):
        if path.is_file():
            _to_disk(path)
    if not target.exists():
        os.rename(new, target)
    elif _exchange(new, target):
        os.rename(new, aside)
    else:
        os.rename(target, aside)
        try:
            os.rename(new, target)
        except OSError:
            os.rename(aside, target)
            raise


def _exchange(one: Path, other: Path) -> bool:
    """Let two paths change places in one step; False where that is not possible."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if os.name == "posix" else None
    here, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of <fcntl.h> and <stdio.h>, which Python does not have
    return rename is not None and rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0


def link_or_copy(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Give a file that never changes a second name; copy it where the disk does not know links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _to_disk(path: Path) -> None:
    """A machine that loses power must not know a name without its content."""
    with path.open("rb+") as written:
        os.fsync(written.fileno())
