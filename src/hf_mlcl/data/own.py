"""Data of one's own: a CSV, JSON or Parquet file, a folder of images, or a dataset on the Hub.

What the columns mean is recognised, and `OwnData.describe` says what was: nobody should train on a guess unseen.
"""

from __future__ import annotations

import ast
import bz2
import csv
import gzip
import hashlib
import itertools
import json
import logging
import lzma
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import datasets
import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict, Image, List, Value, load_dataset

from hf_mlcl.data.download import hub_is_reachable
from hf_mlcl.data.errors import CorpusFileError, CorpusFormatError
from hf_mlcl.data.splits import SEED
from hf_mlcl.data.stratification import stratified_parts

READERS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
SPLIT_NAMES = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval"),
}
TEXT_NAMES = ("text", "sentence", "document", "content", "abstract", "body", "review", "comment", "tweet", "message")
IMAGE_NAMES = ("image", "file_name", "filename", "image_path", "path", "file")
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
DELIMITERS = ("|", ";", ",", "\t", " ")
FRACTIONS = (0.8, 0.1, 0.1)
FEWEST_ROWS = 10


@dataclass(frozen=True)
class OwnData:
    """Data that were read and understood.

    Attributes:
        splits: ``train``, ``validation`` and ``test`` (those that the data bring, where nothing was cut off), with a
            column ``text`` or ``image`` and ``labels`` as lists of ids, as `load_corpus` gives them.
        kind: ``"text"`` or ``"image"``.
        content_column: The column that texts or images were taken from.
        labels_found: Where and how labels were found.
        split_rule: Where the splits come from.
        notes: What a careful reader would like to know: rows left out, labels with few rows.
    """

    splits: DatasetDict
    kind: Literal["text", "image"]
    content_column: str
    labels_found: str
    split_rule: str
    notes: list[str] = field(default_factory=list)

    @property
    def label_names(self) -> list[str]:
        """The labels, in the order of their ids."""
        names: list[str] = self.splits["train"].features["labels"].feature.names
        return names

    def label_counts(self) -> dict[str, int]:
        """Rows of each label in all splits together, the most frequent first."""
        counts: Counter[int] = Counter()
        for rows in self.splits.values():
            counts.update(label for labels in rows["labels"] for label in labels)
        ordered = sorted(range(len(self.label_names)), key=lambda label: -counts[label])
        return {self.label_names[label]: counts[label] for label in ordered}

    def describe(self) -> list[tuple[str, str]]:
        """What was recognised, as pairs of a heading and a text."""
        sizes = ", ".join(f"{split} {len(rows):,}" for split, rows in self.splits.items())
        counts = self.label_counts()
        total = sum(len(rows) for rows in self.splits.values())
        named = [f"{name} {count:,}" for name, count in counts.items()]
        shown = ", ".join(named) if len(named) <= 12 else ", ".join([*named[:6], "…", *named[-4:]])
        return [
            (f"{self.kind}s", f"column {self.content_column!r}"),
            ("labels", self.labels_found),
            ("", f"{len(counts)} labels, {sum(counts.values()) / max(total, 1):.2f} a row: {shown}"),
            ("splits", f"{sizes} ({self.split_rule})"),
            *(("note", note) for note in self.notes),
        ]


