"""AAPD: abstracts of arXiv papers with their subjects."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest

import datasets

from hf_mlcl.data.builder import SPLITS, CorpusBuilder, Plan
from hf_mlcl.data.facts import CorpusFacts, RemoteFile, SplitSizes, StudyStatistics
from hf_mlcl.data.rows import csv_rows, flagged, malformed, named_columns
from hf_mlcl.data.sources import Member, SourceTree
from hf_mlcl.data.splits import Example, Stream

LABELS = str.split(
    "cmp-lg cond-mat.dis-nn cond-mat.stat-mech cs.AI cs.CC cs.CE cs.CG cs.CL cs.CR cs.CV cs.CY cs.DB cs.DC cs.DL "
    "cs.DM cs.DS cs.FL cs.GT cs.HC cs.IR cs.IT cs.LG cs.LO cs.MA cs.MM cs.MS cs.NA cs.NE cs.NI cs.PF cs.PL cs.RO "
    "cs.SC cs.SE cs.SI cs.SY math.CO math.IT math.LO math.NA math.NT math.OC math.PR math.ST nlin.AO physics.data-an "
    "physics.soc-ph q-bio.NC q-bio.QM quant-ph stat.AP stat.ME stat.ML stat.TH"
)
CSV_FILES = {"train": "train.csv", "validation": "dev.csv", "test": "test.csv"}
SGM_SUFFIXES = {"train": "train", "validation": "val", "test": "test"}
SMALL_FOLDER = "aapd-10"
SUBSET = re.compile(r"aapd-\d+")
TEXT_COLUMNS = ("abstract", "text")
INDEX_COLUMNS = ("", "index", "id", "unnamed: 0")
"""Names under which tables are written with the numbers of their rows."""

FACTS = CorpusFacts(
    name="aapd",
    kind="text",
    summary="Abstracts of 55,840 computer-science papers on arXiv, labelled with their subjects.",
    homepage="https://github.com/audibert-alexandre-fra/Multi-label-contrastive-comprehensive",
    license="Apache-2.0 (the study's repository); the abstracts are their authors'",
    citation="""@inproceedings{yang-etal-2018-sgm,
  title = {{SGM}: Sequence Generation Model for Multi-label Classification},
  author = {Yang, Pengcheng and Sun, Xu and Li, Wei and Ma, Shuming and Wu, Wei and Wang, Houfeng},
  booktitle = {Proceedings of COLING 2018},
  year = {2018}
}""",
    study=StudyStatistics("37.8k / 6.7k / 11.3k", 54, 2.4, "4.3k / 16.3k / 35.1k"),
    files=(
        RemoteFile(
            "Multi-label-contrastive-comprehensive.zip",
            "https://github.com/audibert-alexandre-fra/Multi-label-contrastive-comprehensive/archive/HEAD.zip",
        ),
    ),
    manual=(
        "put train.csv, dev.csv and test.csv (and the folder aapd-10 for the small version) from src/data/data of the "
        "study's repository into a folder; or the original text_train, text_val, text_test and label_train, label_val, "
        "label_test of the SGM paper."
    ),
    sizes=SplitSizes(37_820, 6_710, 11_310),
    small_sizes=SplitSizes(4_350, 16_350, 35_140),
)


class Aapd(CorpusBuilder):
    """Reads the study's CSV files, or the text and label files of the SGM paper.

    The files of the SGM paper have 53,840 / 1,000 / 1,000 abstracts. The study parted them anew; so do we, in its
    proportions, unless the option `split` says "files".
    """

    FACTS = FACTS
    VERSION = datasets.Version("1.1.0")
    OPTIONS = {**CorpusBuilder.OPTIONS, "split": ("study", "files")}  # noqa: RUF012

    def plan(self, sources: SourceTree) -> Plan:
        """CSV files first; for the small version the study's own subset where it is there."""
        folders = {posixpath.dirname(name) for name in sources.find(r"train\.csv|dev\.csv|test\.csv")}
        subsets = {folder for folder in folders if SUBSET.fullmatch(posixpath.basename(folder))}
        small = [folder for folder in subsets if posixpath.basename(folder) == SMALL_FOLDER]
        full = folders - subsets
        if self.config.size == "small" and small:
            return self._csv_plan(sources, min(small, key=len))
        if full:
            # A folder may hold other corpora in the same layout, as the study's repository does.
            plan = self._csv_plan(sources, min(full, key=lambda name: ("aapd" not in name.lower(), len(name), name)))
        else:
            plan = self._sgm_plan(sources)
        return Plan(plan.label_names, self.resized(plan.splits))

    def _csv_plan(self, sources: SourceTree, folder: str) -> Plan:
        found = set(sources.find("|".join(CSV_FILES.values()).replace(".", r"\.")))
        names = {split: posixpath.join(folder, name) for split, name in CSV_FILES.items()}
        streams = {split: csv_stream(sources, name) if name in found else None for split, name in names.items()}
        splits = self.found_splits(streams, names)
        with sources.open_one(names[next(iter(splits))]) as member:
            labels = layout(member, *next(csv_rows(member), (1, [])))[1]
        return Plan(labels, splits)

    def _sgm_plan(self, sources: SourceTree) -> Plan:
        names = {posixpath.basename(name): name for name in sources.find(r"(text|label)_(train|val|test)")}
        files = {split: f"text_{suffix} with label_{suffix}" for split, suffix in SGM_SUFFIXES.items()}
        streams: dict[str, Stream | None] = {}
        for split in SPLITS:
            text, label = f"text_{SGM_SUFFIXES[split]}", f"label_{SGM_SUFFIXES[split]}"
            both = text in names and label in names
            streams[split] = sgm_stream(sources, names[text], names[label]) if both else None
        if not any(streams.values()):
            raise self.missing("Neither train.csv, dev.csv, test.csv nor text_* with label_* were")
        splits = self.found_splits(streams, files)
        if self.config.size == "full" and self.option("split") == "study":
            if len(splits) < len(SPLITS):
                self.problems.add(
                    "split other than the study's",
                    "a split's files are missing, so that the others stay as they are: the study's split needs all",
                )
                return Plan(LABELS, splits)
            assert FACTS.sizes is not None
            return Plan(LABELS, self.parted_anew(splits, FACTS.sizes))
        return Plan(LABELS, splits)


