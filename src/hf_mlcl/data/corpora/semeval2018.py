"""SemEval-2018 Task 1 E-c: tweets with the emotions they express."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from hf_mlcl.data.builder import CorpusBuilder, Plan
from hf_mlcl.data.facts import CorpusFacts, RemoteFile, SplitSizes, StudyStatistics
from hf_mlcl.data.rows import checked_header, flagged, malformed
from hf_mlcl.data.sources import Member, SourceTree
from hf_mlcl.data.splits import Example, Stream

LABELS = str.split("anger anticipation disgust fear joy love optimism pessimism sadness surprise trust")
FILES = {
    "train": "2018-E-c-En-train.txt",
    "validation": "2018-E-c-En-dev.txt",
    "test": "2018-E-c-En-test-gold.txt",
}

FACTS = CorpusFacts(
    name="semeval2018",
    kind="text",
    summary="English tweets labelled with any of eleven emotions, or none (SemEval-2018 Task 1, subtask E-c).",
    homepage="https://competitions.codalab.org/competitions/17751",
    license="research use",
    citation="""@inproceedings{SemEval2018Task1,
  author = {Mohammad, Saif M. and Bravo-Marquez, Felipe and Salameh, Mohammad and Kiritchenko, Svetlana},
  title = {{SemEval-2018 Task 1}: Affect in Tweets},
  booktitle = {Proceedings of the International Workshop on Semantic Evaluation (SemEval-2018)},
  year = {2018}
}""",
    study=StudyStatistics("6.6k / 1.0k / 3.2k", 11, 2.4),
    files=(
        RemoteFile(
            "SemEval2018-Task1-all-data.zip",
            "https://saifmohammad.com/WebDocs/AIT-2018/AIT2018-DATA/SemEval2018-Task1-all-data.zip",
        ),
    ),
    manual="put SemEval2018-Task1-all-data.zip, or the files 2018-E-c-En-{train,dev,test-gold}.txt, into a folder.",
    sizes=SplitSizes(6_838, 886, 3_259),
    labelled_sizes=SplitSizes(6_634, 872, 3_184),
)


class Semeval2018(CorpusBuilder):
    """Reads the tab-separated files of the task; tweets without an emotion stay in, unless `labelled_only`."""

    FACTS = FACTS

    def plan(self, sources: SourceTree) -> Plan:
        """One file a split."""
        pattern = "|".join(FILES.values()).replace(".", r"\.")
        found = {posixpath.basename(name): name for name in sources.find(pattern)}
        streams = {split: tsv_stream(sources, found[name]) if name in found else None for split, name in FILES.items()}
        return Plan(LABELS, self.found_splits(streams, FILES))


def tsv_stream(sources: SourceTree, name: str) -> Stream:
    """Examples of a file with the columns `ID`, `Tweet` and one 0/1 column an emotion. Quotes have no meaning in it."""

    def fields(member: Member) -> Iterator[tuple[int, list[str]]]:
        return ((line, text.split("\t")) for line, text in member.lines() if text.strip())

    def stream() -> Iterator[Example]:
        with sources.open_one(name) as member:
            rows = fields(member)
            line, header = next(rows, (1, []))
            labels = checked_header(member, line, header, ["ID", "Tweet"])
            for line, row in rows:
                if len(row) < 2:
                    raise malformed(member, line, f"{len(row)} columns, expected {2 + len(labels)}")
                flags = flagged(member, line, labels, row[2:])
                yield Example(row[0], row[1], flags, f"{member.origin}, line {line}")

    return stream
