"""Which column holds the texts or images, and which hold labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from datasets import List

from hf_mlcl.data.errors import CorpusFormatError
from hf_mlcl.data.own_files import LOOKED_AT, Table
from hf_mlcl.data.tables import written

TEXT_NAMES = ("text", "sentence", "document", "content", "abstract", "body", "review", "comment", "tweet", "message")
LABEL_NAMES = str.split(
    "labels label tags tag categories category classes class topics topic genres genre emotions emotion"
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
        'text_column (--text-column)'
    """
    return f"{argument} (--{argument.replace('_', '-')})"


def _check_named(argument: str, named: Iterable[str], columns: Sequence[str]) -> None:
    known = set(columns)
    if unknown := [name for name in named if name not in known]:
        raise CorpusFormatError(f"{option(argument)} names {unknown[0]!r}, but the columns are {', '.join(columns)}.")


def shared_columns(tables: Tables) -> list[str]:
    """The columns of the training rows, which all splits must have."""
    columns: list[str] = tables["train"].rows.column_names
    for split, table in tables.items():
        there = set(table.rows.column_names)
        if missing := [name for name in columns if name not in there]:
            raise CorpusFormatError(f"The {split} split has no column {missing[0]!r}, which the training split has.")
        if not len(table):
            raise CorpusFormatError(f"The {split} split has no rows.")
    return columns


def content_column(
    table: Table, columns: Sequence[str], chosen: str | None, label_columns: Iterable[str]
) -> tuple[Literal["text", "image"], str]:
    """What the examples are, and the column that holds them.

    Images go first, then a column with a usual name, then the one with the longest texts.

    Args:
        table: The training rows.
        columns: Their columns.
        chosen: The column that was named, if one was.
        label_columns: Those that were named as labels.
    """
    if chosen is not None:
        _check_named("text_column", [chosen], columns)
        return ("image" if table.holds_images(chosen) else "text"), chosen
    taken = set(label_columns)
    others = [name for name in columns if name not in taken]
    for name in others:
        if table.holds_images(name):
            return "image", name
    plain = [name for name in others if table.is_plain(name)]
    # Those that hold no texts come last, and what they hold is said when they are read.
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

    A column with a usual name goes first, then columns of 0 and 1, then lists. A column that would be one of 0 and 1
    but for a few cells is refused: its label would be lost.
    """
    rest = [name for name in columns if name != content]
    if chosen is not None:
        _check_named("label_columns", chosen, rest)
        return list(dict.fromkeys(chosen))
    by_name = [name for word in LABEL_NAMES for name in rest if name.lower() == word]
    if by_name:
        return by_name[:1]
    cells = {name: _flags_and_strays(tables, name) for name in rest}
    flags = [name for name, (ones, strays) in cells.items() if ones and not strays]
    lists = [name for name in rest if isinstance(tables["train"].features[name], List)]
    if not lists or len(flags) > 1:
        nearly = [name for name, (ones, strays) in cells.items() if 0 < strays <= STRAYS_AT_MOST * (ones + strays)]
        if nearly and len(flags) + len(nearly) > 1:
            split, row, value = next(
                (split, row, value)
                for split, table in tables.items()
                for row, value in enumerate(map(written, table.head(nearly[0])), 1)
                if flag(value) is None and not is_empty(value)
            )
            raise CorpusFormatError(
                f"Column {nearly[0]!r} is 0/1 but for row {row} of {split}: {value!r}. Fix it, or name the columns "
                f"that are labels: {option('label_columns')}."
            )
    found = (flags if len(flags) > 1 else []) or lists[:1]
    if not found:
        raise CorpusFormatError(
            f"No labels were found among the columns {', '.join(columns)}. Expected: a column 'labels' with lists or "
            f"with names separated by | ; , tabs or spaces; or a column of 0 and 1 for each label. Name them: "
            f"{option('label_columns')}."
        )
    return found


def _flags_and_strays(tables: Tables, column: str) -> tuple[int, int]:
    """How many of the first cells of a column are 0 or 1 in any spelling, and how many something else but empty."""
    flags = strays = 0
    for table in tables.values():
        if not table.is_plain(column):
            return 0, 0
        for value, count in distinct(table.column(column)[:LOOKED_AT]).items():
            flags += count * (flag(value) is not None)
            strays += count * (flag(value) is None and not is_empty(value))
    if not flags and not strays:  # all of them are empty
        flags = sum(flag(value) is not None for table in tables.values() for value in distinct(table.column(column)))
    return flags, strays


def distinct(cells: pa.ChunkedArray) -> Counter[str | None]:
    """How often each value occurs, as it is written. Columns of 0 and 1 have few, however many rows there are."""
    counts: Counter[str | None] = Counter()
    for pair in cells.value_counts().to_pylist():
        counts[written(pair["values"])] += pair["counts"]
    return counts


def flag(value: str | None) -> bool | None:
    """What a cell of a column of 0 and 1 says; None if it is no such cell."""
    return None if value is None else FLAG_WORDS.get(value.strip().lower())


def is_empty(value: str | None) -> bool:
    """Whether a cell of a column of 0 and 1 says nothing."""
    return value is None or value.strip().lower() in EMPTY_WORDS