def read_own_data(
    source: str | os.PathLike[str],
    *,
    text_column: str | None = None,
    label_columns: Sequence[str] | None = None,
    label_delimiter: str | None = None,
    seed: int = SEED,
    cut: bool = True,
) -> OwnData:
    r"""Read data, recognise texts or images and labels, and split them where they are not split.

    Labels may stand in columns of 0 and 1 (or yes and no), one a label; in a column of lists; or in one column of
    text, separated by ``|``, ``;``, ``,``, tabs or spaces. Splits that are missing are cut from the training rows
    (8 : 1 : 1) by iterative stratification, so that every label keeps its share.

    Args:
        source: A CSV, TSV, JSON, JSON Lines or Parquet file; a folder with files ``train.csv``, ``validation.csv``,
            ``test.csv`` (or the like); a folder of images with a ``metadata.csv`` (column ``file_name``, then labels),
            or with a subfolder a class; or the id of a dataset on the Hub (``owner/name``, or ``owner/name:config``).
        text_column: The column with texts (or paths of images), where it is not found by itself.
        label_columns: The columns with labels, where they are not found by themselves.
        label_delimiter: What separates the labels in one column, where it is not found by itself.
        seed: Of the splits.
        cut: Whether to cut off the splits that are missing; without, the rows stay as they come.

    Raises:
        CorpusFileError: If the source is not there or cannot be read.
        CorpusFormatError: If texts or labels are not found, or are not what they should be.

    Examples:
        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "news.csv"
        >>> rows = [f"story number {i},{'sport|music' if i % 2 else 'music'}" for i in range(20)]
        >>> _ = file.write_text("text,tags\n" + "\n".join(rows))
        >>> data = read_own_data(file)
        >>> data.labels_found, data.label_counts()
        ("column 'tags', labels separated by '|'", {'music': 20, 'sport': 10})
        >>> {split: len(rows) for split, rows in data.splits.items()}
        {'train': 16, 'validation': 2, 'test': 2}
    """
    raw = _read(os.fspath(source))
    columns = _columns(raw)
    kind, content = _content_column(raw, columns, text_column, set(label_columns or ()))
    notes: list[str] = []
    raw = _without_blank_rows(raw, content, kind, notes)
    labels, names, found = _labels(raw, columns, content, label_columns, label_delimiter, notes)
    splits = {}
    for split, rows in raw.items():
        rows = rows.select_columns([content])
        rows = rows if content == kind else rows.rename_column(content, kind)
        rows = rows.cast_column("image", Image()) if kind == "image" else rows.cast_column("text", Value("string"))
        feature = List(ClassLabel(names=names))
        splits[split] = rows.add_column("labels", labels[split], feature=feature)
    result, rule = cut_missing_splits(splits, seed) if cut else (DatasetDict(splits), "as given")
    data = OwnData(result, kind, content, found, rule, notes)
    few = [name for name, count in data.label_counts().items() if count < 5]
    if few:
        listed = ", ".join(few[:5]) + (", …" if len(few) > 5 else "")
        notes.append(f"{len(few)} of {len(names)} labels have fewer than 5 rows and can hardly be learned: {listed}")
    _note_repeated_texts(data, notes)
    return data


def content_of(source: str | os.PathLike[str], kind: str, column: str | None = None) -> list[str]:
    """The texts, or the paths of the images, in a file; labels are not looked for.

    Args:
        source: A CSV, TSV, JSON, JSON Lines or Parquet file.
        kind: ``"text"`` or ``"image"``.
        column: The column, where it is not found by itself.
    """
    raw = _read(os.fspath(source))
    found, name = _content_column(raw, _columns(raw), column, set())
    if found != kind:
        raise CorpusFormatError(f"{os.fspath(source)} has {found}s in column {name!r}, but {kind}s are wanted.")
    return ["" if value is None else str(value) for value in raw["train"][name]]


def data_fingerprint(splits: Mapping[str, Dataset]) -> str:
    """A hash of all rows in their order, which tells whether data are those that a classifier was trained on.

    Texts count with all of their letters, images with the name and the size of their file, wherever it lies.

    Args:
        splits: As `read_own_data` gives them.

    Examples:
        >>> from datasets import Features
        >>> features = Features({"text": Value("string"), "labels": List(ClassLabel(names=["art", "music"]))})
        >>> rows = Dataset.from_dict({"text": ["one", "two"], "labels": [[0], [0, 1]]}, features=features)
        >>> data_fingerprint({"train": rows}) == data_fingerprint({"train": rows.select([1, 0])})
        False
    """
    digest = hashlib.sha256()
    for split in sorted(splits):
        rows = splits[split]
        names = rows.features["labels"].feature.names
        if "image" in rows.column_names:
            contents: Iterable[Any] = map(_name_and_size, rows.cast_column("image", Image(decode=False))["image"])
        else:
            contents = rows["text"]
        for content, labels in zip(contents, rows["labels"], strict=True):
            digest.update(json.dumps([split, content, [names[label] for label in labels]]).encode())
    return digest.hexdigest()


