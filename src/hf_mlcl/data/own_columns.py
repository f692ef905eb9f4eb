"""Which column holds the texts or images, and which hold labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from datasets import List

from hf_mlcl.data.errors import CorpusFormatError
from hf_mlcl.data.own_files import LOOKED_AT, Table, holds_images, is_plain
from hf_mlcl.data.tables import written

TEXT_NAMES = ("text", "sentence", "document", "content", "abstract", "body", "review", "comment", "tweet", "message")
LABEL_NAMES = tuple(
    name
    for pair in (
        ("labels", "label"),
        ("tags", "tag"),
        ("categories", "category"),
        ("classes", "class"),
        ("topics", "topic"),
        ("genres", "genre"),
        ("emotions", "emotion"),
    )
    for name in pair
)
FLAG_WORDS = {
    **dict.fromkeys(("0", "0.0", "false", "no", "n"), False),
    **dict.fromkeys(("1", "1.0", "true", "yes", "y"), True),
}
STRAYS_AT_MOST = 0.2
"""Share of other values up to which a column is taken for one of 0 and 1 with mistakes in it."""
EMPTY_WORDS = ("", "na", "n/a", "nan", "null", "none")
"""What an empty cell of a column of 0 and 1 may be written as; among names of labels they are names."""

Tables = Mapping[str, Table]


def option(argument: str) -> str:
    """What an argument is called in Python and on the command line.

    Examples:
        >>> option("text_column")
        'text_column (--text_column)'
    """
    return f"{argument} (--{argument.replace('_', '-')})"


def check_named(argument: str, named: Iterable[str], columns: Sequence[str]) -> None:
    """Refuse names of columns that are not there.

    Raises:
        CorpusFormatError: If there is one.
    """
    known = set(columns)
    if unknown := [name for name in named if name not in known]:
        raise CorpusFormatError(f"{option(argument)} names {unknown[0]!r}, but the columns are {', '.join(columns)}.")


def shared_columns(tables: Tables) -> list[str]:
    """The columns of the training rows, which all splits must have.

    Raises:
        CorpusFormatError: If a split lacks one, or has no rows.
    """
    columns: list[str] = tables["train"].rows.column_names
    for split, table in tables.items():
        there = set(table.rows.column_names)
        if missing := [name for name in columns if name not in there]:
            raise CorpusFormatError(f"The {split} split has no column {missing[0]!r}, which the training split has.")
        if not len(table):
            raise CorpusFormatError(f"The {split} split has no rows.")
    return columns


def content_column(
    tables: Tables, columns: Sequence[str], chosen: str | None, label_columns: Iterable[str]
) -> tuple[Literal["text", "image"], str]:
    """What the examples are, and the column that holds them.

    Images go first, then a column with a usual name, then the one with the longest texts.

    Args:
        tables: The rows of each split.
        columns: Their columns.
        chosen: The column that was named, if one was.
        label_columns: Those that were named as labels.
    """
    table, taken = tables["train"], set(label_columns)
    if chosen is not None:
        check_named("text_column", [chosen], columns)
        return ("image" if holds_images(table, chosen) else "text"), chosen
    for name in columns:
        if name not in taken and holds_images(table, name):
            return "image", name
    plain = [name for name in columns if is_plain(table.features[name]) and name not in taken]
    # Those that hold no texts come last, and what they hold is said when they are read.
    others = [name for name in columns if name not in taken]
    by_name = [name for names in (plain, others) for word in TEXT_NAMES for name in names if name.lower() == word]
    if by_name:
        return "text", by_name[0]
    lengths = {name: _mean_length(table.head(name)) for name in plain if name.lower() not in LABEL_NAMES}
    if not any(lengths.values()):
        raise CorpusFormatError(
            f"No column with texts or images was found among {', '.join(columns)}: a column with texts is called "
            f"{TEXT_NAMES[0]}, {TEXT_NAMES[1]} or the like, or holds more than numbers and dates. Name it: "
            f"{option('text_column')}."
        )
    return "text", max(lengths, key=lengths.__getitem__)


def _mean_length(values: Sequence[Any]) -> float:
    """The mean length of texts; 0 for numbers, dates, flags and empty cells."""
    texts = [value for value in values if isinstance(value, str)]
    if all(flag(text) is not None or is_empty(text) or _is_number(text) for text in texts):
        return 0.0
    return float(np.mean([len(text) for text in texts]))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def label_columns_of(tables: Tables, columns: Sequence[str], content: str, chosen: Sequence[str] | None) -> list[str]:
    """The column with labels, or several of 0 and 1.

    A column with a usual name goes first, then columns of 0 and 1, then lists.

    Raises:
        CorpusFormatError: If none is found, or if a column would be one of 0 and 1 but for a few cells.
    """
    rest = [name for name in columns if name != content]
    if chosen is not None:
        check_named("label_columns", chosen, rest)
        return list(dict.fromkeys(chosen))
    by_name = [name for word in LABEL_NAMES for name in rest if name.lower() == word]
    if by_name:
        return by_name[:1]
    flags = [name for name in rest if _is_flag(tables, name)]
    lists = [name for name in rest if isinstance(tables["train"].features[name], List)]
    if not lists or len(flags) > 1:
        known = set(flags)
        strays = [stray for name in rest if name not in known and (stray := _stray_among_flags(tables, name))]
        if strays and len(flags) + len(strays) > 1:  # a label would be lost, or all of them
            raise CorpusFormatError(
                f"{strays[0]}. Fix it, or name the columns that are labels: {option('label_columns')}."
            )
    found = (flags if len(flags) > 1 else []) or lists[:1]
    if not found:
        raise CorpusFormatError(
            f"No labels were found among the columns {', '.join(columns)}. Expected: a column 'labels' with lists or "
            f"with names separated by | ; , tabs or spaces; or a column of 0 and 1 for each label. Name them: "
            f"{option('label_columns')}."
        )
    return found


def distinct(cells: pa.ChunkedArray) -> dict[str | None, int]:
    """How often each value occurs, as it is written. Columns of 0 and 1 have few, however many rows there are."""
    counts: dict[str | None, int] = {}
    for pair in cells.value_counts().to_pylist():
        text = written(pair["values"])
        counts[text] = counts.get(text, 0) + pair["counts"]
    return counts


def flag(value: str | None) -> bool | None:
    """What a cell of a column of 0 and 1 says; None if it is no such cell."""
    return None if value is None else FLAG_WORDS.get(value.strip().lower())


def is_empty(value: str | None) -> bool:
    """Whether a cell of a column of 0 and 1 says nothing."""
    return value is None or value.strip().lower() in EMPTY_WORDS


def _is_flag(tables: Tables, column: str) -> bool:
    """Whether a column holds nothing but 0 and 1, in any spelling, and perhaps empty cells."""
    if not all(is_plain(table.features[column]) for table in tables.values()):
        return False
    for table in tables.values():
        if any(flag(value) is None and not is_empty(value) for value in distinct(table.column(column)[:LOOKED_AT])):
            return False
    return any(flag(value) is not None for table in tables.values() for value in distinct(table.column(column)))


def _stray_among_flags(tables: Tables, column: str) -> str | None:
    """Where a column of 0 and 1 holds something else; None if it is no such column at all."""
    if not all(is_plain(table.features[column]) for table in tables.values()):
        return None
    cells = strays = 0
    for table in tables.values():
        for value, count in distinct(table.column(column)[:LOOKED_AT]).items():
            if not is_empty(value):
                cells += count
                strays += count * (flag(value) is None)
    if not strays or strays > STRAYS_AT_MOST * cells:
        return None
    for split, table in tables.items():
        for number, value in enumerate(map(written, table.head(column)), 1):
            if flag(value) is None and not is_empty(value):
                return f"Column {column!r} is 0/1 but for row {number} of {split}: {value!r}"
    return None
