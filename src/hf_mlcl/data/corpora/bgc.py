"""BGC: blurbs of books with their genres."""

from __future__ import annotations

import html
import posixpath
import re
from collections.abc import Iterator

from hf_mlcl.data.builder import CorpusBuilder, Plan
from hf_mlcl.data.facts import CorpusFacts, RemoteFile, SplitSizes, StudyStatistics
from hf_mlcl.data.rows import malformed
from hf_mlcl.data.sources import Member, SourceTree
from hf_mlcl.data.splits import Example, Stream, chain

FILES = {
    "train": "BlurbGenreCollection_EN_train.txt",
    "validation": "BlurbGenreCollection_EN_dev.txt",
    "test": "BlurbGenreCollection_EN_test.txt",
}
HIERARCHY = "hierarchy.txt"
MAX_BOOK_LINES = 10_000
BEFORE_BOOK = re.compile(r"(?=<book[\s>])")
BODY = re.compile(r"<body>(.*?)</body>", re.DOTALL)
ISBN = re.compile(r"<isbn>(.*?)</isbn>", re.DOTALL)
TOPICS = re.compile(r"<topics>(.*?)</topics>", re.DOTALL)
TOPIC = re.compile(r"<d(\d)>(.*?)</d\1>", re.DOTALL)

FACTS = CorpusFacts(
    name="bgc",
    kind="text",
    summary="Promotional texts (blurbs) of English books, labelled with their genres at every depth of a hierarchy.",
    homepage="https://www.inf.uni-hamburg.de/en/inst/ab/lt/resources/data/blurb-genre-collection.html",
    license="CC BY-NC 4.0",
    citation="""@inproceedings{aly-etal-2019-hierarchical,
  title = {Hierarchical Multi-label Classification of Text with Capsule Networks},
  author = {Aly, Rami and Remus, Steffen and Biemann, Chris},
  booktitle = {Proceedings of the ACL Student Research Workshop},
  year = {2019}
}""",
    study=StudyStatistics("58.7k / 14.7k / 18.3k", 146, 3.0, "5.8k / 30.6k / 55.3k"),
    files=(
        RemoteFile("blurbgenrecollectionen.zip", "https://fiona.uni-hamburg.de/ca89b3cf/blurbgenrecollectionen.zip"),
    ),
    manual=(
        "put BlurbGenreCollection_EN_train.txt, BlurbGenreCollection_EN_dev.txt, BlurbGenreCollection_EN_test.txt and "
        "hierarchy.txt, or the zip that holds them, into a folder."
    ),
    sizes=SplitSizes(58_715, 14_785, 18_394),
    small_sizes=SplitSizes(5_850, 30_650, 55_394),
)


class Bgc(CorpusBuilder):
    """Reads the collection's tagged text. It looks like XML but is not: ampersands stand unescaped."""

    FACTS = FACTS

    def plan(self, sources: SourceTree) -> Plan:
        """Labels are the genres of the hierarchy file and of the books, sorted."""
        pattern = "|".join([*FILES.values(), HIERARCHY]).replace(".", r"\.")
        found = {posixpath.basename(name): name for name in sources.find(pattern)}
        streams = {split: book_stream(sources, found[name]) if name in found else None for split, name in FILES.items()}
        splits = self.found_splits(streams, FILES)
        labels = {genre for example in chain(*splits.values())() for genre in example.labels}
        if HIERARCHY in found:
            with sources.open_one(found[HIERARCHY]) as member:
                labels.update(part.strip() for _, text in member.lines() for part in text.split("\t") if part.strip())
        return Plan(sorted(labels), self.resized(splits))


def book_stream(sources: SourceTree, name: str) -> Stream:
    """The `<book>` elements of a file: the blurb as text, every genre of every depth as labels."""

    def stream() -> Iterator[Example]:
        with sources.open_one(name) as member:
            for line, book in books(member):
                body, topics = BODY.search(book), TOPICS.search(book)
                if body is None or topics is None:
                    raise malformed(member, line, f"this <book> has no <{'body' if body is None else 'topics'}>")
                text = html.unescape(body[1]).strip()
                isbn = ISBN.search(book)
                genres = dict.fromkeys(html.unescape(topic[2]).strip() for topic in TOPIC.finditer(topics[1]))
                key = f"{isbn[1].strip() if isbn else ''} {text}"
                yield Example(key, text, tuple(filter(None, genres)), f"{member.origin}, line {line}")

    return stream


def books(member: Member) -> Iterator[tuple[int, str]]:
    """Each `<book …>…</book>` with the line on which it starts."""
    start, kept = 0, list[str]()
    for line, text in member.lines():
        for piece in BEFORE_BOOK.split(text):
            opens = BEFORE_BOOK.match(piece) is not None
            if opens and kept:
                raise malformed(member, start, f"this <book> is not closed before the next one on line {line}")
            if opens:
                start = line
            if opens or kept:
                kept.append(piece)
            if kept and "</book>" in piece:
                yield start, "\n".join(kept)
                kept = []
        if len(kept) > MAX_BOOK_LINES:
            raise malformed(member, start, f"this <book> is not closed within {MAX_BOOK_LINES} lines")
    if kept:
        raise malformed(member, start, "the file ends inside this <book>: it is truncated")
