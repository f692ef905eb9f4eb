"""The labels of rows, in any of the forms that data have them in."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from hf_mlcl.data.errors import CorpusError
from hf_mlcl.data.tables import read_csv

DELIMITERS = ("|", ";", ",", "\t")
"""What may stand between names of labels in one text."""


def encode_labels(
    labels: Sequence[Sequence[Any]], classes: int | Sequence[str], column: str = "labels"
) -> NDArray[np.float32]:
    """Turn rows of labels into a multi-hot matrix of shape (examples, labels), and check them on the CPU.

    A wrong id that reaches a GPU surfaces as an assertion in some kernel; here it is named with its example.

    Args:
        labels: For each example its labels, in one of the forms that `decode_labels` reads.
        classes: The number of labels, or their names (needed when `labels` holds names).
        column: Name of the column, for the message.

    Examples:
        >>> encode_labels([[0, 2], []], 3)
        array([[1., 0., 1.],
               [0., 0., 0.]], dtype=float32)
        >>> encode_labels([["joy"], "anger|joy"], ["anger", "joy"])
        array([[0., 1.],
               [1., 1.]], dtype=float32)
    """
    names = {} if isinstance(classes, int) else {name: number for number, name in enumerate(classes)}
    number = classes if isinstance(classes, int) else len(classes)
    encoded = np.zeros((len(labels), number), dtype=np.float32)
    for row, values in enumerate(labels):
        encoded[row, decode_labels(values, number, names, f"Example {row} of the batch", column)] = 1.0
    return encoded


def decode_labels(
    values: Any, number: int, names: Mapping[str, int] | None = None, row: str = "The row", column: str = "labels"
) -> list[int]:
    """The ids of the labels of a row, which messages call `row`, where there are `number` labels.

    They are a list, array or tensor of different ids, or of names whose ids are in `names`; names in one text between
    ``|``, ``;``, commas or tabs; or a multi-hot row: floats or booleans, one per label. Integers are read as multi-hot
    where they cannot be ids: as many zeros and ones as there are labels, of which there are at least three.

    Examples:
        >>> decode_labels([2, 0], 3), decode_labels([1.0, 0.0, 1.0], 3), decode_labels([1, 0, 1], 3)
        ([2, 0], [0, 2], [0, 2])
    """

    def wrong(held: str, why: str) -> ValueError:
        return ValueError(f"{row} has {held} in column {column!r}{why}.")

    def checked(value: Any) -> int:
        if isinstance(value, str) and names:
            if value not in names:
                known = f", which is not one of the {number} known ones. Add it to `classes`, or drop it from the data"
                raise wrong(f"the label {value!r}", known)
            return names[value]
        if isinstance(value, str | float | bool) or not isinstance(value, SupportsIndex):
            expected = f", expected the id of a label, or a zero or a one for each of the {number} labels"
            raise wrong(repr(value), f"{expected}. To pass names of labels, give the names of all of them as classes")
        if not 0 <= operator.index(value) < number:
            there = f", but there are {number} labels (ids 0 to {number - 1})"
            raise wrong(f"the id {value}", f"{there}. Pass the number of labels that the data was made with")
        return operator.index(value)

    entries = values.tolist() if hasattr(values, "tolist") else values  # of an array or a tensor
    if isinstance(entries, str) and names:
        entries = names_in(entries, names)
    if isinstance(entries, str | bytes) or not isinstance(entries, Iterable):
        raise wrong(repr(values), ", expected a list of labels. Wrap a single label in a list")
    entries = list(entries)
    cannot_be_ids = number > 2 or any(isinstance(value, float | bool) for value in entries)
    if len(entries) == number and cannot_be_ids and all(value in (0, 1) for value in entries):
        return [label for label, one in enumerate(entries) if one]
    ids = [checked(value) for value in entries]
    if len(set(ids)) < len(ids):
        why = ": these are no ids, since one occurs twice, and no multi-hot row, which has a zero or a one for each of"
        raise wrong(str(entries), f"{why} the {number} labels (as floats, if there are one or two)")
    return ids


def names_in(text: str, names: Container[str]) -> list[str]:
    """The names in a text: it may be one, or several between delimiters, which may be part of names as well.

    Examples:
        >>> names_in("art, music|sport", {"art, music": 0, "sport": 1})
        ['art, music', 'sport']
        >>> names_in("sport art", {"art", "sport"})
        ['sport', 'art']
    """
    for delimiter in ("", *DELIMITERS, " "):
        found = pieces(text, delimiter)
        if all(piece in names for piece in found):
            return found
    return pieces(text, next((delimiter for delimiter in DELIMITERS if delimiter in text), ""))


def pieces(text: str, delimiter: str | None) -> list[str]:
    """The names between delimiters, without the blanks around them; without a delimiter the whole text is one."""
    parts = text.split(delimiter) if delimiter else [text]
    return [part.strip() for part in parts if part.strip()]


def label_ids(dataset: Any, labels: int | Sequence[str]) -> list[list[int]]:
    """Label ids of each row, from any form of labels that `decode_labels` reads; single ids stand for themselves.

    Where the names of labels are given in place of their number, rows may hold names, or a column of 0 and 1 for each.

    Examples:
        >>> label_ids([{"labels": [2]}, {"labels": [0, 1]}], 3), label_ids([{"labels": [0, 1, 1]}], 3)
        ([[2], [0, 1]], [[1, 2]])
        >>> label_ids([{"labels": "a|b"}, {"labels": ["b"]}], ["a", "b"])
        [[0, 1], [1]]
    """
    names = {} if isinstance(labels, int) else {name: number for number, name in enumerate(labels)}
    number = labels if isinstance(labels, int) else len(names)
    return [
        decode_labels(
            cell if isinstance(cell, str | list) else np.atleast_1d(cell), number, names, f"Row {row} of the dataset"
        )
        for row, cell in enumerate(_labels(dataset, list(names)))
    ]


def label_counts(dataset: Any, labels: int | Sequence[str]) -> NDArray[np.int64]:
    """How many rows have each label.

    Examples:
        >>> label_counts([{"labels": [2]}, {"labels": [0, 2]}], 3).tolist()
        [1, 0, 2]
    """
    ids = [label for row in label_ids(dataset, labels) for label in row]
    return np.bincount(np.asarray(ids, dtype=np.int64), minlength=labels if isinstance(labels, int) else len(labels))


def _labels(dataset: Any, names: list[str]) -> Any:
    """The labels alone where that is possible: reading a whole row may mean decoding an image."""
    columns = getattr(dataset, "column_names", None) or ()
    plain = dataset.with_format(None) if columns and hasattr(dataset, "with_format") else dataset
    if "labels" in columns:
        return plain["labels"]
    if names and set(names) <= set(columns):
        return [[bool(cell) for cell in row] for row in zip(*(plain[name] for name in names), strict=True)]
    return (row["labels"] for row in dataset)


def read_descriptions(given: Mapping[str, Any] | str) -> dict[str, str]:
    """What labels mean, in words, by their names.

    Args:
        given: A mapping; or a file: CSV with the columns ``label`` and ``description``, or a JSON object of texts.

    Examples:
        >>> read_descriptions({"cs.LG": "machine learning"})
        {'cs.LG': 'machine learning'}
    """
    if not isinstance(given, str):
        found = list(given.items())
    elif not os.path.isfile(given):
        raise ValueError(f"label_descriptions: there is no file {given}. It may be a CSV or a JSON file.")
    elif given.lower().endswith(".json"):
        try:
            content = json.loads(Path(given).read_text(encoding="utf-8-sig"), object_pairs_hook=tuple)
        except ValueError as error:
            raise ValueError(f"label_descriptions: {given} is not valid JSON: {error}.") from error
        if not isinstance(content, tuple):
            raise ValueError(f"label_descriptions: {given} must hold an object with a text per label.")
        found = list(content)
    else:
        try:
            table = read_csv(Path(given))[0].to_pydict()
        except CorpusError as error:
            raise ValueError(f"label_descriptions: {error}") from error
        if not {"label", "description"} <= table.keys():
            raise ValueError(
                f"label_descriptions: {given} needs the columns label and description; it has {', '.join(table)}."
            )
        found = [pair for pair in zip(table["label"], table["description"], strict=True) if pair[1] is not None]
    descriptions: dict[str, str] = {}
    for label, text in found:
        if not (isinstance(label, str) and isinstance(text, str) and text.strip()):
            raise ValueError(f"label_descriptions: {label!r} must be a label with a text; got {text!r}.")
        if descriptions.setdefault(label.strip(), text.strip()) != text.strip():
            raise ValueError(f"label_descriptions: {label!r} is described twice, and not in the same words.")
    return descriptions
