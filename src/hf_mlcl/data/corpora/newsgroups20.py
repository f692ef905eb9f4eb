"""20 Newsgroups, "bydate": posts with the group they were sent to. Single-label: the limit case of the losses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from hf_mlcl.data.builder import CorpusBuilder, Plan
from hf_mlcl.data.sources import SourceTree
from hf_mlcl.data.splits import Example, draw

LABELS = str.split(
    "alt.atheism comp.graphics comp.os.ms-windows.misc comp.sys.ibm.pc.hardware comp.sys.mac.hardware comp.windows.x "
    "misc.forsale rec.autos rec.motorcycles rec.sport.baseball rec.sport.hockey sci.crypt sci.electronics sci.med "
    "sci.space soc.religion.christian talk.politics.guns talk.politics.mideast talk.politics.misc talk.religion.misc"
)


class Newsgroups20(CorpusBuilder):
    """Reads one post per file, as it was sent (Latin-1), headers included."""

    def plan(self, sources: SourceTree) -> Plan:
        """A tenth of the official training posts is held out for validation."""
        validation, train = draw(partial(_posts, sources, "train"), fraction=0.1)
        return Plan(LABELS, {"train": train, "validation": validation, "test": partial(_posts, sources, "test")})


def _posts(sources: SourceTree, part: str) -> Iterator[Example]:
    post = re.compile(rf"(?:.*/)?20news-bydate-({part}/([^/]+)/[^/]+)")
    for member in sources.walk(post.fullmatch):
        if match := post.fullmatch(member.name):
            yield Example(match[1], member.read().decode("latin-1"), (match[2],), member.origin)
