"""What is known of a corpus before a byte of it is read: source, licence, files, the study's statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class RemoteFile:
    """One official file.

    Args:
        name: The official file name, under which it is kept and looked for.
        url: Where it is downloaded from.
        sha256: Its SHA-256 sum where the publisher or a trusted mirror states one.
        md5: Its MD5 sum, for publishers that state only that.
    """

    name: str
    url: str
    sha256: str | None = None
    md5: str | None = None


@dataclass(frozen=True)
class SplitSizes:
    """Rows a split."""

    train: int
    validation: int
    test: int

    @property
    def total(self) -> int:
        """Rows of all three splits together."""
        return self.train + self.validation + self.test


@dataclass(frozen=True)
class StudyStatistics:
    """A row of the study's table of corpora, as printed there (in thousands).

    Args:
        sizes: "train / validation / test".
        small_sizes: The same for the study's subset with little training data, where it has one.
        num_labels: Number of labels.
        labels_per_example: Mean number of labels an example.
    """

    sizes: str
    num_labels: int
    labels_per_example: float
    small_sizes: str | None = None


@dataclass(frozen=True)
class CorpusFacts:
    """A corpus on one page.

    Args:
        name: The name that `load_corpus` takes.
        kind: What its examples are; also the name of their column.
        summary: One sentence on what the examples and labels are.
        homepage: Where the corpus is described by its makers.
        license: Under which terms it is used.
        citation: BibTeX.
        study: The study's statistics; None for the built-in corpora.
        files: What can be downloaded.
        manual: What to put where when (part of) it cannot; shown with every download error too.
        download_all: False where `files` is only a part of the corpus, so that `data_dir` is required.
        sizes: What the official files give under this package's rules; None where that could not be counted.
        small_sizes: The same for `size="small"`; None where there is no small version.
        labelled_sizes: The same for `labelled_only=True`, where it was counted.
    """

    name: str
    kind: Literal["text", "image"]
    summary: str
    homepage: str
    license: str
    citation: str
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
            f"labels, {self.study.labels_per_example} labels an example.{small}"
        )
