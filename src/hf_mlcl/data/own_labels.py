"""The labels of every row, from columns of 0 and 1, from lists, or from names in one column."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from datasets import ClassLabel, List

from hf_mlcl.data.errors import CorpusFormatError
from hf_mlcl.data.own_columns import Tables, distinct, flag, is_empty, option
from hf_mlcl.data.tables import written

DELIMITERS = ("|", ";", ",", "\t", " ")


class Labels(NamedTuple):
    """What was found: the ids of every row by split, the names in the order of their ids, and where they were."""

    ids: dict[str, list[list[int]]]
    names: list[str]
    found: str


Lists = dict[str, list[list[str | None]]]


def labels_of(tables: Tables, columns: Sequence[str], delimiter: str | None, notes: list[str]) -> Labels:
    """The labels in a column, where `delimiter` may separate their names, or in several columns of 0 and 1.

    `notes` gets what a careful reader would like to know.
    """
    if len(columns) > 1:
        return _from_flags(tables, columns, notes)
    column = columns[0]
    feature = tables["train"].features[column]
    inner = feature.feature if isinstance(feature, List) else feature
    if isinstance(inner, ClassLabel):
        ids = {split: [_ids(value) for value in table.column(column).to_pylist()] for split, table in tables.items()}
        how = "lists of labels" if isinstance(feature, List) else "one label per row"
        return Labels(ids, list(inner.names), f"column {column!r}, {how}")
    if isinstance(feature, List):
        lists: Lists = {split: _lists(table.column(column).to_pylist(), column) for split, table in tables.items()}
        how = "lists of labels"
    else:
        lists, how = _from_texts(tables, column, delimiter)
    if how.startswith("lists") and _are_multi_hot([row for found in lists.values() for row in found], column):
        return _from_multi_hot(lists, column, notes)
    names = sorted({name for found in lists.values() for row in found for name in row if name})
    if len(names) < 2:
        raise CorpusFormatError(
            f"Column {column!r} holds {len(names)} different labels ({', '.join(names) or 'none'}); at least 2 are "
            f"needed. Name the right columns, {option('label_columns')}, or what separates the labels, "
            f"{option('label_delimiter')}."
        )
    number = {name: index for index, name in enumerate(names)}
    ids = {split: [sorted({number[name] for name in row if name}) for row in found] for split, found in lists.items()}
    return Labels(ids, names, f"column {column!r}, {how}")


def _ids(value: Any) -> list[int]:
    if value is None:
        return []
    return sorted({int(item) for item in (value if isinstance(value, list) else [value])})


def _from_flags(tables: Tables, names: Sequence[str], notes: list[str]) -> Labels:
    empty: Counter[str] = Counter()
    ids: dict[str, list[list[int]]] = {}
    for split, table in tables.items():
        rows: list[list[int]] = [[] for _ in range(len(table))]
        for number, name in enumerate(names):
            table.check_plain(name)
            cells = table.column(name)
            for value, count in distinct(cells).items():
                if flag(value) is None and not is_empty(value):
                    row = next(i for i, cell in enumerate(cells.to_pylist(), 1) if written(cell) == value)
                    raise CorpusFormatError(
                        f"Column {name!r} holds {value!r} in row {row} of {split}, expected 0 or 1."
                    )
                if flag(value) is None:
                    empty[name] += count
            coded = cells.combine_chunks().dictionary_encode()
            ones = np.array([bool(flag(written(value))) for value in coded.dictionary.to_pylist()] + [False])
            places = coded.indices.fill_null(len(ones) - 1).to_numpy(zero_copy_only=False)
            for row in np.flatnonzero(ones[places]).tolist():
                rows[row].append(number)
        ids[split] = rows
    if empty:
        listed = ", ".join(f"{name} {count}" for name, count in empty.most_common(5))
        more = ", …" if len(empty) > 5 else ""
        notes.append(f"{empty.total()} empty cells in columns of 0 and 1 count as 0: {listed}{more}")
    return Labels(ids, list(names), f"{len(names)} columns of 0 and 1")


def _from_texts(tables: Tables, column: str, delimiter: str | None) -> tuple[Lists, str]:
    """The names in the cells of a column of texts, and how they are written."""
    texts = {split: [(text or "").strip() for text in table.texts(column)] for split, table in tables.items()}
    every = [text for found in texts.values() for text in found]
    if delimiter is None and any(every) and all(text[:1] + text[-1:] in ("", "[]") for text in every):
        read = {split: [_read_list(text, column) for text in found] for split, found in texts.items()}
        return read, "lists of labels, written out"
    delimiter = _found_delimiter(every) if delimiter is None else delimiter
    shown = {"\t": "tabs", " ": "spaces"}.get(delimiter or "", repr(delimiter))
    lists: Lists = {split: [[*_pieces(text, delimiter)] for text in found] for split, found in texts.items()}
    return lists, f"labels separated by {shown}" if delimiter else "one label per row"


def _lists(cells: Sequence[Any], column: str) -> list[list[str | None]]:
    for number, row in enumerate(cells, 1):
        if row and any(isinstance(item, list | dict) for item in row):
            raise CorpusFormatError(
                f"Column {column!r} holds {str(row)[:60]} in row {number}, expected a list of labels."
            )
    return [[_label(item) for item in row or []] for row in cells]


def _label(item: Any) -> str | None:
    """An item of a list as the name of a label, without the blanks around it."""
    name = written(item)
    return None if name is None else name.strip()


def _are_multi_hot(rows: Sequence[Sequence[str | None]], column: str) -> bool:
    """Whether lists are a 0 or 1 for each label, and not the labels themselves; empty lists tell nothing."""
    lengths = {len(row) for row in rows if row}
    if max(lengths, default=0) < 2 or not all(flag(item) is not None for row in rows for item in row):
        return False
    if len(lengths) > 1 and max(lengths) > 2:  # no row can hold more than two of the labels 0 and 1
        found = ", ".join(map(str, sorted(lengths)))
        raise CorpusFormatError(
            f"Column {column!r} holds lists of 0 and 1, but of different lengths ({found}). "
            f"Expected one 0 or 1 for each label in every row, or lists of the labels that a row has."
        )
    return len(lengths) == 1


def _from_multi_hot(lists: Lists, column: str, notes: list[str]) -> Labels:
    ids = {split: [[place for place, item in enumerate(row) if flag(item)] for row in lists[split]] for split in lists}
    count = max(len(row) for found in lists.values() for row in found)
    notes.append(f"lists of 0 and 1 have no names of labels: they are called 0 to {count - 1}, by their place")
    return Labels(ids, list(map(str, range(count))), f"column {column!r}, lists of 0 and 1, one place per label")


def _read_list(text: str, column: str) -> list[str | None]:
    """The items of a list that is written out as in Python or JSON; numbers stay as they are written.

    Examples:
        >>> _read_list("['a', 1.10, 2]", "labels")
        ['a', '1.10', '2']
    """
    if not text:
        return []
    try:
        try:
            items = json.loads(text, parse_int=str, parse_float=str)
        except ValueError:  # single quotes, as Python writes them
            parsed = ast.parse(text, mode="eval").body
            items = [_written_item(item, text) for item in parsed.elts] if isinstance(parsed, ast.List) else [[]]
        if any(isinstance(item, list | tuple | dict | set) for item in items):
            raise ValueError("a list in a list")
        return [_label(item) for item in items]
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise CorpusFormatError(
            f"Column {column!r} holds {text[:80]!r}, which looks like a list of labels but is none."
        ) from error


def _written_item(item: ast.expr, text: str) -> Any:
    value = ast.literal_eval(item)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return ast.get_source_segment(text, item) if is_number else value


def _found_delimiter(texts: Sequence[str]) -> str | None:
    """The first delimiter that occurs; a space only if it makes fewer labels, since names may hold spaces."""
    for delimiter in DELIMITERS:
        if any(delimiter in text for text in texts):
            pieces = {piece for text in texts for piece in _pieces(text, delimiter)}
            if delimiter != " " or len(pieces) < len(set(texts)):
                return delimiter
    return None


def _pieces(text: str, delimiter: str | None) -> list[str]:
    parts = text.split(delimiter) if delimiter else [text]
    return [part.strip() for part in parts if part.strip()]
