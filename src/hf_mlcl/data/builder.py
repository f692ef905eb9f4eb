"""What every corpus's builder shares: finding the files, numbering labels, keeping count of what is left out."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import datasets
from datasets import ClassLabel, DatasetInfo, Features, GeneratorBasedBuilder, Image, List, SplitGenerator, Value

from hf_mlcl.data.download import discard, fetch
from hf_mlcl.data.errors import PROBLEMS_FILE, CorpusError, CorpusFileError, Problems
from hf_mlcl.data.facts import CorpusFacts, SplitSizes, all_facts
from hf_mlcl.data.images import image_defect
from hf_mlcl.data.sources import Member, SourceTree
from hf_mlcl.data.splits import SPLITS, Example, Stream, chain, covering_draw, halves, repartition

SMALL_FRACTION = 0.2
"""Part of the training images that the study's small versions keep."""
LabelNames = tuple[str, ...]


@dataclass
class CorpusConfig(datasets.BuilderConfig):  # type: ignore[misc]
    """What a built corpus depends on beside its files, all of it in the cache's key; `options` without defaults."""

    size: str = "full"
    strict: bool = False
    options: dict[str, Any] = field(default_factory=dict)


class Plan(NamedTuple):
    """What a builder found: labels, streams of examples, and by key the labels that are neither present nor absent."""

    label_names: Sequence[str]
    splits: Mapping[str, Stream]
    ignored: Mapping[str, LabelNames] | None = None


