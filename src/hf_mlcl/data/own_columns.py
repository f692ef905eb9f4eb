"""What columns hold: the texts or images, and the labels in columns of 0 and 1, in lists, or as names in one column."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import ClassLabel, LargeList, List

from hf_mlcl.data.errors import CorpusFormatError
from hf_mlcl.data.labels import DELIMITERS, names_in, pieces
from hf_mlcl.data.own_files import LOOKED_AT, Table
from hf_mlcl.data.tables import written

TEXT_NAMES = ("text", "sentence", "document", "content", "abstract", "body", "review", "comment", "tweet", "message")
BESIDE_IMAGES = (*TEXT_NAMES, "title", "description", "caption", "plot", "summary")
"""Names of columns whose texts belong to the images beside them."""
LABEL_NAMES = str.split(
    "labels label tags tag categories category classes class topics topic genres genre emotions emotion"
)
FLAG_WORDS = {
    **dict.fromkeys(("0", "0.0", "false", "no", "n"), False),
    **dict.fromkeys(("1", "1.0", "true", "yes", "y"), True),
}
EMPTY_WORDS = ("", "na", "n/a", "nan", "null", "none")
"""What an empty cell of a column of 0 and 1 may be written as; among names of labels they are names."""
STRAYS_AT_MOST = 0.2
"""Share of other values up to which a column is taken for one of 0 and 1 with mistakes in it."""
WRITTEN_LIST = re.compile(r"""\[\s*(['"\d-].*)?\]|[({]\s*['"].*[)}]|\(\)|\{\}|set\(\)""", re.DOTALL)
"""A list, set or tuple of texts or numbers, as Python or JSON writes it; of texts, also an array of numpy."""
NO_TEXT = re.compile(r"\s*([-+]?(\d[\d_]*\.?\d*|\.\d+|inf)(e[-+]?\d+)?|\w+://\S+)\s*", re.IGNORECASE)
"""A number, or an address on the web."""

LISTS = (List, LargeList)
Tables = Mapping[str, Table]
Lists = dict[str, list[list[str | None]]]


class Labels(NamedTuple):
    """What was found: the ids of every row by split, the names in the order of their ids, and where they were."""

    ids: dict[str, list[list[int]]]
    names: list[str]
    found: str


def option(argument: str) -> str:
    """What an argument is called in Python and on the command line: ``text_column (--text_column)``."""
    return f"{argument} (--{argument})"


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
    """What the examples are, and the column that holds them: the `chosen` one, if one was, but none of labels.

    Images go first, then a column with a usual name, then the one with the longest texts.
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
            f"text, sentence or the like, or holds more than numbers, dates and addresses (images are not fetched: "
            f"give their files). Name it: {option('text_column')}."
        )
    return "text", max(lengths, key=lengths.__getitem__)


def text_beside(table: Table, columns: Sequence[str], image: str, label_columns: Iterable[str]) -> str | None:
    """The column with the texts that belong to the images of another column, by its name; None where there is none."""
    taken = {image, *label_columns}
    plain = [name for name in columns if name not in taken and table.is_plain(name) and _mean_length(table.head(name))]
    return next((name for word in BESIDE_IMAGES for name in plain if name.lower() == word), None)


def _mean_length(values: Sequence[Any]) -> float:
    """The mean length of texts; 0 for numbers, dates, flags, addresses and empty cells."""
    texts = [value for value in values if isinstance(value, str)]
    if all(_flag(text) is not None or _is_empty(text) or NO_TEXT.fullmatch(text) for text in texts):
        return 0.0
    return float(np.mean([len(text) for text in texts]))


def label_columns_of(
    tables: Tables, columns: Sequence[str], content: str, chosen: Sequence[str] | None, known: Sequence[str] = ()
) -> list[str]:
    """The column with labels, or several of 0 and 1.

    Columns of 0 and 1 that are called as `known` labels go first, then a column with a usual name, other columns of 0
    and 1, and lists. A column that would be one of 0 and 1
    but for a few cells is refused: its label would be lost.
    """
    rest = [name for name in columns if name != content]
    if chosen is not None:
        _check_named("label_columns", chosen, rest)
        return list(dict.fromkeys(chosen))
    if called := [name for name in known if name in rest and _holds_flags(tables, name)]:
        return called
    by_name = [name for word in LABEL_NAMES for name in rest if name.lower() == word]
    if by_name:
        return by_name[:1]
    cells = {name: _flags_and_strays(tables, name) for name in rest}
    flags = [name for name, (ones, strays) in cells.items() if ones and not strays]
    lists = [name for name in rest if isinstance(tables["train"].features[name], LISTS)]
    if not lists or len(flags) > 1:
        nearly = [name for name, (ones, strays) in cells.items() if 0 < strays <= STRAYS_AT_MOST * (ones + strays)]
        if nearly and len(flags) + len(nearly) > 1:
            where = next(filter(None, (_stray(table, split, nearly[0]) for split, table in tables.items())))
            way_out = f"Fix it, or name the columns that are labels: {option('label_columns')}"
            raise CorpusFormatError(f"Column {nearly[0]!r} is 0/1 but for {where}. {way_out}.")
    found = (flags if len(flags) > 1 else []) or lists[:1]
    if not found:
        raise CorpusFormatError(
            f"No labels were found among the columns {', '.join(columns)}. Expected: a column 'labels' of lists, or of "
            f"names between | ; , tabs or spaces; or columns of 0 and 1. Name them: {option('label_columns')}."
        )
    return found


def _holds_flags(tables: Tables, column: str) -> bool:
    ones_and_zeros, strays = _flags_and_strays(tables, column)
    return ones_and_zeros > 0 and strays == 0


def _flags_and_strays(tables: Tables, column: str) -> tuple[int, int]:
    """How many of the first cells of a column are 0 or 1 in any spelling, and how many something else but empty."""
    flags = strays = 0
    for table in tables.values():
        if not table.is_plain(column):
            return 0, 0
        for value, count in _distinct(table.column(column)[:LOOKED_AT]).items():
            flags += count * (_flag(value) is not None)
            strays += count * _is_stray(value)
    if not flags and not strays:  # all of them are empty
        flags = sum(_flag(value) is not None for table in tables.values() for value in _distinct(table.column(column)))
    return flags, strays


def _stray(table: Table, split: str, column: str) -> str | None:
    cells = enumerate(map(written, table.column(column).to_pylist()), 1)
    return next((f"row {row} of {split}: {value!r}" for row, value in cells if _is_stray(value)), None)


def _distinct(cells: pa.ChunkedArray) -> Counter[str | None]:
    """How often each value occurs, as it is written. Columns of 0 and 1 have few, however many rows there are."""
    counts: Counter[str | None] = Counter()
    for pair in cells.value_counts().to_pylist():
        counts[written(pair["values"])] += pair["counts"]
    return counts


def _flag(value: str | None) -> bool | None:
    return None if value is None else FLAG_WORDS.get(value.strip().lower())


def _is_empty(value: str | None) -> bool:
    return value is None or value.strip().lower() in EMPTY_WORDS


def _is_stray(value: str | None) -> bool:
    return _flag(value) is None and not _is_empty(value)


def labels_of(
    tables: Tables, columns: Sequence[str], delimiter: str | None, notes: list[str], known: Sequence[str] = ()
) -> Labels:
    """The labels in a column, where `delimiter` may separate their names, or in columns of 0 and 1.

    `known` are the names of labels, as far as they are known before; `notes` gets what a careful reader would like to
    know.
    """
    if len(columns) > 1 or (columns[0] in known and _holds_flags(tables, columns[0])):
        return _from_flags(tables, columns, notes)
    column = columns[0]
    kinds = {split: _kind(table, column) for split, table in tables.items()}
    if other := next((split for split, kind in kinds.items() if kind != kinds["train"]), None):
        raise CorpusFormatError(
            f"Column {column!r} holds {kinds['train']} in train, but {kinds[other]} in {other}. Write labels in the "
            f"same way in all splits."
        )
    are_lists = isinstance(tables["train"].features[column], LISTS)
    lists: Lists
    if kinds["train"].endswith("ids"):
        how = "lists of labels" if are_lists else "one label per row"
        lists = {split: _names_of_ids(table, column, split) for split, table in tables.items()}
        named = [_inner(table, column).names for table in tables.values()]
        known = list(dict.fromkeys(name for names in named for name in names))  # splits may number them differently
    elif are_lists:
        cells = {split: table.column(column).to_pylist() for split, table in tables.items()}
        lists = {split: [_names(row or [], column) for row in rows] for split, rows in cells.items()}
        how = "lists of labels"
    else:
        lists, how = _from_texts(tables, column, delimiter, known)
    is_multi_hot = how.startswith("lists") and not kinds["train"].endswith("ids")
    if is_multi_hot and _are_multi_hot([row for found in lists.values() for row in found], column):
        places = max(len(row) for found in lists.values() for row in found)
        notes.append(f"lists of 0 and 1 have no names of labels: they are called 0 to {places - 1}, by their place")
        ids = {
            split: [[i for i, item in enumerate(row) if _flag(item)] for row in rows] for split, rows in lists.items()
        }
        return Labels(ids, [*map(str, range(places))], f"column {column!r}, lists of 0 and 1, one place per label")
    new = {name for found in lists.values() for row in found for name in row if name} - set(known)
    names = [*known, *sorted(new)]
    if len(names) < 2:
        way_out = f"Name the columns, {option('label_columns')}, or what separates labels, {option('label_delimiter')}"
        there = f"{len(names)} different labels ({', '.join(names) or 'none'}); at least 2 are needed"
        raise CorpusFormatError(f"Column {column!r} holds {there}. {way_out}.")
    number = {name: index for index, name in enumerate(names)}
    ids = {split: [sorted({number[name] for name in row if name}) for row in found] for split, found in lists.items()}
    return Labels(ids, names, f"column {column!r}, {how}")


def _inner(table: Table, column: str) -> Any:
    feature = table.features[column]
    return feature.feature if isinstance(feature, LISTS) else feature


def _kind(table: Table, column: str) -> str:
    """How a split has its labels, which must be the same in all of them."""
    what = "ids" if isinstance(_inner(table, column), ClassLabel) else "texts"
    return f"lists of {what}" if isinstance(table.features[column], LISTS) else what


def _names_of_ids(table: Table, column: str, split: str) -> list[list[str | None]]:
    """Names of labels that are kept as numbers, where a number below 0 stands for a label that is not known."""
    names, found = _inner(table, column).names, []
    for row, cell in enumerate(table.column(column).to_pylist(), 1):
        ids = [number for number in (cell if isinstance(cell, list) else [cell]) if number is not None]
        if any(number < 0 for number in ids):
            raise CorpusFormatError(
                f"Column {column!r} has no label in row {row} of {split} (the id {min(ids)}). Take such rows out."
            )
        found.append([names[number] for number in ids])
    return found


def without_unlabelled_splits(tables: Tables, columns: Sequence[str], notes: list[str]) -> dict[str, Table]:
    """Leave out splits in which no row has a label that is known, as the Hub has them for competitions; and say so."""
    found = dict(tables)
    for split, table in tables.items() if len(columns) == 1 else ():
        is_id = isinstance(table.features[columns[0]], ClassLabel)
        if is_id and split != "train" and pc.max(table.column(columns[0])).as_py() == -1:
            del found[split]
            notes.append(f"the {split} split has no labels (-1 in all of its rows) and was left out")
    return found


def _from_flags(tables: Tables, names: Sequence[str], notes: list[str]) -> Labels:
    empty: Counter[str] = Counter()
    ids: dict[str, list[list[int]]] = {}
    for split, table in tables.items():
        ids[split] = [[] for _ in range(len(table))]
        for number, name in enumerate(names):
            table.check_plain(name)
            cells = table.column(name)
            values = _distinct(cells)
            if any(map(_is_stray, values)):
                row, _, value = str(_stray(table, split, name)).partition(": ")
                raise CorpusFormatError(f"Column {name!r} holds {value} in {row}, expected 0 or 1.")
            empty[name] += sum(count for value, count in values.items() if _is_empty(value))
            ones = [value for value in cells.unique().to_pylist() if _flag(written(value))]
            for row_number in np.flatnonzero(pc.is_in(cells, pa.array(ones, cells.type)).to_numpy()).tolist():
                ids[split][row_number].append(number)
    if empty.total():
        listed = [f"{name} {count}" for name, count in empty.most_common() if count]
        shown = ", ".join(listed[:5]) + (", …" if len(listed) > 5 else "")
        notes.append(f"{empty.total()} empty cells in columns of 0 and 1 count as 0: {shown}")
    return Labels(ids, list(names), f"{len(names)} columns of 0 and 1")


def _from_texts(tables: Tables, column: str, delimiter: str | None, known: Sequence[str] = ()) -> tuple[Lists, str]:
    """The names in the cells of a column of texts, and how they are written."""
    texts = {split: [(text or "").strip() for text in table.texts(column)] for split, table in tables.items()}
    every = [text for found in texts.values() for text in found]
    written_out = sum(bool(WRITTEN_LIST.fullmatch(text)) for text in every)
    all_bracketed = any(every) and all(text[:1] + text[-1:] in ("", "[]") for text in every)
    if delimiter is None and (all_bracketed or 2 * written_out > sum(map(bool, every))):
        read = {split: [_read_list(text, column) for text in found] for split, found in texts.items()}
        return read, "lists of labels, written out"
    if delimiter is None and known:
        names = frozenset(known)
        return {split: [[*names_in(text, names)] for text in found] for split, found in texts.items()}, "known labels"
    delimiter = _found_delimiter(every) if delimiter is None else delimiter
    shown = {"\t": "tabs", " ": "spaces"}.get(delimiter or "", repr(delimiter))
    lists: Lists = {split: [[*pieces(text, delimiter)] for text in found] for split, found in texts.items()}
    if delimiter and not any(delimiter in text for text in every):  # named by the user
        return lists, f"one label per row: no {shown}"
    return lists, f"labels separated by {shown}" if delimiter else "one label per row"


def _names(items: Sequence[Any], column: str) -> list[str | None]:
    """The items of a list as names of labels, without the blanks around them."""
    if any(isinstance(item, list | tuple | dict | set) for item in items):
        raise CorpusFormatError(f"Column {column!r} holds {str(items)[:60]}, expected a list of labels.")
    names = map(written, items)
    return [None if name is None else name.strip() for name in names]


def _are_multi_hot(rows: Sequence[Sequence[str | None]], column: str) -> bool:
    """Whether lists are a 0 or 1 for each label, and not the labels themselves; empty lists tell nothing."""
    lengths = {len(row) for row in rows if row}
    if max(lengths, default=0) < 2 or not all(_flag(item) is not None for row in rows for item in row):
        return False
    if len(lengths) > 1 and max(lengths) > 2:  # no row can hold more than two of the labels 0 and 1
        found = f"lists of 0 and 1, but of different lengths ({', '.join(map(str, sorted(lengths)))})"
        expected = "one 0 or 1 for each label in every row, or lists of the labels that a row has"
        raise CorpusFormatError(f"Column {column!r} holds {found}. Expected {expected}.")
    return len(lengths) == 1


def _read_list(text: str, column: str) -> list[str | None]:
    """The items of a list that is written out as in Python or JSON; numbers stay as they are written.

    Sets and tuples are taken too, and arrays, between whose items numpy writes no commas.

    Examples:
        >>> _read_list("['a', 1.10, 2]", "labels"), _read_list("['a' 'b']", "labels"), _read_list("nan", "labels")
        (['a', '1.10', '2'], ['a', 'b'], [])
    """
    if _is_empty(text) or text in ("{}", "set()"):
        return []
    try:
        try:
            listed = json.loads(text, parse_int=str, parse_float=str) if text[0] == "[" else None
            if listed is not None:
                return _names(listed, column)
        except ValueError:  # single quotes, as Python writes them
            pass
        items = ast.parse(text, mode="eval").body.elts  # type: ignore[attr-defined]
        sources = [(ast.literal_eval(item), str(ast.get_source_segment(text, item))) for item in items]
        found: list[Any] = []
        for value, source in sources:
            found += _strings(source) if isinstance(value, str) else [source if type(value) in (int, float) else value]
        return _names(found, column)
    except (AttributeError, ValueError, SyntaxError, RecursionError, MemoryError, tokenize.TokenError) as error:
        what = f"{text[:80]!r}, which looks like a list of labels but is none"
        raise CorpusFormatError(f"Column {column!r} holds {what}.") from error


def _strings(source: str) -> list[str]:
    """The strings in a piece of Python, which would join those with nothing in between."""
    tokens = tokenize.generate_tokens(io.StringIO(f"({source})").readline)
    return [ast.literal_eval(token.string) for token in tokens if token.type == tokenize.STRING]


def _found_delimiter(texts: Sequence[str]) -> str | None:
    """The first delimiter that is no stray character.

    It occurs in a tenth as many texts as the most frequent one, or between what other texts hold alone: names may have
    commas. A comma that takes apart only what occurs nowhere else is part of a name. A space only where there is no
    other, and if it makes fewer labels, since names may hold spaces.

    Examples:
        >>> _found_delimiter(["Clothing, Shoes & Jewelry", "Books", "Toys"])
        >>> _found_delimiter(["very good", "good", "bad", "very bad"])
        >>> _found_delimiter(["C|C++, Rust", *["Rust, Go"] * 20])
        ','
        >>> _found_delimiter(["Music, dance|Food, wine", *["Music, dance"] * 20, *["Food, wine"] * 20])
        '|'
    """
    having = {delimiter: [text for text in texts if delimiter in text] for delimiter in DELIMITERS}
    most, cells = max(map(len, having.values())), set(texts)
    for delimiter, found in having.items():
        between = [piece for text in found for piece in pieces(text, delimiter)]
        alone = sum(piece in cells for piece in between)
        if found and (10 * len(found) >= most or 2 * alone >= len(between)) and _makes_sets(cells, delimiter):
            return delimiter
    return " " if _spaces_separate(cells) else None


def _spaces_separate(cells: Collection[str]) -> bool:
    """Whether words are labels: fewer than the cells, and not bound to a place beside others, as in ``very good``."""
    spaced = [found for cell in cells if (found := pieces(cell, " "))]
    words = {word for found in spaced for word in found}
    bound = words - {found[0] for found in spaced if len(found) == 1}
    moving = (
        bound & {word for found in spaced for word in found[:-1]} & {word for found in spaced for word in found[1:]}
    )
    enough = len(moving) * 2 >= len(bound)
    if len({len(found) for found in spaced}) > 1:  # sets do not all have one size, and may have one order
        enough |= len(moving) * 3 >= len(bound) or len(words) * 4 <= len(spaced)
    return enough and len(words) < len(spaced)


def _makes_sets(cells: Collection[str], delimiter: str) -> bool:
    """Whether names between a delimiter occur in other cells too, so that it separates what belongs to several."""
    if delimiter != ",":  # names hardly have others
        return True
    where = Counter(piece for cell in cells for piece in set(pieces(cell, delimiter)))
    return any(where[piece] > 1 for cell in cells if delimiter in cell for piece in pieces(cell, delimiter))
