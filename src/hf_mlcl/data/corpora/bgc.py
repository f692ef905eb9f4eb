"""BGC: blurbs of books with their genres."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from hf_mlcl.data.builder import CorpusBuilder, Plan
from hf_mlcl.data.sources import Member, SourceTree
from hf_mlcl.data.splits import Example, chain

FILES = {
    "train": "BlurbGenreCollection_EN_train.txt",
    "validation": "BlurbGenreCollection_EN_dev.txt",
    "test": "BlurbGenreCollection_EN_test.txt",
}
MAX_BOOK_LINES = 10_000
BEFORE_BOOK = re.compile(r"(?=<book[\s>])")
TOPIC = re.compile(r"<d(\d)>(.*?)</d\1>", re.DOTALL)


class Bgc(CorpusBuilder):
    """Reads the collection's tagged text. It looks like XML but is not: ampersands stand unescaped."""

    def plan(self, sources: SourceTree) -> Plan:
        """Labels are the genres of the hierarchy file and of the books, sorted."""
        splits = self.file_splits(FILES, books)
        labels = {genre for example in chain(*splits.values())() for genre in example.labels}
        for name in sources.find(r"hierarchy\.txt").values():
            with sources.open_one(name) as member:
                labels.update(part.strip() for _, text in member.lines() for part in text.split("\t") if part.strip())
        return Plan(sorted(labels), self.resized(splits))


def books(member: Member) -> Iterator[Example]:
    """The `<book>` elements of a file: the blurb as text, every genre of every depth as labels."""
    for line, book in _elements(member):
        body, topics = _inside(book, "body"), _inside(book, "topics")
        if body is None or topics is None:
            raise member.malformed(line, f"this <book> has no <{'body' if body is None else 'topics'}>")
        text = html.unescape(body).strip()
        genres = dict.fromkeys(html.unescape(topic[2]).strip() for topic in TOPIC.finditer(topics))
        key = f"{(_inside(book, 'isbn') or '').strip()} {text}"
        yield Example(key, text, tuple(filter(None, genres)), f"{member.origin}, line {line}")


def _inside(book: str, tag: str) -> str | None:
    match = re.search(rf"<{tag}>(.*?)</{tag}>", book, re.DOTALL)
    return match and match[1]


def _elements(member: Member) -> Iterator[tuple[int, str]]:
    """Each `<book …>…</book>` with the line on which it starts."""
    start, kept = 0, list[str]()
    for line, text in member.lines():
        for piece in BEFORE_BOOK.split(text):
            opens = BEFORE_BOOK.match(piece) is not None
            if opens and kept:
                raise member.malformed(start, f"this <book> is not closed before the next one on line {line}")
            if opens:
                start = line
            if opens or kept:
                kept.append(piece)
            if kept and "</book>" in piece:
                yield start, "\n".join(kept)
                kept = []
        if len(kept) > MAX_BOOK_LINES:
            raise member.malformed(start, f"this <book> is not closed within {MAX_BOOK_LINES} lines")
    if kept:
        raise member.malformed(start, "the file ends inside this <book>: it is truncated")
