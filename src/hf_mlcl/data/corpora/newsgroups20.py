"""20 Newsgroups, "bydate": posts with the group they were sent to. Single-label: the limit case of the losses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hf_mlcl.data.builder import CorpusBuilder, Plan
from hf_mlcl.data.facts import CorpusFacts, RemoteFile, SplitSizes, StudyStatistics
from hf_mlcl.data.sources import SourceTree
from hf_mlcl.data.splits import Example, Stream, draw

LABELS = str.split(
    "alt.atheism comp.graphics comp.os.ms-windows.misc comp.sys.ibm.pc.hardware comp.sys.mac.hardware comp.windows.x "
    "misc.forsale rec.autos rec.motorcycles rec.sport.baseball rec.sport.hockey sci.crypt sci.electronics sci.med "
    "sci.space soc.religion.christian talk.politics.guns talk.politics.mideast talk.politics.misc talk.religion.misc"
)
HELD_OUT = 0.1
"""Part of the official training posts that becomes the validation split."""
POST = re.compile(r"(?:.*/)?20news-bydate-(train|test)/([^/]+)/([^/]+)")

FACTS = CorpusFacts(
    name="newsgroups20",
    kind="text",
    summary="Posts to 20 newsgroups, each labelled with its group; the training posts are older than the test posts.",
    homepage="http://qwone.com/~jason/20Newsgroups/",
    license="research use",
    citation="""@inproceedings{Lang95,
  author = {Lang, Ken},
  title = {{NewsWeeder}: Learning to Filter Netnews},
  booktitle = {Proceedings of the Twelfth International Conference on Machine Learning},
  year = {1995}
}""",
    study=StudyStatistics("11.3k, validation held out of it / 7.5k", 20, 1.0),
    files=(
        RemoteFile(
            "20news-bydate.tar.gz",
            "https://ndownloader.figshare.com/files/5975967",
            sha256="8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
        ),
    ),
    manual="put 20news-bydate.tar.gz, or the folders 20news-bydate-train and 20news-bydate-test, into a folder.",
    sizes=SplitSizes(10_183, 1_131, 7_532),
)


class Newsgroups20(CorpusBuilder):
    """Reads one post a file, as it was sent (Latin-1), headers included."""

    FACTS = FACTS

    def plan(self, sources: SourceTree) -> Plan:
        """A tenth of the official training posts is held out for validation."""
        validation, train = draw(post_stream(sources, "train"), HELD_OUT)
        return Plan(LABELS, {"train": train, "validation": validation, "test": post_stream(sources, "test")})


def post_stream(sources: SourceTree, part: str) -> Stream:
    """The posts of the official "train" or "test" part."""

    def wanted(name: str) -> bool:
        match = POST.fullmatch(name)
        return match is not None and match[1] == part

    def stream() -> Iterator[Example]:
        for member in sources.walk(wanted):
            match = POST.fullmatch(member.name)
            assert match is not None
            key, text = f"{part}/{match[2]}/{match[3]}", member.read().decode("latin-1")
            yield Example(key, text, (match[2],), member.origin)

    return stream