def layout(member: Member, line: int, first: Sequence[str]) -> tuple[int, list[str], bool]:
    """Where the texts of a CSV file are, the labels of the columns after it, and whether its first row is a header.

    A header begins with `abstract` or `text`, with or without a column of row numbers before it. Without a header, the
    columns are the text and the labels of AAPD.
    """
    flags = [cell.strip() in ("0", "1", "0.0", "1.0") for cell in first]
    text = len(first) - len(LABELS) - 1
    if text in (0, 1) and all(flags[text + 1 :]):
        return text, LABELS, False
    text = 1 if len(first) > 1 and first[0].strip().lower() in INDEX_COLUMNS else 0
    if len(first) <= text or first[text].strip().lower() not in TEXT_COLUMNS:
        raise malformed(
            member,
            line,
            f"the header is {list(first)[:4]}…, expected {' or '.join(TEXT_COLUMNS)} (with or without a column of row "
            f"numbers before it), then one name per label; or no header, a text and {len(LABELS)} columns of 0 and 1",
        )
    return text, named_columns(member, line, first[text + 1 :]), True


def csv_stream(sources: SourceTree, name: str) -> Stream:
    """Examples of a CSV file with a column of texts and one 0/1 column per label."""

    def stream() -> Iterator[Example]:
        with sources.open_one(name) as member:
            rows = csv_rows(member)
            first = next(rows, (1, []))
            place, labels, has_header = layout(member, *first)
            for line, row in rows if has_header else chain([first], rows):
                if len(row) <= place:
                    raise malformed(member, line, f"{len(row)} columns, expected {place + 1 + len(labels)}")
                text = row[place].strip()
                flags = flagged(member, line, labels, row[place + 1 :])
                yield Example(text, text, flags, f"{member.origin}, line {line}")

    return stream


def sgm_stream(sources: SourceTree, text_name: str, label_name: str) -> Stream:
    """Examples of a file with a text a line and one with the space-separated labels of that line."""

    def stream() -> Iterator[Example]:
        with sources.open_one(text_name) as texts, sources.open_one(label_name) as labels:
            missing = (0, None)
            for (line, text), (label_line, names) in zip_longest(texts.lines(), labels.lines(), fillvalue=missing):
                if text is None or names is None:
                    short, long = (texts, labels) if text is None else (labels, texts)
                    raise malformed(short, line or label_line, f"the file ends, but {long.origin} has more lines")
                text = text.strip()
                yield Example(text, text, tuple(names.split()), f"{labels.origin}, line {line}")

    return stream
