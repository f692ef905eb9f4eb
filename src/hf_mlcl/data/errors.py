"""The ways in which reading a corpus can fail, and how failures that need not end a build are collected."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

logger = logging.getLogger(__name__)

NAMED_AT_MOST = 20
"""Problems that a warning spells out; the rest are counted there and listed in full in the cache's `problems.json`."""


class CorpusError(Exception):
    """Base of everything that goes wrong with a corpus's files."""


class CorpusFileError(CorpusError):
    """A file is missing, truncated, corrupt or hostile; `path` is that file where it is known.

    Args:
        message: What happened and how to fix it.
        path: The file at fault, so that a bad download can be discarded.
    """

    def __init__(self, message: str, path: str | None = None) -> None:
        super().__init__(message)
        self.path = path


class CorpusFormatError(CorpusError):
    """A row, an annotation or a label is not what the corpus's format says; the message names file and line."""


class CorpusDownloadError(CorpusError):
    """A file could not be fetched; the message names the address and the manual way."""


class CorpusWarning(UserWarning):
    """A corpus was built, but not from every row that its files promise."""


@contextmanager
def full_disk_named(where: str | os.PathLike[str]) -> Iterator[None]:
    """Say which folder is full when a file cannot be written: "No space left on device" alone names none.

    Args:
        where: The folder that is written to.

    Raises:
        CorpusFileError: If the disk, or what one may use of it, is full.
    """
    try:
        yield
    except Exception as error:  # datasets wraps what the disk says
        causes = (error, error.__cause__, error.__context__)
        if not any(isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT) for cause in causes):
            raise
        raise CorpusFileError(
            f"The disk of {os.fspath(where)} is full: nothing that was begun there is used. Free some space, or name "
            f"another folder (cache_dir, or the variable HF_HOME)."
        ) from error


@dataclass
class Problems:
    """What was left out of a corpus while it was built.

    One bad image among 82,000 should not cost a night's run, but nobody should train on less than they think either:
    each problem is logged when it occurs, and all are named once more at the end. With `strict` the first one raises.

    Args:
        strict: Raise at the first problem instead of collecting it.
        found: The problems so far, as (kind, place and reason).

    Examples:
        >>> problems = Problems()
        >>> problems.add("image left out", "a.zip: 7.jpg: truncated")
        >>> print(problems.summary("voc2007"))
        voc2007 was built with 1 problem (strict=True raises at the first): 1 image left out:
          a.zip: 7.jpg: truncated
    """

    strict: bool = False
    found: list[tuple[str, str]] = field(default_factory=list)

    def add(self, kind: str, detail: str) -> None:
        """Note one problem, or raise it when strict."""
        if self.strict:
            raise CorpusFormatError(f"{kind}: {detail}. Fix the file, or load with strict=False to go on without it.")
        logger.warning("%s: %s", kind, detail)
        self.found.append((kind, detail))

    def summary(self, corpus: str) -> str:
        """The closing report: how many of each kind, then their names."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(kind for kind, _ in self.found).items())
        details = [detail for _, detail in self.found]
        named = "\n  ".join(details[:NAMED_AT_MOST])
        more = f"\n  … and {len(details) - NAMED_AT_MOST} more" if len(details) > NAMED_AT_MOST else ""
        plural = "problem" if len(details) == 1 else "problems"
        opening = f"{corpus} was built with {len(details)} {plural} (strict=True raises at the first)"
        return f"{opening}: {kinds}:\n  {named}{more}"

    def to_json(self) -> str:
        """The full list as JSON, to lie beside the built corpus."""
        return json.dumps([list(problem) for problem in self.found], ensure_ascii=False, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Problems:
        """Read back what `to_json` wrote."""
        rows: Iterable[tuple[str, str]] = ((kind, detail) for kind, detail in json.loads(text))
        return cls(found=list(rows))
