"""What every corpus's builder shares: finding the files, numbering labels, keeping count of what is left out."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import getsource
from types import ModuleType
from typing import Any, ClassVar

import datasets
from datasets import ClassLabel, DatasetInfo, Features, GeneratorBasedBuilder, Image, List, SplitGenerator, Value

from hf_mlcl.data import toy
from hf_mlcl.data.download import discard, fetch
from hf_mlcl.data.errors import CorpusError, CorpusFileError, Problems
from hf_mlcl.data.facts import CorpusFacts, SplitSizes
from hf_mlcl.data.images import image_defect
from hf_mlcl.data.sources import SourceTree
from hf_mlcl.data.splits import SEED, Example, Stream, chain, covering_draw, halves, repartition

PROBLEMS_FILE = "problems.json"
SMALL_FRACTION = 0.2
"""Part of the training images that the study's small versions keep."""
LabelNames = tuple[str, ...]
SPLITS = ("train", "validation", "test")
IMAGE_OPTIONS = {"draw_seed": SEED}
"""What all corpora of images offer: another draw of the fifth of the training images that the small version keeps."""
OPTIONS_OF_SIZE = {"draw_seed": "small", "split": "full"}
"""Options that have a meaning for one size only."""


@dataclass
class CorpusConfig(datasets.BuilderConfig):  # type: ignore[misc]
    """Everything that a built corpus depends on beside its files; all of it is part of the cache's key.

    Args:
        size: "full" or "small".
        strict: Raise at the first bad image or unknown label instead of leaving it out.
        options: What was chosen among the corpus's `OPTIONS`, without what is the default.
    """

    size: str = "full"
    strict: bool = False
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """What a builder found: the labels, and a stream of examples a split.

    Args:
        label_names: The labels, in the order of their ids.
        splits: A stream for each split.
        ignored: Labels of examples, by key, that are neither present nor absent; they make a column `ignored`.
    """

    label_names: Sequence[str]
    splits: Mapping[str, Stream]
    ignored: Mapping[str, LabelNames] | None = None


