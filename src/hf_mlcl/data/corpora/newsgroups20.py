"""20 Newsgroups, "bydate": posts with the group they were sent to. Single-label: the limit case of the losses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from hf_mlcl.data.builder import CorpusBuilder, Plan
from hf_mlcl.data.sources import SourceTree
from hf_mlcl.data.splits import Example, draw


class Newsgroups20(CorpusBuilder):
    """Reads one post per file, as it was sent (Latin-1), headers included."""

    def plan(self, sources: SourceTree) -> Plan:
        """A tenth of the official training posts is held out for validation."""
        validation, train = draw(partial(_posts, sources, "train"), fraction=0.1)
        return Plan(
            self.FACTS.labels, {"train": train, "validation": validation, "test": partial(_posts, sources, "test")}
        )


def _posts(sources: SourceTree, part: str) -> Iterator[Example]:
    post = re.compile(rf"(?:.*/)?20news-bydate-({part}/([^/]+)/[^/]+)")
    for member in sources.walk(post.fullmatch):
        if match := post.fullmatch(member.name):
            yield Example(match[1], member.read().decode("latin-1"), (match[2],), member.origin)
