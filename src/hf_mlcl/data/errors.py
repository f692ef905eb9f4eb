"""The ways in which reading a corpus can fail, and how failures that need not end a build are collected."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hf_mlcl.files import tells_full_disk

logger = logging.getLogger(__name__)

PROBLEMS_FILE = "problems.json"
NAMED_AT_MOST = 20
"""Problems that a warning spells out; the rest are counted there and listed in full in the cache's `PROBLEMS_FILE`."""


class CorpusError(Exception):
    """Base of everything that goes wrong with a corpus's files; `path` is the file at fault, where it is known."""

    def __init__(self, message: str, path: str | None = None) -> None:
        super().__init__(message)
        self.path = path


class CorpusFileError(CorpusError):
    """A file is missing, truncated, corrupt or hostile."""


class CorpusFormatError(CorpusError):
    """A row, an annotation or a label is not what the corpus's format says; the message names file and line."""


class CorpusDownloadError(CorpusError):
    """A file could not be fetched; the message names the address and the manual way."""


class CorpusWarning(UserWarning):
    """A corpus was built, but not from every row that its files promise."""


@contextmanager
def full_disk_named(where: str | os.PathLike[str]) -> Iterator[None]:
    """Say which folder is full when a file cannot be written: "No space left on device" alone names none."""
    try:
        yield
    except Exception as error:
        if not tells_full_disk(error):
            raise
        raise CorpusFileError(
            f"The disk of {os.fspath(where)} is full: nothing that was begun there is used. Free some space, or name "
            f"another folder (cache_dir, or the variable HF_HOME)."
        ) from error


@dataclass
class Problems:
    """What was left out of a corpus while it was built, as (what happened, place and reason).

    One bad image among 82,000 should not cost a night's run, but nobody should train on less than they think either:
    each problem is logged when it occurs, and all are named once more at the end. With `strict` the first one raises.

    Examples:
        >>> problems = Problems()
        >>> problems.add("image left out", "a.zip: 7.jpg: truncated")
        >>> print(problems.summary("voc2007"))
        voc2007 was built with 1 problem (strict=True raises at the first): 1 image left out:
          a.zip: 7.jpg: truncated
    """

    strict: bool = False
    found: list[tuple[str, str]] = field(default_factory=list)

    def add(self, what: str, detail: str) -> None:
        """Note one problem, or raise it when strict."""
        if self.strict:
            raise CorpusFormatError(f"{what}: {detail}. Fix the file, or load with strict=False to go on without it.")
        logger.warning("%s: %s", what, detail)
        self.found.append((what, detail))

    def summary(self, corpus: str) -> str:
        """The closing report: how many of each sort, then their names."""
        counts = ", ".join(f"{count} {what}" for what, count in Counter(what for what, _ in self.found).items())
        number = f"{len(self.found)} problem{'s' if len(self.found) > 1 else ''}"
        listed = "\n  ".join(detail for _, detail in self.found[:NAMED_AT_MOST])
        more = f"\n  … and {len(self.found) - NAMED_AT_MOST} more" if len(self.found) > NAMED_AT_MOST else ""
        return f"{corpus} was built with {number} (strict=True raises at the first): {counts}:\n  {listed}{more}"
