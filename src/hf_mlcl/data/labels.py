"""The labels of rows, in any of the forms that data have them in."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray


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
        >>> encode_labels([["joy"]], ["anger", "joy"])
        array([[0., 1.]], dtype=float32)
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

    They are a list, array or tensor of different ids, or of names whose ids are in `names`, or a multi-hot row: floats
    or booleans, one per label. Integers are read as multi-hot where they cannot be ids: as many zeros and ones as there
    are labels, of which there are at least three.

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


def label_ids(dataset: Any, num_labels: int) -> list[list[int]]:
    """Label ids of each row, from any form of labels that `decode_labels` reads; single ids stand for themselves.

    Examples:
        >>> label_ids([{"labels": [2]}, {"labels": [0, 1]}], 3), label_ids([{"labels": [0, 1, 1]}], 3)
        ([[2], [0, 1]], [[1, 2]])
    """
    return [
        decode_labels(np.atleast_1d(labels), num_labels, row=f"Row {number} of the dataset")
        for number, labels in enumerate(_labels(dataset))
    ]


def label_counts(dataset: Any, num_labels: int) -> NDArray[np.int64]:
    """How many rows have each label.

    Examples:
        >>> label_counts([{"labels": [2]}, {"labels": [0, 2]}], 3).tolist()
        [1, 0, 2]
    """
    ids = [label for labels in label_ids(dataset, num_labels) for label in labels]
    return np.bincount(np.asarray(ids, dtype=np.int64), minlength=num_labels)


def _labels(dataset: Any) -> Any:
    """The labels alone where that is possible: reading a whole row may mean decoding an image."""
    if "labels" in (getattr(dataset, "column_names", None) or ()):
        return dataset.with_format(None)["labels"] if hasattr(dataset, "with_format") else dataset["labels"]
    return (row["labels"] for row in dataset)
