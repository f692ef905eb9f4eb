"""Data of your own: a CSV, JSON or Parquet file, a folder, a dataset on the Hub or in memory.

What the columns mean is recognised, and `OwnData.describe` says what was: nobody should train on a guess unseen.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow.compute as pc
from datasets import ClassLabel, Dataset, DatasetDict, Image, List, Value
from numpy.typing import NDArray

from hf_mlcl.data.errors import CorpusFileError, CorpusFormatError, CorpusWarning
from hf_mlcl.data.facts import SplitSizes
from hf_mlcl.data.images import image_defects
from hf_mlcl.data.own_columns import (
    Labels,
    content_column,
    label_columns_of,
    labels_of,
    option,
    shared_columns,
    text_beside,
    without_unlabelled_splits,
)
from hf_mlcl.data.own_files import Source, Table, read_tables, source_name
from hf_mlcl.data.splits import SEED, SPLITS, stratified_parts

HELD_OUT = 0.1
"""Share of the training rows that becomes each split that is missing."""
FEWEST_ROWS = 10
EQUAL_TEXTS = 4
"""Rows of one text that may be held out together, if they are not more than a hundredth of all."""
NAMED_IMAGES = 10
BAD_IMAGES_AT_MOST = 0.01
"""Share of images that cannot be used up to which the others are taken without them."""


@dataclass(frozen=True)
class OwnData:
    """Data that were read and understood.

    Attributes:
        splits: ``train``, ``validation`` and ``test`` (those that the data bring, where nothing was cut off), with a
            column ``text``, ``image`` or both and ``labels`` as lists of ids, as `load_corpus` gives them; and
            ``place``, which says where a row was read: ``reviews.csv, line 7``.
        modality: ``"text"``, ``"image"``, or ``"text+image"`` where rows may have either or both.
        content_column: The column that texts or images were taken from; of both, that of the images.
        beside_column: The column with the texts that belong to images, where there is one.
        labels_found: Where and how labels were found.
        split_rule: Where the splits come from.
        notes: What a careful reader would like to know: rows left out, labels with few rows.
    """

    splits: DatasetDict
    modality: Literal["text", "image", "text+image"]
    content_column: str
    labels_found: str
    split_rule: str
    notes: list[str] = field(default_factory=list)
    beside_column: str | None = None

    @property
    def label_names(self) -> list[str]:
        """The labels, in the order of their ids."""
        names: list[str] = self.splits["train"].features["labels"].feature.names
        return names

    @property
    def sizes(self) -> SplitSizes:
        """Rows of each split, where there are all three."""
        return SplitSizes(*(len(self.splits[name]) for name in ("train", "validation", "test")))

    @property
    def single_label(self) -> bool:
        """Whether every row has exactly one label."""
        cells = (
            rows.select_columns(["labels"]).with_format("arrow")[:].column("labels") for rows in self.splits.values()
        )
        return all(pc.all(pc.equal(pc.list_value_length(labels), 1)).as_py() for labels in cells)

    def label_counts(self) -> dict[str, int]:
        """Rows of each label in all splits together, the most frequent first."""
        counts: Counter[int] = Counter()
        for rows in self.splits.values():
            cells = rows.select_columns(["labels"]).with_format("arrow")[:].column("labels")
            counts.update(pc.list_flatten(cells).to_pylist())
        ordered = sorted(enumerate(self.label_names), key=lambda pair: -counts[pair[0]])
        return {name: counts[label] for label, name in ordered}

    def describe(self) -> list[tuple[str, str]]:
        """What was recognised, as pairs of a heading and a text."""
        sizes = ", ".join(f"{split} {len(rows):,}" for split, rows in self.splits.items())
        counts = self.label_counts()
        per_row = sum(counts.values()) / max(sum(len(rows) for rows in self.splits.values()), 1)
        named = [f"{name} {count:,}" for name, count in counts.items()]
        shown = ", ".join(named if len(named) <= 12 else [*named[:6], "…", *named[-4:]])
        beside = [("texts", f"column {self.beside_column!r}, for a backbone that reads both")]
        return [
            (f"{self.modality.removeprefix('text+')}s", f"column {self.content_column!r}"),
            *(beside if self.beside_column else []),
            ("labels", self.labels_found),
            ("", f"{len(counts)} labels, {per_row:.2f} per row: {shown}"),
            ("splits", f"{sizes} ({self.split_rule})"),
            *(("note", note) for note in self.notes),
        ]


def read_own_data(
    source: Source,
    *,
    text_column: str | None = None,
    label_columns: Sequence[str] | None = None,
    label_delimiter: str | None = None,
    label_names: Sequence[str] = (),
    test_file: str | os.PathLike[str] | None = None,
    seed: int = SEED,
    cut: bool = True,
    strict: bool = False,
) -> OwnData:
    r"""Read data, recognise texts or images and labels, and split them where they are not split.

    Labels may stand in columns of 0 and 1 (or yes and no), one per label; in a column of lists; or in one column of
    text, separated by ``|``, ``;``, ``,``, tabs or spaces. They are called as they are written, without the blanks
    around them: ``01`` and ``1`` are two labels. Where a file holds numbers instead of texts (JSON, Parquet), a whole
    number is called by its digits, as integer or as float: ``3`` and ``3.0`` are the label ``3``.

    Every image is decoded once. Those that cannot be used are left out with a `CorpusWarning` that names them, if they
    are at most 1 % of all, and fewer than half of any label's; otherwise they are an error.

    Splits that are missing are cut from the training rows (8 : 1 : 1) by `stratified_parts`.

    Args:
        source: A CSV, TSV, JSON, JSON Lines or Parquet file; a folder with files ``train.csv``, ``validation.csv``,
            ``test.csv`` (or the like); a folder of images with a ``metadata.csv`` or another table, the only one there
            (column ``file_name``, then labels), or with a subfolder for each class; a folder that ``save_to_disk``
            wrote; the id of a dataset on the Hub (``owner/name``, or ``owner/name:config``); or a `Dataset`,
            `DatasetDict` or pandas DataFrame.
        text_column: The column with texts (or paths of images), where it is not found by itself.
        label_columns: The columns with labels, where they are not found by themselves.
        label_delimiter: What separates the labels in one column, where it is not found by itself.
        label_names: What labels are called, where that is known, as for data to judge a classifier by: columns are
            recognised by these names, and what stands between them in one column separates them.
        test_file: A file with the test rows, where the source has none.
        seed: Of the splits.
        cut: Whether to cut off the splits that are missing; without, the rows stay as they come.
        strict: Whether the first image that cannot be used is an error.

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
    tables = read_tables(source)
    if test_file is not None:
        if not os.path.isfile(test_file):
            raise CorpusFileError(f"test_file={os.fspath(test_file)!r} is not a file. Give a table with the test rows.")
        if "test" in tables:
            raise CorpusFormatError(f"{source_name(source)} has a test split of its own; leave out test_file.")
        tables["test"] = read_tables(os.fspath(test_file))["train"]
    columns = shared_columns(tables)
    modality, content = content_column(tables["train"], columns, text_column, label_columns or ())
    beside = text_beside(tables["train"], columns, content, label_columns or ()) if modality == "image" else None
    notes: list[str] = []
    if modality == "image" and tables["train"].names_images(content):
        first = next(path for path in tables["train"].image_paths(tables["train"].texts(content)[:1]) if path)
        notes.append(f"column {content!r} holds the names of images, such as {first}")
    if modality == "text":
        tables = _without_blank_rows(tables, content, notes)
    found = label_columns_of(tables, columns, content, label_columns, label_names)
    tables = without_unlabelled_splits(tables, found, notes)
    labels = labels_of(tables, found, label_delimiter, notes, label_names)
    splits = {split: _content(table, split, modality, content, beside) for split, table in tables.items()}
    if modality == "image":
        splits, labels = _without_bad_images(splits, labels, content, strict, notes)
    feature = List(ClassLabel(names=labels.names))
    splits = {split: rows.add_column("labels", labels.ids[split], feature=feature) for split, rows in splits.items()}
    result, rule = cut_missing_splits(splits, seed) if cut else (DatasetDict(splits), "as given")
    data = OwnData(result, "text+image" if beside else modality, content, labels.found, rule, notes, beside)
    if data.single_label:
        notes.append(
            "every row has one label, so a new one gets one, the most probable (--single_label False: any number)"
        )
    if few := [name for name, count in data.label_counts().items() if count < 5]:
        have = "has" if len(few) == 1 else "have"
        what = f"{len(few)} of {len(labels.names)} labels {have} fewer than 5 rows and can hardly be learned"
        notes.append(f"{what}: {', '.join(few[:5])}{', …' if len(few) > 5 else ''}")
    carried = {number for ids in result["train"]["labels"][:] for number in ids}
    if absent := [name for number, name in enumerate(labels.names) if number not in carried]:
        have = "has" if len(absent) == 1 else "have"
        only = "no encoder of images alone can learn them" if modality == "image" else "only their names tell of them"
        what = f"{len(absent)} of {len(labels.names)} labels {have} no training row: {only}"
        notes.append(f"{what}: {', '.join(absent[:5])}{', …' if len(absent) > 5 else ''}")
    if modality == "text":
        notes += _notes_on_equal_texts(result)
    return data


