"""CSV and JSON files as tables of texts: every cell as it is written, and what is wrong with one named by its line.

Nothing is guessed here. A reader that takes columns for numbers makes ``01`` and ``1`` the same label, ``1.10`` another
one, and ``3`` a ``3.0`` as soon as a cell is empty; one that looks for dates changes those. What is a number, a flag or
a list of labels is decided later, from the texts, by those who need to know.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import itertools
import json
import lzma
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from hf_mlcl.data.errors import CorpusFileError, CorpusFormatError
from hf_mlcl.data.sources import FREE_BYTES, MAX_RATIO, bounded

OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
SEPARATORS = (",", ";", "\t")
MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
ROWS = 10_000
"""Rows that are turned into columns at a time, so that a large file is not held as Python objects."""
BLANK = re.compile(r"[ \t\r\n]*")
OBJECT = pa.struct({"json": pa.string()})
"""Type of a column of JSON objects, or of lists beside other values, which can be neither texts nor labels."""


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
def opened(path: Path) -> Iterator[IO[str]]:
    """A file as text, unpacked: UTF-8, or UTF-16 with a byte order mark."""
    opener = OPENERS.get(path.suffix.lower())
    with open(path, "rb") as packed:
        stream: Any = packed
        if opener is not None:
            limit = max(FREE_BYTES, MAX_RATIO * os.path.getsize(path))
            stream = bounded(opener(packed), limit, str(path))
        start = stream.peek(4)[:4]
        encoding = next((name for mark, name in MARKS.items() if start.startswith(mark)), "utf-8")
        yield io.TextIOWrapper(stream, encoding=encoding, newline="")


def read_csv(path: Path) -> pa.Table:
    """The rows of a CSV file. Empty cells are null; blank lines are passed over; names of columns lose their blanks.

    Raises:
        CorpusFormatError: If there are no rows, a column is named twice, or a row has other cells than the header.
        csv.Error: If a quote is not closed, or not where it may be.
    """
    with opened(path) as file, _long_cells():
        lines = _whole_lines(file, path)
        first = next((line for line in lines if line.strip()), "")
        if not first:
            raise CorpusFormatError(f"{path} is empty.")
        separator = max(SEPARATORS, key=first.count)
        reader = csv.reader(itertools.chain([first], lines), delimiter=separator, strict=True)
        rows = _csv_rows(reader, path)
        names = _header(next(rows)[1], path)
        chunks = [_columns(group, names, path) for group in _groups(rows)]
    if not chunks:
        raise CorpusFormatError(f"{path} has a header but no rows.")
    return pa.concat_tables(chunks)


@contextmanager
def _long_cells() -> Iterator[None]:
    """Documents may be longer than the 131,072 characters that the csv module allows for; so is an unclosed quote."""
    before = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _whole_lines(file: IO[str], path: Path) -> Iterator[str]:
    for number, line in enumerate(file, 1):
        if "\0" in line:
            raise CorpusFileError(f"{path}, line {number}: a NUL byte, which text has none of. Save it as UTF-8 text.")
        yield line


def _csv_rows(reader: Any, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Every row with the number of the line that it begins in."""
    while True:
        begin = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            reason = str(error)
            if reason == "unexpected end of data":
                reason = "a quote that is opened in this row is never closed"
            raise CorpusFileError(f"{path} cannot be read as CSV: line {begin}: {reason}.") from error
        if row:
            yield begin, row


def _header(cells: Sequence[str], path: Path) -> list[str]:
    names = [cell.strip() or f"Unnamed: {place}" for place, cell in enumerate(cells)]  # as pandas calls them
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise CorpusFormatError(f"{path} has more than one column {', '.join(map(repr, twice))}. Rename or delete one.")
    return names


def _groups(rows: Iterator[tuple[int, list[str]]]) -> Iterator[list[tuple[int, list[str]]]]:
    return iter(lambda: list(itertools.islice(rows, ROWS)), [])


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
    """The rows of a JSON file: a list of objects, an object a line, or one object of columns.

    Strings, numbers and true or false become texts, lists of them lists of texts. Columns of anything else are kept as
    `OBJECT`, which is no text and no label.

    Raises:
        CorpusFormatError: If an object has a key twice, or rows are no objects.
        ValueError: If it is not JSON.
    """
    columns: dict[str, list[Any]] = {}
    count = 0
    for row in _json_rows(path):
        if not isinstance(row, dict):
            raise CorpusFormatError(
                f"{path}, row {count + 1}: {str(row)[:40]!r}, expected an object with a key for each column."
            )
        for name, value in row.items():
            column = columns.setdefault(name, [])
            column.extend([None] * (count - len(column)))
            column.append(_json_cell(value))
        count += 1
    if not columns:
        raise CorpusFormatError(f"{path} is empty, or has no rows with anything in them.")
    for column in columns.values():
        column.extend([None] * (count - len(column)))
    return pa.table({name: _json_column(values, name, path) for name, values in columns.items()})


def _json_rows(path: Path) -> Iterator[Any]:
    with opened(path) as file:
        text = file.read()
    decoder = json.JSONDecoder(object_pairs_hook=_once_each)
    at, count, value = _next_value(text, 0), 0, None
    while at < len(text):
        value, at = decoder.raw_decode(text, at)
        at, count = _next_value(text, at), count + 1
        if at == len(text) and count == 1:
            yield from value if isinstance(value, list) else _rows_of_columns(value)
        else:
            yield value


def _next_value(text: str, at: int) -> int:
    blank = BLANK.match(text, at)
    return blank.end() if blank else at


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise CorpusFormatError(f"an object has the key {twice!r} twice, and it is not clear which one counts")
    return found


def _rows_of_columns(value: Any) -> Iterable[Any]:
    """The rows of one object that holds columns (lists, or objects by row as pandas writes them); or a single row."""
    if not isinstance(value, dict) or not all(isinstance(column, list | dict) for column in value.values()):
        return [value]
    columns = [list(column.values()) if isinstance(column, dict) else column for column in value.values()]
    if len({len(column) for column in columns}) != 1:
        return [value]
    return (dict(zip(value, cells, strict=True)) for cells in zip(*columns, strict=True))


def _json_cell(value: Any) -> Any:
    """A text, a list of texts, or an object."""
    if isinstance(value, list) and not any(isinstance(item, list | dict) for item in value):
        return [written(item) for item in value]
    if isinstance(value, list | dict):
        return {"json": json.dumps(value)}
    return written(value)


def _json_column(values: list[Any], name: str, path: Path) -> pa.Array:
    kinds = {type(value) for value in values} - {type(None)}
    try:
        if kinds <= {str}:
            return pa.array(values, pa.string())
        if kinds == {list}:
            return pa.array(values, pa.list_(pa.string()))
        return pa.array([value if isinstance(value, dict) else {"json": json.dumps(value)} for value in values], OBJECT)
    except UnicodeEncodeError as error:  # half of a surrogate pair, which JSON can spell
        raise CorpusFormatError(f"{path}: column {name!r} holds characters that are none: {error}.") from error