class CorpusBuilder(GeneratorBasedBuilder):  # type: ignore[misc]
    """Base of the corpora. A subclass turns the files of the corpus into a `Plan`.

    Each lives in a module of its own: `datasets` names its cache after the module, and the module names its `FACTS`.
    """

    BUILDER_CONFIG_CLASS = CorpusConfig
    VERSION = datasets.Version("1.0.0")  # raise it in a subclass when its rules change: the cache's key holds it
    FACTS: ClassVar[CorpusFacts]
    problems: Problems
    sources: SourceTree
    _label_ids: dict[str, int]
    _plan: Plan

    def __init_subclass__(cls) -> None:
        cls.FACTS = all_facts()[cls.__module__.rpartition(".")[2]]

    def plan(self, sources: SourceTree) -> Plan:
        """Look through the files and say which examples go into which split."""
        raise NotImplementedError("A subclass of CorpusBuilder states its plan.")

    def option(self, name: str) -> Any:
        """The value of one of the corpus's options."""
        return {**self.FACTS.default_options(self.config.size), **self.config.options}[name]

    def download(self, name: str) -> str:
        """Fetch one of the official files and return where it is."""
        file = next(file for file in self.FACTS.files if file.name == name)
        return fetch(file, f"{self._cache_downloaded_dir}/hf_mlcl/{self.FACTS.name}", self._by_hand())

    def _by_hand(self) -> str:
        return (
            f"To get {self.FACTS.name} by hand: {self.FACTS.manual}\n"
            f'Then load_corpus("{self.FACTS.name}", data_dir="the/folder"). '
            f"Archives may stay packed or be unpacked, files may be gzipped or not. See {self.FACTS.homepage}"
        )

    def missing(self, what: str) -> CorpusFileError:
        """The error for files that are not in `data_dir`."""
        return CorpusFileError(f"{what} not found in {self.sources}.\n{self._by_hand()}")

    def file_splits(
        self, files: Mapping[str, str], examples: Callable[[Member], Iterator[Example]]
    ) -> dict[str, Stream]:
        """The splits whose file (named with or without its folders) is there; `examples` reads one."""
        known = self.sources.find("|".join(map(re.escape, files.values())))

        def stream(name: str) -> Iterator[Example]:
            with self.sources.open_one(known[name]) as member:
                yield from examples(member)

        streams = {split: partial(stream, name) if name in known else None for split, name in files.items()}
        return self.found_splits(streams, files)

    def found_splits(self, streams: Mapping[str, Stream | None], files: Mapping[str, str]) -> dict[str, Stream]:
        """Drop the splits whose stream is None since files are absent, with a note; all absent is an error."""
        found = {split: stream for split, stream in streams.items() if stream is not None}
        if not found:
            raise self.missing(f"None of {', '.join(files.values())} was")
        for split in streams.keys() - found.keys():
            self.problems.add("split left out", f"{split}: {files[split]} is not in {self.sources}")
        return found

    def resized(self, splits: Mapping[str, Stream], sizes: SplitSizes | None = None) -> Mapping[str, Stream]:
        """All examples split again in the proportions of `sizes`, or of the small version, if it is to be built."""
        sizes = self.FACTS.small_sizes if self.config.size == "small" else sizes
        if sizes is None:
            return splits
        return repartition(chain(*splits.values()), sizes.train / sizes.total, sizes.validation / sizes.total)

    def image_splits(
        self,
        train: Mapping[str, LabelNames],
        held_out: Mapping[str, LabelNames],
        image: re.Pattern[str],
        halved: Callable[[Sequence[str]], tuple[set[str], set[str]]] = halves,
    ) -> dict[str, Stream]:
        """The study's rule for images: the released evaluation set is halved; small training sets are a fifth.

        The tables hold the labels of each image by the first group of `image`, which matches names of image files.
        """
        if self.config.size == "small":
            rows, seed = round(SMALL_FRACTION * len(train)), self.option("draw_seed")
            drawn = covering_draw(list(train), list(train.values()), rows, seed)
            train = {key: labels for (key, labels), kept in zip(train.items(), drawn, strict=True) if kept}
        tables = (train, *({key: held_out[key] for key in held_out if key in half} for half in halved(list(held_out))))
        return {split: self._images(table, image) for split, table in zip(SPLITS, tables, strict=True)}

    def _images(self, labels: Mapping[str, LabelNames], image: re.Pattern[str]) -> Stream:
        def key_of(name: str) -> str:
            match = image.fullmatch(name)
            return match[1] if match else ""

        def stream() -> Iterator[Example]:
            left = set(labels)
            for member in self.sources.walk(lambda name: key_of(name) in left):
                key = key_of(member.name)
                left.discard(key)  # a folder may hold an archive and its unpacked files
                yield Example(key, member.read(), labels[key], member.origin)
            for key in sorted(left):
                self.problems.add("image left out", f"{key}: not in {self.sources}")

        return stream

    def _info(self) -> DatasetInfo:
        facts = self.FACTS
        return DatasetInfo(facts.description(), citation=facts.citation, homepage=facts.homepage, license=facts.license)

    def _split_generators(self, dl_manager: Any) -> list[SplitGenerator]:
        self.problems = Problems(strict=self.config.strict)
        if dl_manager.manual_dir is not None:
            self.sources = SourceTree([dl_manager.manual_dir])
        elif not self.FACTS.download_all:
            raise CorpusFileError(f"{self.FACTS.name} needs data_dir.\n{self._by_hand()}")
        else:
            self.sources = SourceTree([self.download(file.name) for file in self.FACTS.files])
        self._plan = self.plan(self.sources)
        self._label_ids = {name: number for number, name in enumerate(self._plan.label_names)}
        content = Value("string") if self.FACTS.modality == "text" else Image()
        columns = ["labels"] if self._plan.ignored is None else ["labels", "ignored"]
        labels = List(ClassLabel(names=list(self._plan.label_names)))
        self.info.features = Features({self.FACTS.modality: content, **dict.fromkeys(columns, labels)})
        return [SplitGenerator(split, {"split": split}) for split in SPLITS if split in self._plan.splits]

    def _generate_examples(self, split: str) -> Iterator[tuple[int, dict[str, Any]]]:
        rows = 0
        for example in self._plan.splits[split]():
            row = self._row(example)
            if row is not None and (row["labels"] or not self.option("labelled_only")):
                yield rows, row
                rows += 1
        if rows == 0:
            raise CorpusFileError(f"The {split} split of {self.FACTS.name} has no example.\n{self._by_hand()}")

    def _row(self, example: Example) -> dict[str, Any] | None:
        for name in example.labels:
            if name not in self._label_ids:
                self.problems.add("unknown label left out", f"{example.origin or example.key}: {name!r}")
        row: dict[str, Any] = {"labels": self._ids(example.labels)}
        if isinstance(example.content, str):
            return {"text": example.content, **row}
        defect = image_defect(example.content)
        if defect is not None:
            self.problems.add("image left out", f"{example.origin or example.key}: {defect}")
            return None
        if self._plan.ignored is not None:
            row["ignored"] = self._ids(self._plan.ignored.get(example.key, ()))
        return {"image": {"bytes": example.content, "path": example.key.rsplit("/", 1)[-1]}, **row}

    def _ids(self, names: LabelNames) -> list[int]:
        return sorted({self._label_ids[name] for name in names if name in self._label_ids})

    def _download_and_prepare(self, dl_manager: Any, verification_mode: Any, **kwargs: Any) -> None:
        try:
            super()._download_and_prepare(dl_manager, verification_mode, **kwargs)
        except (CorpusError, datasets.exceptions.DatasetGenerationError) as error:
            cause = error if isinstance(error, CorpusError) else error.__cause__
            if not isinstance(cause, CorpusError):
                raise
            downloads = os.path.realpath(self._cache_downloaded_dir) + os.sep
            if cause.path and os.path.realpath(cause.path).startswith(downloads):
                discard(cause.path)
                cause.args = (f"{cause} It was a download and has been deleted: call again to get it again.",)
            raise cause from None  # it says what is wrong; "an error occurred" does not
        # Written into the folder that becomes the cache when everything is there.
        with open(f"{self._output_dir}/{PROBLEMS_FILE}", "w", encoding="utf-8") as file:
            json.dump(self.problems.found, file, ensure_ascii=False, indent=1)


def folder_fingerprint(folder: str) -> str:
    """A digest of the names, sizes and times of all files in a folder: changed files must not meet an old cache."""
    digest = hashlib.blake2b(os.path.realpath(folder).encode(), digest_size=16)
    for path, name in SourceTree([folder]).files():
        status = os.stat(path)
        digest.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
