"""XML from files that nobody vouches for."""

from __future__ import annotations

from xml.etree import ElementTree

from hf_mlcl.data.errors import CorpusFormatError
from hf_mlcl.data.sources import Member, decode


def parse_xml(member: Member) -> ElementTree.Element:
    """Parse a small XML file; Latin-1 is taken for one that is neither UTF-8 nor says what it is.

    Document type declarations are refused: no corpus has one, and entities defined in them are how a small file fills
    the memory or reads another.

    Raises:
        CorpusFormatError: Names the file and the line.
    """
    data = member.read()
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        raise CorpusFormatError(f"{member.origin} declares a document type or entities, which no official file does.")
    text: bytes | str = data
    if b"encoding=" not in data[:200] and decode(data) != data.decode("utf-8", "replace"):
        text = decode(data)
    try:
        return ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError, LookupError) as error:  # the latter two for unknown encodings
        line = error.position[0] if isinstance(error, ElementTree.ParseError) else 1
        raise CorpusFormatError(f"{member.origin}, line {line}: not well-formed XML ({error}).") from error
