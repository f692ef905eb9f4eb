"""Lists of labels as rows of zeros and ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def encode_labels(
    labels: Sequence[Sequence[Any]], classes: int | Sequence[str], column: str = "labels"
) -> NDArray[np.float32]:
    """Turn lists of labels into a multi-hot matrix, and check them while they are still on the CPU.

    A wrong id that reaches a GPU surfaces as an assertion in some kernel; here it is named.

    Args:
        labels: For each example its labels, as ids or as names. An empty list is a row of zeros.
        classes: The number of labels, or their names (needed when `labels` holds names).
        column: Name of the column, for the message.

    Returns:
        A matrix of shape (examples, labels).

    Raises:
        ValueError: If a label is not an id in range or a known name; the message names the example.

    Examples:
        >>> encode_labels([[0, 2], []], 3)
        array([[1., 0., 1.],
               [0., 0., 0.]], dtype=float32)
        >>> encode_labels([["joy"]], ["anger", "joy"])
        array([[0., 1.]], dtype=float32)
        >>> encode_labels([[0], [5]], 3)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        ValueError: Example 1 of the batch has the id 5 in column 'labels', but there are 3 labels (ids 0 to 2). ...
    """
    names = None if isinstance(classes, int) else {name: number for number, name in enumerate(classes)}
    number = classes if isinstance(classes, int) else len(classes)
    encoded = np.zeros((len(labels), number), dtype=np.float32)
    for row, values in enumerate(labels):
        if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
            raise ValueError(
                f"Example {row} of the batch has {values!r} in column {column!r}, expected a list of labels. Wrap a "
                f"single label in a list."
            )
        for value in values:
            if names is not None and isinstance(value, str):
                if value not in names:
                    raise ValueError(
                        f"Example {row} of the batch has the label {value!r} in column {column!r}, which is not one of "
                        f"the {number} known ones. Add it to `classes`, or drop it from the data."
                    )
                value = names[value]
            elif isinstance(value, str | float | bool) or not hasattr(value, "__index__"):
                raise ValueError(
                    f"Example {row} of the batch has {value!r} in column {column!r}, expected the id of a label. To "
                    f"pass names of labels, give the names of all of them as classes."
                )
            if not 0 <= value < number:
                raise ValueError(
                    f"Example {row} of the batch has the id {value} in column {column!r}, but there are {number} "
                    f"labels (ids 0 to {number - 1}). Pass the number of labels the data was made with, or map "
                    f"its ids into this range."
                )
            encoded[row, value] = 1.0
    return encoded
