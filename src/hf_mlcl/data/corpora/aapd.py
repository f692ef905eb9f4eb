"""AAPD: abstracts of arXiv papers with their subjects."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, zip_longest

import datasets

from hf_mlcl.data.builder import CorpusBuilder, Plan
from hf_mlcl.data.facts import all_facts
from hf_mlcl.data.sources import Member, SourceTree
from hf_mlcl.data.splits import SPLITS, Example, Stream
from hf_mlcl.data.tables import column_names, csv_rows, flagged

LABELS = all_facts()["aapd"].labels
CSV_FILES = {"train": "train.csv", "validation": "dev.csv", "test": "test.csv"}
TEXT_COLUMNS = ("abstract", "text")
INDEX_COLUMNS = ("", "index", "id", "unnamed: 0")
"""Names under which tables are written with the numbers of their rows."""


class Aapd(CorpusBuilder):
    """Reads the study's CSV files, or the text and label files of the SGM paper.

    The files of the SGM paper have 53,840 / 1,000 / 1,000 abstracts. The study split them again; so do we, in its
    proportions, unless the option `split` says "files".
    """

    VERSION = datasets.Version("1.1.0")

    def plan(self, sources: SourceTree) -> Plan:
        """CSV files first; for the small version the study's own subset where it is there."""
        names = [member.name for member in sources.walk(re.compile(r"(?:.*/)?(?:train|dev|test)\.csv").fullmatch)]
        folders = {posixpath.dirname(name) for name in names}
        subsets = {folder for folder in folders if re.fullmatch(r"(?:.*/)?aapd-\d+", folder)}
        small = [folder for folder in subsets if posixpath.basename(folder) == "aapd-10"]
        if self.config.size == "small" and small:
            return self._csv_plan(sources, min(small, key=len))
        # A folder may hold other corpora in the same layout, as the study's repository does.
        full = sorted(folders - subsets, key=lambda name: ("aapd" not in name.lower(), len(name), name))
        plan = self._csv_plan(sources, full[0]) if full else self._sgm_plan(sources)
        return plan._replace(splits=self.resized(plan.splits))

    def _csv_plan(self, sources: SourceTree, folder: str) -> Plan:
        files = {split: posixpath.join(folder, name) for split, name in CSV_FILES.items()}
        splits = self.file_splits(files, _csv_examples)
        with sources.open_one(files[next(iter(splits))]) as member:
            labels = _layout(member, *next(_rows(member), (1, [])))[1]
        return Plan(labels, splits)

    def _sgm_plan(self, sources: SourceTree) -> Plan:
        names = sources.find(r"(?:text|label)_(?:train|val|test)")
        streams: dict[str, Stream | None] = {}
        files: dict[str, str] = {}
        for split, end in zip(SPLITS, ("train", "val", "test"), strict=True):
            text, label = names.get(f"text_{end}"), names.get(f"label_{end}")
            streams[split] = partial(_sgm_examples, sources, text, label) if text and label else None
            files[split] = f"text_{end} with label_{end}"
        splits = self.found_splits(streams, files)
        if self.config.size == "small" or self.option("split") == "files":
            return Plan(LABELS, splits)
        if len(splits) == len(SPLITS):
            return Plan(LABELS, self.resized(splits, self.FACTS.sizes))
        self.problems.add(
            "split other than the study's",
            "a split's files are missing, so that the others stay as they are: the study's split needs all",
        )
        return Plan(LABELS, splits)


def _rows(member: Member) -> Iterator[tuple[int, list[str]]]:
    return csv_rows((text + "\n" for _, text in member.lines()), member.origin)


def _layout(member: Member, line: int, first: Sequence[str]) -> tuple[int, list[str], bool]:
    """Where the texts of a CSV file are, the labels of the columns after it, and whether its first row is a header.

    A header begins with `abstract` or `text`, with or without a column of row numbers before it. Without a header, the
    columns are the text and the labels of AAPD.
    """
    text = len(first) - len(LABELS) - 1
    if text in (0, 1) and all(cell.strip() in ("0", "1", "0.0", "1.0") for cell in first[text + 1 :]):
        return text, LABELS, False
    text = 1 if len(first) > 1 and first[0].strip().lower() in INDEX_COLUMNS else 0
    if len(first) <= text or first[text].strip().lower() not in TEXT_COLUMNS:
        raise member.malformed(
            line,
            f"the header is {list(first)[:4]}…, expected {' or '.join(TEXT_COLUMNS)} (with or without a column of row "
            f"numbers before it), then one name per label; or no header, a text and {len(LABELS)} columns of 0 and 1",
        )
    return text, column_names(first[text + 1 :], f"{member.origin}, line {line},"), True


def _csv_examples(member: Member) -> Iterator[Example]:
    rows = _rows(member)
    first = next(rows, (1, []))
    place, labels, has_header = _layout(member, *first)
    for line, row in rows if has_header else chain([first], rows):
        text = "".join(row[place : place + 1]).strip()
        yield Example(text, text, flagged(member, line, labels, row[place + 1 :]), f"{member.origin}, line {line}")


def _sgm_examples(sources: SourceTree, text_name: str, label_name: str) -> Iterator[Example]:
    """A file with one text per line, and one with the space-separated labels of that line."""
    with sources.open_one(text_name) as texts, sources.open_one(label_name) as labels:
        for (line, text), (label_line, names) in zip_longest(texts.lines(), labels.lines(), fillvalue=(0, None)):
            if text is None or names is None:
                short, long = (texts, labels) if text is None else (labels, texts)
                raise short.malformed(line or label_line, f"the file ends, but {long.origin} has more lines")
            text = text.strip()
            yield Example(text, text, tuple(names.split()), f"{labels.origin}, line {line}")
