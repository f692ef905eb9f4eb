"""RCV1-v2: Reuters news with their topics."""

from __future__ import annotations

import posixpath
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hf_mlcl.data.builder import SPLITS, CorpusBuilder, Plan
from hf_mlcl.data.errors import CorpusFormatError, Problems
from hf_mlcl.data.facts import CorpusFacts, RemoteFile, SplitSizes, StudyStatistics
from hf_mlcl.data.rows import malformed
from hf_mlcl.data.sources import Member, SourceTree
from hf_mlcl.data.splits import Example, Stream, covering_draw, partition, scaled
from hf_mlcl.data.xml_text import parse_xml

TOPICS = str.split(
    "C11 C12 C13 C14 C15 C151 C1511 C152 C16 C17 C171 C172 C173 C174 C18 C181 C182 C183 C21 C22 C23 C24 C31 C311 C312 "
    "C313 C32 C33 C331 C34 C41 C411 C42 CCAT E11 E12 E121 E13 E131 E132 E14 E141 E142 E143 E21 E211 E212 E31 E311 "
    "E312 E313 E41 E411 E51 E511 E512 E513 E61 E71 ECAT G15 G151 G152 G153 G154 G155 G156 G157 G158 G159 GCAT GCRIM "
    "GDEF GDIP GDIS GENT GENV GFAS GHEA GJOB GMIL GOBIT GODD GPOL GPRO GREL GSCI GSPO GTOUR GVIO GVOTE GWEA GWELF M11 "
    "M12 M13 M131 M132 M14 M141 M142 M143 MCAT"
)
KEPT_TOPICS = 91
TRAIN_IDS = range(2286, 26151)
"""The training documents of the LYRL2004 split."""
HELD_OUT = 0.15
QRELS = "rcv1v2.topics.qrels.gz"
QRELS_NAME = r"rcv1-?v2\.topics\.qrels"
ITEM = re.compile(r"(?:.*/)?(\d+)newsML\.xml")

FACTS = CorpusFacts(
    name="rcv1",
    kind="text",
    summary="News stories of Reuters from 1996 and 1997, labelled with their topics (RCV1-v2, LYRL2004 split).",
    homepage="https://trec.nist.gov/data/reuters/reuters.html",
    license="signed agreement with NIST; the topic assignments are public",
    citation="""@article{lewis2004rcv1,
  title = {{RCV1}: A New Benchmark Collection for Text Categorization Research},
  author = {Lewis, David D. and Yang, Yiming and Rose, Tony G. and Li, Fan},
  journal = {Journal of Machine Learning Research},
  volume = {5},
  year = {2004}
}""",
    study=StudyStatistics("19.6k / 3.4k / 781.2k", 91, 3.2, "4.9k / 10.8k / 788.6k"),
    files=(
        RemoteFile(
            QRELS,
            "https://ndownloader.figshare.com/files/5976048",
            sha256="2a98e5e5d8b770bded93afc8930d88299474317fe14181aee1466cc754d0d1c1",
        ),
    ),
    manual=(
        "sign the agreement at NIST to get the two CDs of Reuters Corpus Volume 1, and copy them into a folder: the "
        "zip files of each day (19960820.zip …), or unpacked, the files <id>newsML.xml. The topic assignments "
        "rcv1v2.topics.qrels.gz are downloaded if they are not in the folder."
    ),
    download_all=False,
    sizes=SplitSizes(19_677, 3_472, 781_265),
    small_sizes=SplitSizes(4_950, 10_850, 788_614),
)


@dataclass(frozen=True)
class TopicTable:
    """2.6 million (document, topic) pairs in 13 MB.

    Args:
        documents: Ids, sorted.
        starts: Where each document's topics start in `topics`; one more at the end.
        topics: Indices into `TOPICS`.
    """

    documents: NDArray[np.int64]
    starts: NDArray[np.int64]
    topics: NDArray[np.uint8]

    def names(self, row: int) -> tuple[str, ...]:
        """The topics of a row."""
        return tuple(TOPICS[topic] for topic in self.topics[self.starts[row] : self.starts[row + 1]])

    def row(self, document: int) -> int | None:
        """The row of a document; None if it has no topics."""
        row = int(np.searchsorted(self.documents, document))
        return row if row < len(self.documents) and self.documents[row] == document else None