def _name_and_size(image: Mapping[str, Any]) -> tuple[str, int]:
    path = image["path"] or ""
    if image["bytes"] is not None:
        return os.path.basename(path), len(image["bytes"])
    return os.path.basename(path), os.path.getsize(path) if os.path.isfile(path) else 0  # in an archive, or far away


# Files ----------------------------------------------------------------------------------------------------------------


def _read(source: str) -> dict[str, Dataset]:
    """The rows of each split under its usual name."""
    path = Path(source).expanduser()
    if path.is_file():
        rows = _read_file(path)
        return {"train": _with_image_paths(rows, path.parent)}
    if path.is_dir():
        return _read_folder(path)
    if path.suffix.lower() in READERS or source.count("/") > 1 or source.startswith((".", "~", "/")):
        raise CorpusFileError(f"{source!r} is not there. Give a CSV, JSON or Parquet file, a folder, or a Hub dataset.")
    if not hub_is_reachable():
        raise CorpusFileError(f"{source!r} is neither a file nor a folder here, and the Hub cannot be reached.")
    name, _, config = source.partition(":")
    try:
        found = load_dataset(name, config or None)
    except Exception as error:  # whatever the network, the Hub or its files come up with
        raise CorpusFileError(
            f"{source!r} is neither a file nor a folder here, and as a dataset of the Hub it cannot be had: {error}"
        ) from error
    return _named_splits(dict(found))


def _read_file(path: Path) -> Dataset:
    endings = [ending for ending in path.suffixes if ending not in OPENERS]
    reader = READERS.get(endings[-1].lower()) if endings else None
    if reader is None:
        raise CorpusFileError(f"{path} ends in {path.suffix or 'nothing'!r}; expected one of {', '.join(READERS)}.")
    options: dict[str, Any] = {}
    try:
        if reader == "csv":  # pandas would take labels and texts such as None, NA, null or n/a for empty cells
            options = {"sep": _checked_separator(path), "keep_default_na": False, "na_values": [""]}
        with _quiet_datasets():
            return load_dataset(reader, data_files=str(path), split="train", **options)
    except CorpusFormatError:
        raise
    except Exception as error:  # of csv, gzip, pandas, pyarrow or datasets, depending on what is wrong
        cause = error.__cause__ or error
        hint = ". Save it as UTF-8" if isinstance(cause, UnicodeDecodeError) else ""
        raise CorpusFileError(f"{path} cannot be read as {reader.upper()}: {cause}{hint}") from error


@contextmanager
def _quiet_datasets() -> Iterator[None]:
    """The library logs the errors that it raises; they are told once."""
    before = datasets.logging.get_verbosity()
    datasets.logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        datasets.logging.set_verbosity(before)


def _checked_separator(path: Path) -> str:
    """What separates the columns of a CSV file: what its header has most of. There must be rows below the header."""
    with OPENERS.get(path.suffix, open)(path, "rt", encoding="utf-8", errors="replace") as file:
        first = next((line for line in file if line.strip()), "")
        separator = max((",", ";", "\t"), key=first.count)
        header = next(csv.reader(itertools.chain([first], file), delimiter=separator))
        has_rows = any(line.strip() for line in file)
    names = Counter(name.strip() for name in header)
    if twice := [name for name, count in names.items() if name and count > 1]:
        # pandas would call the second one "plot.1", and it would become a label
        raise CorpusFormatError(f"{path} has more than one column {', '.join(map(repr, twice))}. Rename or delete one.")
    if not has_rows:
        raise CorpusFormatError(f"{path} has a header but no rows." if first else f"{path} is empty.")
    return separator


