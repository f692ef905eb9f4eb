"""20 Newsgroups, "bydate": posts with the group they were sent to. Single-label: the limit case of the losses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hf_mlcl.data.builder import CorpusBuilder, Plan
from hf_mlcl.data.sources import SourceTree
from hf_mlcl.data.splits import Example, Stream, draw

LABELS = str.split(
    "alt.atheism comp.graphics comp.os.ms-windows.misc comp.sys.ibm.pc.hardware comp.sys.mac.hardware comp.windows.x "
    "misc.forsale rec.autos rec.motorcycles rec.sport.baseball rec.sport.hockey sci.crypt sci.electronics sci.med "
    "sci.space soc.religion.christian talk.politics.guns talk.politics.mideast talk.politics.misc talk.religion.misc"
)
HELD_OUT = 0.1
"""Part of the official training posts that becomes the validation split."""


class Newsgroups20(CorpusBuilder):
    """Reads one post a file, as it was sent (Latin-1), headers included."""

    def plan(self, sources: SourceTree) -> Plan:
        """A tenth of the official training posts is held out for validation."""
        validation, train = draw(post_stream(sources, "train"), HELD_OUT)
        return Plan(LABELS, {"train": train, "validation": validation, "test": post_stream(sources, "test")})


def post_stream(sources: SourceTree, part: str) -> Stream:
    """The posts of the official "train" or "test" part."""
    post = re.compile(rf"(?:.*/)?20news-bydate-({part}/([^/]+)/[^/]+)")

    def stream() -> Iterator[Example]:
        for member in sources.walk(post.fullmatch):
            if match := post.fullmatch(member.name):
                yield Example(match[1], member.read().decode("latin-1"), (match[2],), member.origin)

    return stream
