"""What is known of a corpus before a byte of it is read: `corpora/facts.yaml`, and what its fields mean."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

OPTIONS_OF_SIZE = {"draw_seed": "small", "split": "full"}
"""Options that have a meaning for one size only."""


class RemoteFile(NamedTuple):
    """One official file under its official name, with a checksum where the publisher or a trusted mirror states one."""

    name: str
    url: str
    sha256: str | None = None
    md5: str | None = None


@dataclass(frozen=True)
class SplitSizes:
    """Rows of each split."""

    train: int
    validation: int
    test: int

    @property
    def total(self) -> int:
        """Rows of all three splits together."""
        return self.train + self.validation + self.test


class StudyStatistics(NamedTuple):
    """A row of the study's table of corpora, as printed there (in thousands): "train / validation / test"."""

    sizes: str
    num_labels: int
    labels_per_example: float
    small_sizes: str | None = None


@dataclass(frozen=True)
class CorpusFacts:
    """The facts of one corpus.

    Attributes:
        modality: What its examples are; also the name of their column.
        sizes: What the official files give under this package's rules; `small_sizes` for `size="small"`, where there
            is a small version, `labelled_sizes` for `labelled_only=True`, where it was counted.
        study: The study's statistics; None for the built-in corpora.
        manual: What to put where when (part of) it cannot be downloaded; shown with every download error too.
        download_all: False where `files` is only a part of the corpus, so that `data_dir` is required.
        options: Choices beside the size: every value, the default first; or the default of a number.
        labels: In the order of their ids, where they do not depend on the files.
        descriptions: What labels mean whose names are codes.
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
    options: Mapping[str, list[Any] | int] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    descriptions: Mapping[str, str] = field(default_factory=dict)

    def default_options(self, size: str = "full") -> dict[str, Any]:
        """The options that have a meaning for a size, with their defaults.

        Examples:
            >>> all_facts()["semeval2018"].default_options()
            {'labelled_only': False}
        """
        known = {name: v for name, v in self.options.items() if OPTIONS_OF_SIZE.get(name, size) == size}
        return {name: values[0] if isinstance(values, list) else values for name, values in known.items()}

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
    facts = yaml.safe_load((Path(__file__).parent / "corpora" / "facts.yaml").read_text(encoding="utf-8"))
    for fields in facts.values():
        fields |= {key: SplitSizes(*rows) for key, rows in fields.items() if key.endswith("sizes")}
        fields["study"] = StudyStatistics(**fields["study"]) if "study" in fields else None
        labels = fields.get("labels", "")
        fields["descriptions"] = labels if isinstance(labels, dict) else {}
        fields["labels"] = list(labels) if isinstance(labels, dict) else labels.split()
        fields["files"] = tuple(RemoteFile(**file) for file in fields.get("files", ()))
    return {name: CorpusFacts(name, **fields) for name, fields in facts.items()}
