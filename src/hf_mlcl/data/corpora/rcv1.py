"""RCV1-v2: Reuters news with their topics."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hf_mlcl.data.builder import CorpusBuilder, Plan
from hf_mlcl.data.errors import Problems
from hf_mlcl.data.facts import all_facts
from hf_mlcl.data.sources import Member, SourceTree
from hf_mlcl.data.splits import SPLITS, Example, covering_draw, partition

TOPICS = all_facts()["rcv1"].labels
KEPT_TOPICS = 91
TRAIN_IDS = range(2286, 26151)
"""The training documents of the LYRL2004 split."""
HELD_OUT = 0.15
SMALL_SHARES = (4_950 / 23_149, 10_850 / 23_149)
"""Train and validation of the small version, of the training documents."""
QRELS = "rcv1v2.topics.qrels.gz"
QRELS_NAME = r"rcv1-?v2\.topics\.qrels"
ITEM = re.compile(r"(?:.*/)?(\d+)newsML\.xml")


class TopicTable(NamedTuple):
    """2.6 million pairs in 13 MB: sorted ids of documents, where the topics of each start, indices into `TOPICS`."""

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

    def plan(self, sources: SourceTree) -> Plan:
        """Parts the documents of the topic assignments, then reads the items that belong to a split."""
        names = sources.find(QRELS_NAME)
        topic_files = sources if names else SourceTree([self.download(QRELS)])
        with topic_files.open_one(next(iter((names or topic_files.find(QRELS_NAME)).values()))) as member:
            table = read_qrels(member, self.problems)
        pool = np.flatnonzero(np.isin(table.documents, np.asarray(TRAIN_IDS)))
        keys = [str(table.documents[row]) for row in pool]
        topics = [table.names(int(row)) for row in pool]
        part = np.full(len(table.documents), 2, dtype=np.uint8)
        part[pool] = covering_draw(keys, topics, int(HELD_OUT * len(pool)))
        labels = kept_topics(table, part)
        if self.config.size == "small":
            part[pool] = partition(keys, topics, *(round(share * len(pool)) for share in SMALL_SHARES))
        streams = {split: partial(self._items, table, part, code, labels) for code, split in enumerate(SPLITS)}
        return Plan(labels, streams)

    def _items(self, table: TopicTable, part: NDArray[np.uint8], code: int, labels: Sequence[str]) -> Iterator[Example]:
        left, kept = part == code, set(labels)

        def wanted(name: str) -> bool:
            item = ITEM.fullmatch(name)
            row = table.row(int(item[1])) if item else None
            return name.endswith(".xml") if item is None else row is not None and bool(part[row] == code)

        for member in self.sources.walk(wanted):
            document, text = news_item(member)
            row = table.row(document)
            if row is not None and left[row]:
                left[row] = False  # a folder may hold the zip of a day and its unpacked files
                yield Example(str(document), text, tuple(name for name in table.names(row) if name in kept))
        if left.any():
            first = ", ".join(map(str, table.documents[left][:5]))
            self.problems.add("items missing", f"{left.sum():,} of the {SPLITS[code]} split: {first} …")


def kept_topics(table: TopicTable, part: NDArray[np.uint8]) -> list[str]:
    """The study's 91 topics: with examples in every split, and of those the most frequent among the training ids."""
    code = np.repeat(part, np.diff(table.starts))
    counts = np.stack([np.bincount(table.topics[code == value], minlength=len(TOPICS)) for value in range(3)])
    everywhere = np.flatnonzero((counts > 0).all(axis=0)).tolist()
    frequent = sorted(everywhere, key=lambda topic: (-(counts[0] + counts[1])[topic], TOPICS[topic]))[:KEPT_TOPICS]
    return sorted(TOPICS[topic] for topic in frequent)


def read_qrels(member: Member, problems: Problems) -> TopicTable:
    """Topic assignments, one "TOPIC DOCUMENT 1" per line."""
    codes = {name: number for number, name in enumerate(TOPICS)}
    documents, topics = array("q"), array("B")
    for line, text in member.lines():
        fields = text.split()
        if not fields:
            continue
        if len(fields) != 3 or not fields[1].isdecimal() or fields[2] != "1":
            raise member.malformed(line, f"{text!r}, expected a topic, the id of a document and 1")
        if fields[0] not in codes:
            problems.add("unknown label left out", f"{member.origin}, line {line}: {fields[0]!r}")
            continue
        documents.append(int(fields[1]))
        topics.append(codes[fields[0]])
    ids = np.asarray(documents, dtype=np.int64)
    order = np.argsort(ids, kind="stable")
    unique, starts = np.unique(ids[order], return_index=True)
    return TopicTable(unique, np.append(starts, len(ids)), np.asarray(topics, dtype=np.uint8)[order])


def news_item(member: Member) -> tuple[int, str]:
    """The id of a news item, and its headline and paragraphs as one text."""
    root = member.xml()
    identity = root.get("itemid", "")
    if root.tag != "newsitem" or not identity.isdecimal():
        raise member.malformed(
            1,
            f"a <{root.tag}> with itemid={identity!r}, expected a <newsitem> with a number as itemid. Keep other XML "
            f"files out of data_dir",
        )
    if (match := ITEM.fullmatch(member.name)) and match[1] != identity:
        raise member.malformed(1, f"itemid is {identity}, but the file's name says {match[1]}")
    paragraphs = [root.findtext("headline", "")]
    paragraphs += ["".join(paragraph.itertext()) for paragraph in root.iterfind("text/p")]
    return int(identity), " ".join(" ".join(paragraphs).split())