def content_of(
    source: str | os.PathLike[str], modality: str, column: str | None = None, trained: Mapping[str, Any] | None = None
) -> tuple[list[Any], str]:
    """The texts, or the paths of the images, in a column of a table, and what it is called.

    It is the column that was named, else the one that was named for the training whose settings are `trained`, else one
    that is found. With the modality ``"text+image"`` a row is a dictionary with either or both.
    """
    tables, trained = read_tables(os.fspath(source)), trained or {}
    table, columns = tables["train"], shared_columns(tables)
    if column is None and trained.get("text_column") in columns:
        column = trained["text_column"]
    labels = trained.get("label_columns") or ()
    found, name = content_column(table, columns, column, labels)
    beside = text_beside(table, columns, name, labels) if found == "image" else None
    if modality == "text+image":
        cells = {found: table.texts(name), **({"text": table.texts(beside)} if beside else {})}
        if "image" in cells:
            cells["image"] = table.image_paths(cells["image"])
        return [dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)], name
    if modality == "text" and beside:
        found, name = "text", beside
    if found != modality:
        raise CorpusFormatError(f"{os.fspath(source)} has {found}s in column {name!r}, but {modality}s are wanted.")
    texts = table.texts(name)
    return [value or "" for value in (table.image_paths(texts) if modality == "image" else texts)], name