class CorpusBuilder(GeneratorBasedBuilder):  # type: ignore[misc]
    """Base of the corpora. A subclass states its `FACTS` and turns files into a `Plan`.

    Each subclass lives in a module of its own: `datasets` names a builder's cache after its module.
    """

    BUILDER_CONFIG_CLASS = CorpusConfig
    VERSION = datasets.Version("1.0.0")  # raise it in a subclass when its rules change: the cache's key holds it
    FACTS: ClassVar[CorpusFacts]
    OPTIONS: ClassVar[Mapping[str, tuple[Any, ...] | int]] = {"labelled_only": (False, True)}
    """Choices that a corpus offers beside its size: every value, the default first; or the default of a number."""
    problems: Problems
    sources: SourceTree
    _label_ids: dict[str, int]
    _plan: Plan

    def plan(self, sources: SourceTree) -> Plan:
        """Look through the files and say which examples go into which split."""
        raise NotImplementedError("A subclass of CorpusBuilder states its plan.")

    # -- for subclasses

    def option(self, name: str) -> Any:
        """The value of one of the `OPTIONS`."""
        values = self.OPTIONS[name]
        return self.config.options.get(name, values[0] if isinstance(values, tuple) else values)

    def download(self, name: str) -> str:
        """Fetch one of the official files and return where it is."""
        file = next(file for file in self.FACTS.files if file.name == name)
        return fetch(file, f"{self._cache_downloaded_dir}/hf_mlcl/{self.FACTS.name}", self.manual_instructions())

    def manual_instructions(self) -> str:
        """How to get the files by hand."""
        return (
            f"To get {self.FACTS.name} by hand: {self.FACTS.manual}\n"
            f'Then load_corpus("{self.FACTS.name}", data_dir="the/folder"). '
            f"Archives may stay packed or be unpacked, files may be gzipped or not. See {self.FACTS.homepage}"
        )

    def missing(self, what: str) -> CorpusFileError:
        """The error for files that are not in `data_dir`."""
        return CorpusFileError(f"{what} not found in {', '.join(self.sources.roots)}.\n{self.manual_instructions()}")

    def found_splits(self, streams: Mapping[str, Stream | None], files: Mapping[str, str]) -> dict[str, Stream]:
        """Drop the splits whose file is absent, with a note; all absent is an error.

        Args:
            streams: A stream for each split, None where its file was not found.
            files: The official file name of each split, for the message.
        """
        found = {split: stream for split, stream in streams.items() if stream is not None}
        if not found:
            raise self.missing(f"None of {', '.join(files.values())} was")
        for split in (split for split in streams if split not in found):
            self.problems.add("split left out", f"{split}: {files[split]} is not in {', '.join(self.sources.roots)}")
        return found

    def resized(self, splits: Mapping[str, Stream]) -> Mapping[str, Stream]:
        """The splits themselves, or for the small version all their examples parted anew in the study's proportions."""
        sizes = self.FACTS.small_sizes
        return splits if self.config.size == "full" or sizes is None else self.parted_anew(splits, sizes)

    def parted_anew(self, splits: Mapping[str, Stream], sizes: SplitSizes) -> Mapping[str, Stream]:
        """All examples of some splits, parted in the proportions of `sizes`."""
        return repartition(chain(*splits.values()), sizes.train / sizes.total, sizes.validation / sizes.total)

    def image_splits(
        self,
        train: Mapping[str, LabelNames],
        held_out: Mapping[str, LabelNames],
        key_of: Callable[[str], str],
        halved: Callable[[Sequence[str]], tuple[set[str], set[str]]] = halves,
    ) -> dict[str, Stream]:
        """The study's rule for images: the released evaluation set is halved; small training sets are a fifth.

        Args:
            train: Labels of each training image.
            held_out: Labels of each image that is not for training.
            key_of: The key in these tables for a file's name.
            halved: The rule that makes validation and test of the evaluation set.
        """
        if self.config.size == "small":
            rows, seed = round(SMALL_FRACTION * len(train)), self.option("draw_seed")
            drawn = covering_draw(list(train), list(train.values()), rows, seed)
            train = {key: labels for (key, labels), kept in zip(train.items(), drawn, strict=True) if kept}
        validation, test = halved(list(held_out))
        tables = (train, *({key: held_out[key] for key in held_out if key in half} for half in (validation, test)))
        return {split: self._images(table, key_of) for split, table in zip(SPLITS, tables, strict=True)}

    def _images(self, labels: Mapping[str, LabelNames], key_of: Callable[[str], str]) -> Stream:
        def stream() -> Iterator[Example]:
            left = set(labels)
            for member in self.sources.walk(lambda name: key_of(name) in left):
                key = key_of(member.name)
                left.discard(key)  # a folder may hold an archive and its unpacked files
                yield Example(key, member.read(), labels[key], member.origin)
            for key in sorted(left):
                self.problems.add("image left out", f"{key}: not in {', '.join(self.sources.roots)}")

        return stream

    # -- for datasets

    def _info(self) -> DatasetInfo:
        return DatasetInfo(
            description=self.FACTS.description(),
            citation=self.FACTS.citation,
            homepage=self.FACTS.homepage,
            license=self.FACTS.license,
        )

    def _split_generators(self, dl_manager: Any) -> list[SplitGenerator]:
        self.problems = Problems(strict=self.config.strict)
        if dl_manager.manual_dir is not None:
            self.sources = SourceTree([dl_manager.manual_dir])
        elif not self.FACTS.download_all:
            raise CorpusFileError(f"{self.FACTS.name} needs data_dir.\n{self.manual_instructions()}")
        else:
            self.sources = SourceTree([self.download(file.name) for file in self.FACTS.files])
        self._plan = self.plan(self.sources)
        self._label_ids = {name: number for number, name in enumerate(self._plan.label_names)}
        content = Value("string") if self.FACTS.kind == "text" else Image()
        labels = List(ClassLabel(names=list(self._plan.label_names)))
        ignored = {} if self._plan.ignored is None else {"ignored": labels}
        self.info.features = Features({self.FACTS.kind: content, "labels": labels, **ignored})
        return [
            SplitGenerator(name=split, gen_kwargs={"split": split}) for split in SPLITS if split in self._plan.splits
        ]

    def _generate_examples(self, split: str) -> Iterator[tuple[int, dict[str, Any]]]:
        rows = 0
        for example in self._plan.splits[split]():
            row = self._row(example)
            if row is not None and (row["labels"] or not self.option("labelled_only")):
                yield rows, row
                rows += 1
        if rows == 0:
            raise CorpusFileError(
                f"The {split} split of {self.FACTS.name} has no example.\n{self.manual_instructions()}"
            )

    def _row(self, example: Example) -> dict[str, Any] | None:
        labels = set()
        for name in example.labels:
            if name in self._label_ids:
                labels.add(self._label_ids[name])
            else:
                self.problems.add("unknown label left out", f"{example.origin or example.key}: {name!r}")
        if isinstance(example.content, str):
            return {"text": example.content, "labels": sorted(labels)}
        defect = image_defect(example.content)
        if defect is not None:
            self.problems.add("image left out", f"{example.origin or example.key}: {defect}")
            return None
        name = example.key.rsplit("/", 1)[-1]
        row = {"image": {"bytes": example.content, "path": name}, "labels": sorted(labels)}
        if self._plan.ignored is not None:
            ignored = self._plan.ignored.get(example.key, ())
            row["ignored"] = sorted(self._label_ids[label] for label in ignored if label in self._label_ids)
        return row

    def _download_and_prepare(self, dl_manager: Any, verification_mode: Any, **kwargs: Any) -> None:
        try:
            super()._download_and_prepare(dl_manager, verification_mode, **kwargs)
        except datasets.exceptions.DatasetGenerationError as error:
            if not isinstance(error.__cause__, CorpusError):
                raise
            self._discard_bad_download(error.__cause__)
            raise error.__cause__ from None  # it says what is wrong; "an error occurred" does not
        except CorpusError as error:
            self._discard_bad_download(error)
            raise
        # Written into the folder that becomes the cache when everything is there.
        with open(f"{self._output_dir}/{PROBLEMS_FILE}", "w", encoding="utf-8") as file:
            file.write(self.problems.to_json())

    def _discard_bad_download(self, error: CorpusError) -> None:
        path = getattr(error, "path", None)
        if path and os.path.realpath(path).startswith(os.path.realpath(self._cache_downloaded_dir) + os.sep):
            discard(path)
            error.args = (f"{error} It was a download and has been deleted: call again to get it anew.",)


def folder_fingerprint(folder: str) -> str:
    """A digest of the names, sizes and times of all files in a folder: changed files must not meet an old cache."""
    digest = hashlib.blake2b(os.path.realpath(folder).encode(), digest_size=16)
    for path, name in SourceTree([folder]).files():
        status = os.stat(path)
        digest.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def source_digest(module: ModuleType) -> str:
    """A digest of the code that generates a built-in corpus: when the code changes, so does the corpus."""
    return hashlib.blake2b((getsource(module) + getsource(toy)).encode(), digest_size=16).hexdigest()
