"""Rows of delimited text: what is wrong with one is said with its file and line."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence

from hf_mlcl.data.errors import CorpusFormatError
from hf_mlcl.data.sources import Member


def malformed(member: Member, line: int, reason: str) -> CorpusFormatError:
    """The error for a row that is not as its format says."""
    return CorpusFormatError(f"{member.origin}, line {line}: {reason}.")


def csv_rows(member: Member) -> Iterator[tuple[int, list[str]]]:
    """Rows of a CSV file with the number of their last line; quotes may hold line ends; blank lines are passed over."""
    lines = (text + "\n" for _, text in member.lines())
    reader = csv.reader(lines, strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise malformed(member, reader.line_num, f"not valid CSV ({error})") from error


def checked_header(member: Member, line: int, header: Sequence[str], expected: Sequence[str]) -> list[str]:
    """The names of the 0/1 columns after the `expected` ones.

    Args:
        member: The file, for the message.
        line: The line of the header.
        header: The header as read.
        expected: How it has to begin.
    """
    if [name.strip() for name in header[: len(expected)]] != list(expected):
        start = "".join(f"{name}, " for name in expected)
        raise malformed(member, line, f"the header is {list(header)[:4]}…, expected {start}then one name a label")
    return named_columns(member, line, header[len(expected) :])


def named_columns(member: Member, line: int, names: Sequence[str]) -> list[str]:
    """The names of 0/1 columns, each of which must be there and be there once.

    Args:
        member: The file, for the message.
        line: The line of the header.
        names: Of the columns, as read.
    """
    names = [name.strip() for name in names]
    if not all(names):
        raise malformed(member, line, "a column has no name; expected one name a label")
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise malformed(member, line, f"the header names {', '.join(twice)} more than once")
    return names


def flagged(member: Member, line: int, names: Sequence[str], flags: Sequence[str]) -> tuple[str, ...]:
    """The names whose flag is 1.

    Args:
        member: The file, for the message.
        line: The line of the row.
        names: One name a column.
        flags: "0" or "1" a column; "0.0" and "1.0" are taken too.
    """
    if len(flags) != len(names):
        raise malformed(member, line, f"{len(flags)} label columns, expected {len(names)}")
    chosen = []
    for name, flag in zip(names, flags, strict=True):
        value = flag.strip()
        if value in ("1", "1.0"):
            chosen.append(name)
        elif value not in ("0", "0.0"):
            raise malformed(member, line, f"column {name!r} holds {flag!r}, expected 0 or 1")
    return tuple(chosen)