def data_fingerprint(splits: Mapping[str, Dataset]) -> str:
    """A hash of all rows in their order, which tells whether data are those that a classifier was trained on.

    Texts count with all of their letters, images with the name and the size of their file, wherever it lies.

    Examples:
        >>> from datasets import Features
        >>> features = Features({"text": Value("string"), "labels": List(ClassLabel(names=["art", "music"]))})
        >>> rows = Dataset.from_dict({"text": ["one", "two"], "labels": [[0], [0, 1]]}, features=features)
        >>> data_fingerprint({"train": rows}) == data_fingerprint({"train": rows.select([1, 0])})
        False
    """
    digest = hashlib.sha256()
    for split, rows in sorted(splits.items()):
        names = rows.features["labels"].feature.names
        columns = [name for name in ("image", "text") if name in rows.column_names]
        plain = rows.select_columns([*columns, "labels"])
        for batch in plain.with_format("arrow").iter(1000):  # a row as Python would copy the names of all labels
            for *content, labels in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                each = [_name_and_size(cell) if isinstance(cell, dict) else cell for cell in content]
                what = each[0] if len(each) == 1 else each
                digest.update(json.dumps([split, what, [names[label] for label in labels]]).encode())
    return digest.hexdigest()


def _name_and_size(image: Mapping[str, Any]) -> tuple[str, int]:
    path = image["path"] or ""
    if image["bytes"] is not None:
        return os.path.basename(path), len(image["bytes"])
    return os.path.basename(path), os.path.getsize(path) if os.path.isfile(path) else 0  # in an archive, or far away


