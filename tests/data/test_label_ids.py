"""Label ids from whatever form labels have in a dataset."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from datasets import Dataset

from hf_mlcl.data.labels import label_ids

MULTI_HOT = [[0, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 1]]
IDS = [[1, 2], [0], [], [0, 1, 2]]


@pytest.mark.parametrize(
    "make",
    [list, np.array, torch.tensor, lambda row: torch.tensor(row).float(), lambda row: np.array(row, dtype=bool)],
    ids=["list", "array", "tensor", "floats", "booleans"],
)
def test_multi_hot_rows_of_any_type_give_their_ids(make):
    assert label_ids([{"labels": make(row)} for row in MULTI_HOT], 3) == IDS


@pytest.mark.parametrize("format", [None, "torch", "numpy"])
def test_columns_of_ids_and_of_multi_hot_rows_give_the_same(format):
    for column in (IDS, MULTI_HOT):
        assert label_ids(Dataset.from_dict({"labels": column}).with_format(format), 3) == IDS


def test_a_transform_that_needs_other_columns_is_not_asked():
    data = Dataset.from_dict({"text": ["a"] * 4, "labels": IDS})
    data.set_transform(lambda batch: {"length": [len(text) for text in batch["text"]]})
    assert label_ids(data, 3) == IDS


def test_ids_that_look_like_a_multi_hot_row_stay_ids():
    assert label_ids([{"labels": [0, 1]}, {"labels": [2]}], 3) == [[0, 1], [2]]
    assert label_ids([{"labels": [0, 1]}, {"labels": [0]}], 2) == [[0, 1], [0]]
    assert label_ids([{"labels": torch.tensor([0, 2, 1])}], 3) == [[0, 2, 1]]
    assert label_ids([{"labels": 2}, {"labels": 0}], 3) == [[2], [0]]


def test_of_one_or_two_labels_integers_are_ids_and_floats_multi_hot():
    assert label_ids([{"labels": [0, 1]}, {"labels": [0]}], 2) == [[0, 1], [0]]
    assert label_ids([{"labels": [0.0, 1.0]}, {"labels": [0.0, 0.0]}], 2) == [[1], []]
    assert label_ids([{"labels": [0.0]}, {"labels": [1.0]}], 1) == [[], [0]]
    with pytest.raises(ValueError, match="Row 0 of the dataset has the id 1 in column 'labels'"):
        label_ids([{"labels": [1]}], 1)


def test_labels_that_are_neither_are_named():
    with pytest.raises(ValueError, match="Row 1 of the dataset has the id 3 in column 'labels'"):
        label_ids([{"labels": [0]}, {"labels": [3]}], 3)
    with pytest.raises(ValueError, match=r"Row 0 of the dataset has \[0, 1, 1\] in column 'labels': these are no ids"):
        label_ids([{"labels": [0, 1, 1]}, {"labels": [1, 0, 0]}], 4)
    with pytest.raises(ValueError, match="expected the id of a label, or a zero or a one for each of the 3 labels"):
        label_ids([{"labels": [0.0, 1.0]}], 3)
