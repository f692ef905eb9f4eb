"""Reads large JSON files element by element: COCO's annotations would fill gigabytes as Python objects."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from hf_mlcl.data.errors import CorpusFileError
from hf_mlcl.data.sources import Member

CHUNK = 1 << 20
_BLANK = re.compile(r"\s*")


def elements(member: Member) -> Iterator[tuple[str, Any]]:
    """The elements of every list in a JSON object, as (key of the list, element); values that are no list come whole.

    Raises:
        CorpusFileError: If the file is not such an object; the message names it.

    Examples:
        >>> import io
        >>> file = io.BytesIO(b'{"images": [{"id": 1}, {"id": 2}], "licenses": []}')
        >>> from functools import partial
        >>> list(_Scanner(iter(partial(file.read, 5), b""), "file").elements())
        [('images', {'id': 1}), ('images', {'id': 2})]
    """
    with member.open() as stream:
        yield from _Scanner(iter(lambda: stream.read(CHUNK), b""), member.origin, member.path).elements()


class _Scanner:
    """A window of text that grows at its end when a value does not fit in it yet."""

    def __init__(self, chunks: Iterator[bytes], origin: str, path: str | None = None) -> None:
        self.chunks, self.origin, self.path = chunks, origin, path
        self.text, self.at = "", 0
        self.decoder = json.JSONDecoder()
        self.utf8 = codecs.getincrementaldecoder("utf-8")()

    def elements(self) -> Iterator[tuple[str, Any]]:
        self.expect("{")
        while self.peek() != "}":
            key = self.value()
            self.expect(":")
            if self.peek() == "[":
                self.expect("[")
                while self.peek() != "]":
                    yield key, self.value()
                    if self.peek() != "]":
                        self.expect(",")
                self.expect("]")
            else:
                yield key, self.value()
            if self.peek() != "}":
                self.expect(",")

    def grow(self) -> bool:
        chunk = next(self.chunks, None)
        if chunk is None:
            return False
        try:
            self.text = self.text[self.at :] + self.utf8.decode(chunk)
        except UnicodeDecodeError as error:
            raise self.broken(str(error)) from error
        self.at = 0
        return True

    def peek(self) -> str:
        while True:
            blank = _BLANK.match(self.text, self.at)
            self.at = blank.end() if blank else self.at
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.grow():
                raise self.broken("it ends too early")

    def expect(self, char: str) -> None:
        if self.peek() != char:
            raise self.broken(f"expected {char!r}, found {self.text[self.at : self.at + 20]!r}")
        self.at += 1

    def value(self) -> Any:
        self.peek()
        while True:
            try:
                value, end = self.decoder.raw_decode(self.text, self.at)
                # A number at the window's end may go on in the next chunk.
                if end < len(self.text) or not self.grow():
                    self.at = end
                    return value
            except (json.JSONDecodeError, RecursionError) as error:
                if isinstance(error, RecursionError) or not self.grow():
                    raise self.broken(str(error)) from error

    def broken(self, reason: str) -> CorpusFileError:
        return CorpusFileError(f"{self.origin} is truncated or not the JSON it should be: {reason}.", self.path)