def _without_blank_rows(tables: Mapping[str, Table], content: str, notes: list[str]) -> dict[str, Table]:
    """Leave out rows without a text, and say so."""
    found = {}
    for split, table in tables.items():
        full = np.flatnonzero([bool(text and text.strip()) for text in table.texts(content)])
        if not len(full):
            raise CorpusFormatError(
                f"Column {content!r} has no text in any of the {len(table)} rows of {split}. Name the column with "
                f"texts: {option('text_column')}."
            )
        found[split] = table if len(full) == len(table) else replace(table, kept=full)
    if blank := sum(map(len, tables.values())) - sum(map(len, found.values())):
        notes.append(f"{blank} rows without a text were left out" if blank > 1 else "a row without a text was left out")
    return found


def _content(table: Table, split: str, modality: str, column: str, beside: str | None) -> Dataset:
    """The texts or images alone, under the usual names of their columns, and where they were read."""
    feature, places = table.features[column], table.places(split)
    if isinstance(feature, Image) or (modality == "text" and feature == Value("string")):
        rows = table.rows.select_columns([column])
        rows = rows if column == modality else rows.rename_column(column, modality)
        rows = rows if table.kept is None else rows.select(table.kept)
    elif modality == "text":
        rows = Dataset.from_dict({"text": table.texts(column)})
    else:
        rows = Dataset.from_dict({"image": table.image_paths(table.texts(column))}).cast_column("image", Image())
    if modality == "image" and table.file is None:  # images without a table are known by their names
        paths = pc.struct_field(rows.data.column("image"), "path").to_pylist()
        places = [os.path.basename(path) for path in paths] if all(paths) else places
    if beside is not None:
        rows = rows.add_column("text", table.texts(beside))
    return rows.add_column("place", places)


def _without_bad_images(
    splits: Mapping[str, Dataset], labels: Labels, column: str, strict: bool, notes: list[str]
) -> tuple[dict[str, Dataset], Labels]:
    """Leave out images that cannot be used and warn of them, if they are few; otherwise they are an error."""
    bad = {split: image_defects(rows.data.column("image"), 1 if strict else None) for split, rows in splits.items()}
    for split, rows in splits.items():
        if "text" in rows.column_names:  # a row without an image may have a text
            texts, there = rows.data.column("text"), having(rows, "image")
            bad[split] = {
                row: why for row, why in bad[split].items() if there[row] or not (texts[row].as_py() or "").strip()
            }
    count, total = sum(map(len, bad.values())), sum(map(len, splits.values()))
    if not count:
        return dict(splits), labels
    defects = [
        f"{rows.data.column('image')[row]['path'].as_py() or f'row {row + 1} of {split}'} ({reason})"
        for split, rows in splits.items()
        for row, reason in bad[split].items()
    ]
    named = ", ".join(defects[:NAMED_IMAGES]) + (f" and {count - NAMED_IMAGES} more" if count > NAMED_IMAGES else "")
    if strict:
        raise CorpusFileError(f"An image of column {column!r} cannot be used: {named}.")
    all_rows = Counter(label for rows in labels.ids.values() for row in rows for label in row)
    bad_rows = Counter(label for split, rows in bad.items() for row in rows for label in labels.ids[split][row])
    lost = next((labels.names[label] for label, rows in bad_rows.items() if 2 * rows >= all_rows[label]), None)
    what = f"{count} of {total} images of column {column!r} cannot be used"
    if count > BAD_IMAGES_AT_MOST * total or lost is not None:
        why = "more than 1 %" if count > BAD_IMAGES_AT_MOST * total else f"half or more of those of label {lost!r}"
        raise CorpusFileError(f"{what}, which is {why}: {named}. Replace them, or take their rows out.")
    notes.append(f"{what} and are left out: {named}")
    warnings.warn(notes[-1], CorpusWarning, stacklevel=3)
    good = {split: [row for row in range(len(rows)) if row not in bad[split]] for split, rows in splits.items()}
    ids = {split: [rows[row] for row in good[split]] for split, rows in labels.ids.items()}
    return {split: rows.select(good[split]) for split, rows in splits.items()}, labels._replace(ids=ids)


