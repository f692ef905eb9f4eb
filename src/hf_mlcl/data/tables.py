"""CSV and JSON files as tables of texts: every cell as it is written, and what is wrong with one named by its line.

Nothing is guessed here. A reader that takes columns for numbers makes ``01`` and ``1`` the same label, ``1.10`` another
one, and ``3`` a ``3.0`` as soon as a cell is empty; one that looks for dates changes those. What is a number, a flag or
a list of labels is decided later, from the texts, by those who need to know.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from hf_mlcl.data.errors import CorpusFileError, CorpusFormatError
from hf_mlcl.data.sources import Member, unpacked

SEPARATORS = (",", ";", "\t")
MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
ROWS = 10_000
"""Rows that are turned into columns at a time, so that a large file is not held as Python objects."""
BLANK = re.compile(r"[ \t\r\n]*")
OBJECT = pa.struct({"json": pa.string()})
"""Type of a column of JSON objects, or of lists beside other values, which can be neither texts nor labels."""


def csv_rows(lines: Iterable[str], where: str, separator: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Rows of CSV with the line that each begins in; quotes may hold line ends; blank lines are passed over."""
    reader = csv.reader(lines, delimiter=separator, strict=True)
    before = csv.field_size_limit(2**31 - 1)  # documents may be longer than the 131,072 characters of its default
    line = 1
    try:
        while (row := next(reader, None)) is not None:
            if row:
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        reason = str(error)
        if reason == "unexpected end of data":
            reason = "a quote that is opened in this row is never closed"
        raise CorpusFormatError(f"{where}, line {line}: {reason} (not valid CSV).") from error
    finally:
        csv.field_size_limit(before)


def column_names(cells: Sequence[str], where: str) -> list[str]:
    """The names in a header without the blanks around them, each of which may be there once."""
    names = [cell.strip() or f"Unnamed: {place}" for place, cell in enumerate(cells)]  # as pandas calls them
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise CorpusFormatError(f"{where} has more than one column {twice[0]!r}. Rename or delete one.")
    return names


def flagged(member: Member, line: int, names: Sequence[str], flags: Sequence[str]) -> tuple[str, ...]:
    """The names whose cell in a line of 0 and 1 is 1; "0.0" and "1.0" are taken too."""
    if len(flags) != len(names):
        raise member.malformed(line, f"{len(flags)} label columns, expected {len(names)}")
    for name, flag in zip(names, flags, strict=True):
        if flag.strip() not in ("0", "0.0", "1", "1.0"):
            raise member.malformed(line, f"column {name!r} holds {flag!r}, expected 0 or 1")
    return tuple(name for name, flag in zip(names, flags, strict=True) if flag.strip()[0] == "1")


