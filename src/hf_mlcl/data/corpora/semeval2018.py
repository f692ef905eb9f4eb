"""SemEval-2018 Task 1 E-c: tweets with the emotions they express."""

from __future__ import annotations

from collections.abc import Iterator

from hf_mlcl.data.builder import CorpusBuilder, Plan
from hf_mlcl.data.sources import Member, SourceTree
from hf_mlcl.data.splits import Example
from hf_mlcl.data.tables import column_names, flagged

FILES = {"train": "2018-E-c-En-train.txt", "validation": "2018-E-c-En-dev.txt", "test": "2018-E-c-En-test-gold.txt"}


class Semeval2018(CorpusBuilder):
    """Reads the tab-separated files of the task; tweets without an emotion stay in, unless `labelled_only`."""

    def plan(self, sources: SourceTree) -> Plan:
        """One file per split."""
        return Plan(self.FACTS.labels, self.file_splits(FILES, tweets))


def tweets(member: Member) -> Iterator[Example]:
    """A file with the columns `ID`, `Tweet` and one 0/1 column per emotion. Quotes have no meaning in it."""
    rows = ((line, text.split("\t")) for line, text in member.lines() if text.strip())
    line, header = next(rows, (1, []))
    names = column_names(header, f"{member.origin}, line {line},")
    if names[:2] != ["ID", "Tweet"]:
        raise member.malformed(line, f"the header is {header[:4]}…, expected ID, Tweet, then one name per label")
    for line, row in rows:
        if len(row) != len(names):
            raise member.malformed(line, f"{len(row)} columns, expected {len(names)}")
        labels = flagged(member, line, names[2:], row[2:])
        yield Example(row[0], row[1], labels, f"{member.origin}, line {line}")
