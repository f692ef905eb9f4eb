"""What is known of a corpus before a byte of it is read: `corpora/facts.yaml`, and what its fields mean."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml


class RemoteFile(NamedTuple):
    """One official file under its official name, with a checksum where the publisher or a trusted mirror states one."""

    name: str
    url: str
    sha256: str | None = None
    md5: str | None = None


class SplitSizes(NamedTuple):
    """Rows of each split."""

    train: int
    validation: int
    test: int

    @property
    def total(self) -> int:
        """Rows of all three splits together."""
        return sum(self)


class StudyStatistics(NamedTuple):
    """A row of the study's table of corpora, as printed there (in thousands): "train / validation / test"."""

    sizes: str
    num_labels: int
    labels_per_example: float
    small_sizes: str | None = None


@dataclass(frozen=True)
class CorpusFacts:
    """The facts of one corpus.

    Args:
        name: Name for `load_corpus`.
        modality: Whether examples are texts or images.
        summary: One sentence on what the examples and labels are.
        homepage: Where the corpus is published.
        license: As its publisher states it.
        citation: BibTeX.
        sizes: What the official files give under this package's rules; None where that could not be counted.
        study: The study's statistics; None for built-in corpora.
        files: Official files that can be downloaded.
        manual: How to get the files by hand.
        download_all: Whether downloads alone are enough to build the corpus.
        small_sizes: `sizes` for `size="small"`; None where there is no small version.
        labelled_sizes: `sizes` for `labelled_only=True`, where it was counted.
    """

    name: str
    modality: Literal["text", "image"]
    summary: str
    homepage: str
    license: str
    citation: str = ""
    sizes: SplitSizes | None = None
    study: StudyStatistics | None = None
    files: tuple[RemoteFile, ...] = ()
    manual: str = ""
    download_all: bool = True
    small_sizes: SplitSizes | None = None
    labelled_sizes: SplitSizes | None = None

    def description(self) -> str:
        """The text for `DatasetInfo.description`."""
        if self.study is None:
            return self.summary
        small = f" Small: {self.study.small_sizes}." if self.study.small_sizes else ""
        return (
            f"{self.summary} In the study (arXiv 2412.00101): {self.study.sizes} examples, {self.study.num_labels} "
            f"labels, {self.study.labels_per_example} labels per example.{small}"
        )


@functools.cache
def all_facts() -> dict[str, CorpusFacts]:
    """The facts of every corpus, by name."""
    text = (Path(__file__).parent / "corpora" / "facts.yaml").read_text(encoding="utf-8")
    types: dict[str, Any] = {
        **dict.fromkeys(("sizes", "small_sizes", "labelled_sizes"), lambda rows: SplitSizes(*rows)),
        "study": lambda numbers: StudyStatistics(**numbers),
        "files": lambda files: tuple(RemoteFile(**file) for file in files),
    }
    return {
        name: CorpusFacts(name, **{key: types.get(key, lambda same: same)(value) for key, value in fields.items()})
        for name, fields in yaml.safe_load(text).items()
    }