def _read_folder(folder: Path) -> dict[str, Dataset]:
    tables = {}
    for path in sorted(folder.iterdir()):
        split = _split_name(path.name.split(".")[0])
        if path.is_file() and split and READERS.get(path.suffixes[0].lower() if path.suffixes else ""):
            tables[split] = _with_image_paths(_read_file(path), folder)
    if tables:
        return _named_splits(tables)
    if not any(path.suffix.lower() in IMAGE_ENDINGS for path in folder.rglob("*")):
        raise CorpusFileError(
            f"{folder} holds neither train.csv (.tsv, .json, .jsonl, .parquet) nor images. Give the file itself, or a "
            f"folder of images with a metadata.csv."
        )
    if described := _read_metadata(folder):
        return described
    try:
        return _named_splits(dict(load_dataset("imagefolder", data_dir=str(folder))))
    except Exception as error:  # depends on what is wrong with metadata or images
        raise CorpusFileError(
            f"{folder} cannot be read as a folder of images: {error}. It needs a metadata.csv with a column file_name "
            f"(paths relative to the folder) and labels, or a subfolder a class."
        ) from error


def _read_metadata(folder: Path) -> dict[str, Dataset]:
    """The tables ``metadata.csv`` of a folder of images or of its splits, read as any other CSV; none if one lacks."""
    parts = {path: split for path in sorted(folder.iterdir()) if path.is_dir() and (split := _split_name(path.name))}
    folders = parts or {folder: "train"}
    if not all((path / "metadata.csv").is_file() for path in folders):
        return {}
    return _named_splits(
        {split: _with_image_paths(_read_file(path / "metadata.csv"), path) for path, split in folders.items()}
    )


def _split_name(word: str) -> str | None:
    return next((split for split, names in SPLIT_NAMES.items() if word.lower() in names), None)


def _named_splits(found: dict[str, Dataset]) -> dict[str, Dataset]:
    named = {_split_name(str(split)): rows for split, rows in found.items()}
    splits = {split: named[split] for split in SPLIT_NAMES if split in named}
    if "train" not in splits:
        if len(found) > 1:
            raise CorpusFormatError(f"There is no split for training among {', '.join(map(str, found))}.")
        return {"train": next(iter(found.values()))}
    return splits


def _with_image_paths(rows: Dataset, folder: Path) -> Dataset:
    """Where a column holds paths of images, make them absolute, so that they can be opened from anywhere."""
    for column in (name for name in rows.column_names if name.lower() in IMAGE_NAMES):
        values = rows[column]
        if all(isinstance(value, str) and value.lower().endswith(IMAGE_ENDINGS) for value in values):
            missing = next((value for value in values if not (folder / value).is_file()), None)
            if missing is not None:
                raise CorpusFileError(f"Column {column!r} names the image {missing!r}, which is not in {folder}.")
            return rows.map(_with_folder, fn_kwargs={"column": column, "folder": str(folder.resolve())})
    return rows


def _with_folder(row: dict[str, Any], column: str, folder: str) -> dict[str, str]:
    return {column: os.path.join(folder, row[column])}


# Columns --------------------------------------------------------------------------------------------------------------


def _columns(raw: dict[str, Dataset]) -> list[str]:
    """The columns, which all splits share."""
    columns: list[str] = raw["train"].column_names
    for split, rows in raw.items():
        if missing := [name for name in columns if name not in rows.column_names]:
            raise CorpusFormatError(f"The {split} split has no column {missing[0]!r}, which the training split has.")
        if not len(rows):
            raise CorpusFormatError(f"The {split} split has no rows.")
    return columns


def _content_column(
    raw: dict[str, Dataset], columns: Sequence[str], chosen: str | None, label_columns: set[str]
) -> tuple[Literal["text", "image"], str]:
    features, rows = raw["train"].features, raw["train"]
    if chosen is not None:
        _check_named("text_column", [chosen], columns)
        return ("image" if _is_image(rows, chosen) else "text"), chosen
    for name in columns:
        if _is_image(rows, name):
            return "image", name
    strings = [name for name in columns if _is_string(features[name]) and name not in label_columns]
    by_name = [name for word in TEXT_NAMES for name in strings if name.lower() == word]
    if by_name:
        return "text", by_name[0]
    strings = [name for name in strings if name.lower() not in LABEL_NAMES]
    if not strings:
        raise CorpusFormatError(
            f"No column with texts or images was found among {', '.join(columns)}. Name it: {_option('text_column')}."
        )
    return "text", max(strings, key=lambda name: np.mean([len(value or "") for value in rows[name][:1000]]))