class Rcv1(CorpusBuilder):
    """Reads news items one by one; only ids and topics are held in memory."""

    FACTS = FACTS

    def plan(self, sources: SourceTree) -> Plan:
        """Parts the documents of the topic assignments, then reads the items that belong to a split."""
        table = self._topics(sources)
        in_pool = np.isin(table.documents, np.arange(TRAIN_IDS.start, TRAIN_IDS.stop))
        pool = np.flatnonzero(in_pool)
        keys = [str(table.documents[row]) for row in pool]
        topics = [table.names(int(row)) for row in pool]
        part = np.full(len(table.documents), 2, dtype=np.uint8)
        part[pool] = covering_draw(keys, topics, int(HELD_OUT * len(pool)))
        labels = kept_topics(table, part)
        if self.config.size == "small":
            train, validation = scaled(4_950, 23_149, len(pool)), scaled(10_850, 23_149, len(pool))
            part[pool] = partition(keys, topics, train, validation)
        kept = set(labels)
        return Plan(labels, {split: self._items(table, part, code, kept) for code, split in enumerate(SPLITS)})

    def _topics(self, sources: SourceTree) -> TopicTable:
        names = sources.find(QRELS_NAME)
        if not names:
            sources = SourceTree([self.download(QRELS)])
            names = sources.find(QRELS_NAME)
        with sources.open_one(names[0]) as member:
            return read_qrels(member, self.problems)

    def _items(self, table: TopicTable, part: NDArray[np.uint8], code: int, kept: set[str]) -> Stream:
        def row_of(document: int) -> int | None:
            row = table.row(document)
            return row if row is not None and part[row] == code else None

        def wanted(name: str) -> bool:
            item = ITEM.fullmatch(name)
            return name.endswith(".xml") if item is None else row_of(int(item[1])) is not None

        def stream() -> Iterator[Example]:
            left = part == code
            for member in self.sources.walk(wanted):
                document, text = news_item(member)
                row = row_of(document)
                if row is not None and left[row]:
                    left[row] = False  # a folder may hold the zip of a day and its unpacked files
                    yield Example(str(document), text, tuple(name for name in table.names(row) if name in kept))
            if left.any():
                first = ", ".join(map(str, table.documents[left][:5]))
                self.problems.add("items missing", f"{left.sum():,} of the {SPLITS[code]} split: {first} …")

        return stream


def kept_topics(table: TopicTable, part: NDArray[np.uint8]) -> list[str]:
    """The study's 91 topics: with examples in every split, and of those the most frequent among the training ids."""
    code = np.repeat(part, np.diff(table.starts))
    counts = np.stack([np.bincount(table.topics[code == value], minlength=len(TOPICS)) for value in range(3)])
    everywhere = np.flatnonzero((counts > 0).all(axis=0))
    frequent = sorted(everywhere, key=lambda topic: (-(counts[0] + counts[1])[topic], TOPICS[topic]))[:KEPT_TOPICS]
    return sorted(TOPICS[topic] for topic in frequent)


def read_qrels(member: Member, problems: Problems) -> TopicTable:
    """Topic assignments, one "TOPIC DOCUMENT 1" a line."""
    codes = {name: number for number, name in enumerate(TOPICS)}
    documents, topics = array("q"), array("B")
    for line, text in member.lines():
        fields = text.split()
        if not fields:
            continue
        if len(fields) != 3 or not fields[1].isdecimal() or fields[2] != "1":
            raise malformed(member, line, f"{text!r}, expected a topic, the id of a document and 1")
        if fields[0] not in codes:
            problems.add("unknown label left out", f"{member.origin}, line {line}: {fields[0]!r}")
            continue
        documents.append(int(fields[1]))
        topics.append(codes[fields[0]])
    ids = np.frombuffer(documents, dtype=np.int64) if documents else np.empty(0, np.int64)
    order = np.argsort(ids, kind="stable")
    unique, starts = np.unique(ids[order], return_index=True)
    values = np.frombuffer(topics, dtype=np.uint8)[order] if topics else np.empty(0, np.uint8)
    return TopicTable(unique, np.append(starts, len(ids)), values)


def news_item(member: Member) -> tuple[int, str]:
    """The id of a news item, and its headline and paragraphs as one text."""
    root = parse_xml(member)
    identity = root.get("itemid", "")
    if root.tag != "newsitem" or not identity.isdecimal():
        raise CorpusFormatError(
            f"{member.origin}, line 1: a <{root.tag}> with itemid={identity!r}, expected a <newsitem> with a number as "
            f"itemid. Keep other XML files out of data_dir."
        )
    paragraphs = [root.findtext("headline", "")]
    paragraphs += ["".join(paragraph.itertext()) for paragraph in root.iterfind("text/p")]
    name = posixpath.basename(member.name)
    match = ITEM.fullmatch(name)
    if match and match[1] != identity:
        raise CorpusFormatError(f"{member.origin}, line 1: itemid is {identity}, but the file's name says {match[1]}.")
    return int(identity), " ".join(" ".join(paragraphs).split())