def having(rows: Dataset, column: str) -> list[bool]:
    """Which rows have a text or an image in a column, without decoding any."""
    cells = rows.select_columns([column]).with_format("arrow")[:].column(column)
    if column == "text":
        return [bool(text and text.strip()) for text in cells.to_pylist()]
    parts = [pc.is_valid(pc.struct_field(cells, name)) for name in ("path", "bytes")]
    return list(pc.or_(*parts).to_pylist())


def _stratified(rows: Dataset, labels: Sequence[Sequence[int]], parts: int, seed: int) -> NDArray[np.int64]:
    """The part of each row: 0 for training, the others a tenth of the rows each; equal texts are in the same part.

    Texts of many rows stay in training, so that the parts keep their sizes. Where most rows have such texts, rows are
    parted one by one.
    """
    groups = np.arange(len(rows))
    if "text" in rows.column_names and "image" not in rows.column_names:
        first: dict[str, int] = {}
        groups = np.array([first.setdefault(text, row) for row, text in enumerate(rows["text"][:])])
    sizes = np.bincount(groups, minlength=len(rows))[groups]
    held_out = sizes <= max(EQUAL_TEXTS, HELD_OUT * HELD_OUT * len(rows))
    if held_out.mean() < 3 * HELD_OUT:
        groups, held_out = np.arange(len(rows)), np.ones(len(rows), dtype=bool)
    together: dict[int, set[int]] = {}
    for row in np.flatnonzero(held_out).tolist():
        together.setdefault(int(groups[row]), set()).update(labels[row])
    share = HELD_OUT / held_out.mean()
    fractions = [1 - share * parts, *[share] * parts]
    of_group = dict(
        zip(together, stratified_parts([sorted(one) for one in together.values()], fractions, seed), strict=True)
    )
    return np.array([of_group[int(group)] if free else 0 for group, free in zip(groups, held_out, strict=True)])


def _notes_on_equal_texts(splits: Mapping[str, Dataset]) -> list[str]:
    """Texts that stand in training and in what judges it, or in several rows with different labels."""
    learned, found = set(splits["train"]["text"][:]), []
    for split in (name for name in SPLITS[1:] if name in splits):
        if seen := sum(text in learned for text in splits[split]["text"][:]):
            found.append(f"{seen} {split} texts also occur in training, so that {split} scores flatter")
    labels_of: dict[str, set[tuple[int, ...]]] = {}
    for rows in splits.values():
        for text, ids in zip(rows["text"][:], rows["labels"][:], strict=True):
            labels_of.setdefault(text, set()).add(tuple(ids))
    if torn := sum(len(every) > 1 for every in labels_of.values()):
        what = "texts stand" if torn > 1 else "text stands"
        found.append(f"{torn} {what} in several rows with different labels: join them, if each row has only some")
    return found


def cut_missing_splits(splits: Mapping[str, Dataset], seed: int = SEED) -> tuple[DatasetDict, str]:
    """All three splits, those that are missing cut from the training rows; and where they come from."""
    missing = [split for split in SPLITS[1:] if split not in splits]
    if not missing:
        return DatasetDict({split: splits[split] for split in SPLITS}), "as given"
    rows = splits["train"]
    if len(rows) < FEWEST_ROWS:
        raise CorpusFormatError(f"{len(rows)} training rows are too few to split; {FEWEST_ROWS} are the least.")
    labels = rows["labels"][:]
    parts = _stratified(rows, labels, len(missing), seed)
    found = dict(splits)
    for part, name in enumerate(["train", *missing]):
        found[name] = rows.select(np.flatnonzero(parts == part))
        if not len(found[name]):
            counts = Counter(label for row in labels for label in row)
            raise CorpusFormatError(
                f"None of {len(rows)} rows can be cut off for a {name} split, because the labels are too rare: half of "
                f"the {len(counts)} have at most {np.median(list(counts.values())):g} rows, and rare labels stay in "
                f"training. Leave rare labels out, or give a folder with splits of your own."
            )
    return DatasetDict({split: found[split] for split in SPLITS}), f"{' and '.join(missing)} by stratification"