def written(value: Any) -> str | None:
    """How a value is written as a text or as the name of a label; None for nothing, and for numbers that are none.

    Strings stay as they are. A whole number is called by its digits, whether it is kept as an integer or as a float:
    libraries turn the integers of a column into floats when a cell of it is empty.

    Examples:
        >>> [written(value) for value in ("01", "1.10", 3, 3.0, 2.5, True, None, float("nan"))]
        ['01', '1.10', '3', '3', '2.5', 'true', None, None]
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        if value != value:
            return None
        return str(int(value)) if value.is_integer() else repr(value)
    return value.decode() if isinstance(value, bytes) else str(value)


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    """A file as text, unpacked: UTF-8, or UTF-16 with a byte order mark."""
    with unpacked(path.name, str(path)).open() as stream:
        start = stream.peek(4)[:4]
        encoding = next((name for mark, name in MARKS.items() if start.startswith(mark)), "utf-8")
        yield io.TextIOWrapper(stream, encoding=encoding, newline="")


def read_csv(path: Path) -> tuple[pa.Table, list[int]]:
    """The rows of a CSV file, and the line that each begins in.

    The first line that is not blank names the columns; empty cells are null.
    """
    begins: list[int] = []
    chunks = []
    head: list[str] = []
    with _opened(path) as file:
        lines = (_checked(line, number, path) for number, line in enumerate(file, 1))
        while not "".join(head).strip():
            if (line := next(lines, None)) is None:
                raise CorpusFormatError(f"{path} is empty.")
            head.append(line if line.strip() else "\n")
        rows = csv_rows(itertools.chain(head, lines), str(path), max(SEPARATORS, key=head[-1].count))
        names = column_names(next(rows)[1], str(path))
        while group := list(itertools.islice(rows, ROWS)):
            begins += [line for line, _ in group]
            chunks.append(_columns(group, names, path))
    if not chunks:
        raise CorpusFormatError(f"{path} has a header but no rows.")
    return pa.concat_tables(chunks), begins


def _checked(line: str, number: int, path: Path) -> str:
    if "\0" in line:
        raise CorpusFileError(f"{path}, line {number}: a NUL byte, which text has none of. Save it as UTF-8 text.")
    return line


def _columns(rows: Sequence[tuple[int, list[str]]], names: Sequence[str], path: Path) -> pa.Table:
    width = len(names)
    for line, row in rows:
        if len(row) > width and not any(row[width:]):
            del row[width:]
        if len(row) != width:
            raise CorpusFormatError(
                f"{path}, line {line}: {len(row)} cells, but the header names {width} columns. Quote cells that hold "
                f"the separator or a line break."
            )
    cells = zip(*(row for _, row in rows), strict=True)
    return pa.table([pa.array([cell or None for cell in column], pa.string()) for column in cells], names=list(names))


def read_json(path: Path) -> pa.Table:
    """The rows of a JSON file: a list of objects, one object per line, or one object of columns.

    Strings, numbers and true or false become texts, lists of them lists of texts. Columns of anything else are kept as
    `OBJECT`, which is no text and no label.
    """
    rows = list(_json_rows(path))
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise CorpusFormatError(
                f"{path}, row {number}: {str(row)[:40]!r}, expected an object with a key per column."
            )
    names = dict.fromkeys(name for row in rows for name in row)
    if not names:
        raise CorpusFormatError(f"{path} is empty, or has no rows with anything in them.")
    return pa.table({name: _json_column([_json_cell(row.get(name)) for row in rows], name, path) for name in names})


def _json_rows(path: Path) -> Iterator[Any]:
    with _opened(path) as file:
        text = file.read()
    decoder = json.JSONDecoder(object_pairs_hook=_once_each)
    at, count = BLANK.match(text).end(), 0  # type: ignore[union-attr]
    while at < len(text):
        value, at = decoder.raw_decode(text, at)
        at, count = BLANK.match(text, at).end(), count + 1  # type: ignore[union-attr]
        if at == len(text) and count == 1:
            yield from value if isinstance(value, list) else _rows_of_columns(value)
        else:
            yield value


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise CorpusFormatError(f"an object has the key {twice[0]!r} twice, and it is not clear which one counts")
    return dict(pairs)


def _rows_of_columns(value: Any) -> Iterable[Any]:
    """The rows of one object that holds columns (lists, or objects by row as pandas writes them); or a single row."""
    if not isinstance(value, dict) or not all(isinstance(column, list | dict) for column in value.values()):
        return [value]
    columns = [[*column.values()] if isinstance(column, dict) else column for column in value.values()]
    if len(set(map(len, columns))) != 1:
        return [value]
    return (dict(zip(value, cells, strict=True)) for cells in zip(*columns, strict=True))


def _json_cell(value: Any) -> Any:
    """A text, a list of texts, or an object."""
    if isinstance(value, list) and not any(isinstance(item, list | dict) for item in value):
        return [written(item) for item in value]
    return {"json": json.dumps(value)} if isinstance(value, list | dict) else written(value)


def _json_column(values: list[Any], name: str, path: Path) -> pa.Array:
    types = {type(value) for value in values} - {type(None)}
    try:
        if types <= {str}:
            return pa.array(values, pa.string())
        if types == {list}:
            return pa.array(values, pa.list_(pa.string()))
        return pa.array([value if isinstance(value, dict) else {"json": json.dumps(value)} for value in values], OBJECT)
    except UnicodeEncodeError as error:  # half of a surrogate pair, which JSON can spell
        raise CorpusFormatError(f"{path}: column {name!r} holds characters that are none: {error}.") from error