def _is_string(feature: Any) -> bool:
    return isinstance(feature, Value) and feature.dtype in ("string", "large_string")


def _is_image(rows: Dataset, column: str) -> bool:
    if isinstance(rows.features[column], Image):
        return True
    if not _is_string(rows.features[column]):
        return False
    values = rows[column][:20]
    return all(isinstance(value, str) and value.lower().endswith(IMAGE_ENDINGS) for value in values)


def _check_named(argument: str, named: Iterable[str], columns: Sequence[str]) -> None:
    if unknown := [name for name in named if name not in columns]:
        raise CorpusFormatError(f"{_option(argument)} names {unknown[0]!r}, but the columns are {', '.join(columns)}.")


def _option(argument: str) -> str:
    """What an argument is called in Python and on the command line.

    Examples:
        >>> _option("text_column")
        'text_column (--text-column)'
    """
    return f"{argument} (--{argument.replace('_', '-')})"


def _without_blank_rows(raw: dict[str, Dataset], content: str, kind: str, notes: list[str]) -> dict[str, Dataset]:
    """Leave out rows without a text, and say so."""
    if kind == "image":
        return raw
    kept, blank = {}, 0
    for split, rows in raw.items():
        full = [index for index, value in enumerate(rows[content]) if value is not None and str(value).strip()]
        blank += len(rows) - len(full)
        kept[split] = rows if len(full) == len(rows) else rows.select(full)
    if blank:
        notes.append(f"{blank} rows without a text were left out")
    return kept


# Labels ---------------------------------------------------------------------------------------------------------------


def _labels(
    raw: dict[str, Dataset],
    columns: Sequence[str],
    content: str,
    chosen: Sequence[str] | None,
    delimiter: str | None,
    notes: list[str],
) -> tuple[dict[str, list[list[int]]], list[str], str]:
    """The label ids of every row, the labels' names, and how they were found."""
    rest = [name for name in columns if name != content]
    if chosen is not None:
        _check_named("label_columns", chosen, rest)
        candidates = list(chosen)
    else:
        by_name = [name for word in LABEL_NAMES for name in rest if name.lower() == word]
        flags = [name for name in rest if _is_flag(raw, name)]
        lists = [name for name in rest if isinstance(raw["train"].features[name], List)]
        found_otherwise = by_name or (lists and len(flags) < 2)
        strays = [] if found_otherwise else [stray for name in rest if (stray := _stray_among_flags(raw, name))]
        if strays and len(flags) + len(strays) > 1:  # a label would be lost, or all of them
            raise CorpusFormatError(
                f"{strays[0]}. Mend it, or name the columns that are labels: {_option('label_columns')}."
            )
        candidates = by_name[:1] or (flags if len(flags) > 1 else []) or lists[:1]
    if len(candidates) > 1:
        return _from_flags(raw, candidates, notes)
    if not candidates:
        raise CorpusFormatError(
            f"No labels were found among the columns {', '.join(columns)}. Expected: a column 'labels' with lists or "
            f"with names separated by | ; , tabs or spaces; or a column of 0 and 1 for each label. Name them: "
            f"{_option('label_columns')}."
        )
    return _from_column(raw, candidates[0], delimiter, notes)


def _stray_among_flags(raw: dict[str, Dataset], column: str) -> str | None:
    """Where a column of 0 and 1 holds something else; None if all is well, or if it is no such column at all."""
    cells = [
        (f"row {number} of {split}", value)
        for split, rows in raw.items()
        for number, value in enumerate(rows[column][:1000], 1)
        if not _is_empty(value)
    ]
    strays = [(place, value) for place, value in cells if _flag(value) is None]
    if not strays or len(strays) > STRAYS_AT_MOST * len(cells):
        return None
    place, value = strays[0]
    return f"Column {column!r} is 0/1 but for {place}: {value!r}"


