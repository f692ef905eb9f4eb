"""Folders that are written all at once or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def staged(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary folder beside `folder`, whose files move there when the block ends without an error.

    What is in `folder` under other names stays.

    Example:
        >>> with tempfile.TemporaryDirectory() as where:
        ...     with staged(Path(where) / "model") as stage:
        ...         _ = (stage / "config.json").write_text("{}")
        ...     sorted(path.name for path in Path(where).rglob("*"))
        ['config.json', 'model']
    """
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise ValueError(f"{target} is a file, but a folder is to be written there.")
    target.parent.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        yield stage
        for source in sorted(path for path in stage.rglob("*") if path.is_file()):
            destination = target / source.relative_to(stage)
            destination.parent.mkdir(parents=True, exist_ok=True)
            os.replace(source, destination)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
