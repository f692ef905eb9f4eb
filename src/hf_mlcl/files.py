"""Files that appear whole or not at all, whenever a process is interrupted."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A draft that becomes `path` when the block ends without an error, and is removed when it does not.

    Drafts of several processes have different names, so that the last one wins with all of its file. They are hidden
    and end in ``.part``, so that no pattern takes a draft for the file itself.

    Examples:
        >>> with tempfile.TemporaryDirectory() as where:
        ...     with whole_file(Path(where) / "metrics.json") as draft:
        ...         _ = draft.write_text("{}")
        ...     [path.name for path in Path(where).iterdir()]
        ['metrics.json']
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        yield draft
        with draft.open("rb+") as written:
            os.fsync(written.fileno())  # a machine that loses power must not know the name without the content
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def strict_json(content: Any) -> str:
    r"""JSON that every program reads: numbers that are none (NaN, infinities) become null, other objects text.

    Examples:
        >>> strict_json({"alignment": float("nan"), "folder": Path("run")})
        '{\n "alignment": null,\n "folder": "run"\n}'
    """
    plain = json.loads(json.dumps(content, default=str), parse_constant=lambda constant: None)
    return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False)


@contextmanager
def staged(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary folder whose files move to `folder` when the block ends without an error.

    An error in the block leaves `folder` as it was. Afterwards each file is replaced in one step, one after another;
    what is in `folder` under other names stays.

    Examples:
        >>> with tempfile.TemporaryDirectory() as where:
        ...     with staged(Path(where) / "model") as stage:
        ...         _ = (stage / "config.json").write_text("{}")
        ...     sorted(path.name for path in Path(where).rglob("*"))
        ['config.json', 'model']
    """
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise ValueError(f"{target} is a file, but a folder is to be written there.")
    # Within a folder that is there: it may be a mount point, or its parent closed to us.
    where = target if target.is_dir() else target.parent
    where.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(dir=where, prefix=".staged-"))
    try:
        yield stage
        for source in sorted(path for path in stage.rglob("*") if path.is_file()):
            destination = target / source.relative_to(stage)
            destination.parent.mkdir(parents=True, exist_ok=True)
            os.replace(source, destination)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