def _is_flag(raw: dict[str, Dataset], column: str) -> bool:
    """Whether a column holds nothing but 0 and 1, in any spelling, and perhaps empty cells."""
    cells = [value for rows in raw.values() for value in rows[column][:1000]]
    if any(_flag(value) is None and not _is_empty(value) for value in cells):
        return False
    return any(_flag(value) is not None for rows in raw.values() for value in rows[column])


def _flag(value: Any) -> bool | None:
    if isinstance(value, str):
        return FLAG_WORDS.get(value.strip().lower())
    return bool(value) if value in (0, 1) else None


def _is_empty(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in EMPTY_WORDS
    return value is None or value != value


def _from_flags(
    raw: dict[str, Dataset], names: list[str], notes: list[str]
) -> tuple[dict[str, list[list[int]]], list[str], str]:
    empty: Counter[str] = Counter()
    labels: dict[str, list[list[int]]] = {}
    for split, rows in raw.items():
        labels[split] = [[] for _ in range(len(rows))]
        for number, name in enumerate(names):
            for index, value in enumerate(rows[name]):
                flag = _flag(value)
                if flag is None and _is_empty(value):
                    empty[name] += 1
                elif flag is None:
                    raise CorpusFormatError(
                        f"Column {name!r} holds {value!r} in row {index + 1} of {split}, expected 0 or 1."
                    )
                if flag:
                    labels[split][index].append(number)
    if empty:
        listed = ", ".join(f"{name} {count}" for name, count in empty.most_common(5)) + (
            ", …" if len(empty) > 5 else ""
        )
        notes.append(f"{empty.total()} empty cells in columns of 0 and 1 count as 0: {listed}")
    return labels, names, f"{len(names)} columns of 0 and 1"


def _from_column(
    raw: dict[str, Dataset], column: str, delimiter: str | None, notes: list[str]
) -> tuple[dict[str, list[list[int]]], list[str], str]:
    feature = raw["train"].features[column]
    values = {split: list(rows[column]) for split, rows in raw.items()}
    inner = feature.feature if isinstance(feature, List) else feature
    if isinstance(inner, ClassLabel):
        how = "lists of labels" if isinstance(feature, List) else "one label a row"
        ids = {split: [_listed(value) for value in column_values] for split, column_values in values.items()}
        return ids, list(inner.names), f"column {column!r}, {how}"
    written = not isinstance(feature, List) and _written_lists([value for found in values.values() for value in found])
    if isinstance(feature, List) or written:
        lists = {
            split: [_read_list(value, column) if written else list(value or []) for value in found]
            for split, found in values.items()
        }
        how = "lists of labels, written out" if written else "lists of labels"
        if _are_multi_hot([row for found in lists.values() for row in found], column):
            return _from_multi_hot(lists, column, notes)
        named = {split: [[str(item) for item in row] for row in found] for split, found in lists.items()}
    else:
        texts = {split: [_text_of(value) for value in found] for split, found in values.items()}
        if delimiter is None:
            delimiter = _found_delimiter([text for found in texts.values() for text in found])
        named = {split: [_pieces(text, delimiter) for text in found] for split, found in texts.items()}
        shown = {"\t": "tabs", " ": "spaces"}.get(delimiter or "", repr(delimiter))
        how = f"labels separated by {shown}" if delimiter else "one label a row"
    names = sorted({name for found in named.values() for row in found for name in row})
    if len(names) < 2:
        raise CorpusFormatError(
            f"Column {column!r} holds {len(names)} different labels ({', '.join(names) or 'none'}); at least 2 are "
            f"needed. Name the right columns, {_option('label_columns')}, or what separates the labels, "
            f"{_option('label_delimiter')}."
        )
    number = {name: index for index, name in enumerate(names)}
    ids = {split: [sorted({number[name] for name in row}) for row in found] for split, found in named.items()}
    return ids, names, f"column {column!r}, {how}"


def _are_multi_hot(rows: Sequence[Sequence[Any]], column: str) -> bool:
    """Whether lists are a 0 or 1 for each label, and not the labels themselves; empty lists tell nothing."""
    lengths = {len(row) for row in rows if row}
    if not all(_flag(item) is not None for row in rows for item in row) or max(lengths, default=0) < 2:
        return False
    if len(lengths) == 1:
        return True
    if max(lengths) > 2:  # no row can hold more than two of the labels 0 and 1
        found = ", ".join(map(str, sorted(lengths)))
        raise CorpusFormatError(
            f"Column {column!r} holds lists of 0 and 1, but of different lengths ({found}). "
            f"Expected one 0 or 1 for each label in every row, or lists of the labels that a row has."
        )
    return False


def _from_multi_hot(
    lists: dict[str, list[list[Any]]], column: str, notes: list[str]
) -> tuple[dict[str, list[list[int]]], list[str], str]:
    ids = {
        split: [[number for number, item in enumerate(row) if _flag(item)] for row in found]
        for split, found in lists.items()
    }
    count = max(len(row) for found in lists.values() for row in found)
    notes.append(f"lists of 0 and 1 have no names of labels: they are called 0 to {count - 1}, by their place")
    return ids, [str(number) for number in range(count)], f"column {column!r}, lists of 0 and 1, one place a label"


def _listed(value: Any) -> list[int]:
    if value is None:
        return []
    return [int(value)] if isinstance(value, int) else sorted({int(item) for item in value})


def _text_of(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _written_lists(values: Sequence[Any]) -> bool:
    texts = [text for text in map(_text_of, values) if text]
    return bool(texts) and all(text.startswith("[") and text.endswith("]") for text in texts)


def _read_list(value: Any, column: str) -> list[Any]:
    text = _text_of(value)
    try:
        return list(ast.literal_eval(text)) if text else []
    except (ValueError, SyntaxError) as error:
        raise CorpusFormatError(
            f"Column {column!r} holds {text[:80]!r}, which looks like a list but is none."
        ) from error


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


# Splits ---------------------------------------------------------------------------------------------------------------


def cut_missing_splits(splits: Mapping[str, Dataset], seed: int = SEED) -> tuple[DatasetDict, str]:
    """All three splits, those that are missing cut from the training rows; and where they come from.

    Args:
        splits: ``train``, and perhaps others.
        seed: Of the splits.
    """
    missing = [split for split in ("validation", "test") if split not in splits]
    if not missing:
        return DatasetDict({split: splits[split] for split in SPLIT_NAMES}), "as given"
    rows = splits["train"]
    if len(rows) < FEWEST_ROWS:
        raise CorpusFormatError(f"{len(rows)} training rows are too few to split; {FEWEST_ROWS} are the least.")
    fractions = [1 - sum(FRACTIONS[1 : 1 + len(missing)]), *FRACTIONS[1 : 1 + len(missing)]]
    parts = stratified_parts(rows["labels"], fractions, seed)
    cut = {name: rows.select(np.flatnonzero(parts == part)) for part, name in enumerate(["train", *missing])}
    empty = [name for name, found in cut.items() if not len(found)]
    if empty:
        counts = Counter(label for row in rows["labels"] for label in row)
        raise CorpusFormatError(
            f"None of {len(rows)} rows can be cut off for a {empty[0]} split, because the labels are too rare: half of "
            f"the {len(counts)} have at most {np.median(list(counts.values())):g} rows, and rare labels stay in "
            f"training. Leave rare labels out, or give a folder with splits of your own."
        )
    found = {**splits, **cut}
    return DatasetDict({split: found[split] for split in SPLIT_NAMES}), f"{' and '.join(missing)} by stratification"


def _note_repeated_texts(data: OwnData, notes: list[str]) -> None:
    if data.kind == "text" and "test" in data.splits:
        learned = set(data.splits["train"]["text"])
        seen = sum(text in learned for text in data.splits["test"]["text"])
        if seen:
            notes.append(f"{seen} test texts also occur in training, so that test scores flatter")
