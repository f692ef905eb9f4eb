"""The work of reading one's own data grows with the data, and not with a product of rows, columns and labels.

Work is counted, not timed: calls of functions, which copying a table's description for every cell, column or row shows.
"""

from __future__ import annotations

import sys

import datasets
import numpy as np
import pytest

from hf_mlcl.data import encode_labels, read_own_data, stratified_parts
from hf_mlcl.data.own import data_fingerprint


def calls(function):
    """Functions that are called meanwhile, of Python and of C."""
    count = 0

    def note(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def flags_file(folder, rows, columns):
    random = np.random.default_rng(0)
    header = ",".join(["text", *(f"label{i}" for i in range(columns))])
    ones = random.random((rows, columns)) < 0.3
    lines = [f"text {i}," + ",".join(map(str, row.astype(int))) for i, row in enumerate(ones)]
    path = folder / f"flags{rows}x{columns}.csv"
    path.write_text("\n".join([header, *lines]))
    return path


def names_file(folder, rows, labels):
    lines = [f"text {i},{i % labels:05d}|{(i * 7 + 1) % labels:05d}" for i in range(rows)]
    path = folder / f"names{rows}x{labels}.csv"
    path.write_text("\n".join(["text,labels", *lines]))
    return path


def whole_way(path):
    data = read_own_data(path)
    data.describe()
    data_fingerprint(data.splits)


@pytest.fixture
def accesses(monkeypatch):
    """How often the description of a table's columns was copied."""
    seen = []
    plain = datasets.Dataset.features.fget
    monkeypatch.setattr(datasets.Dataset, "features", property(lambda self: seen.append(1) or plain(self)))
    return seen


@pytest.mark.parametrize(
    ("write", "small", "large"), [(flags_file, (60, 20), (60, 200)), (names_file, (200, 40), (2000, 40))]
)
def test_the_description_of_columns_is_not_copied_for_every_column_or_row(write, small, large, accesses, tmp_path):
    counts = []
    for size in (small, large):
        path = write(tmp_path, *size)
        accesses.clear()
        whole_way(path)
        counts.append(len(accesses))
    assert counts[1] <= counts[0] + 5


@pytest.mark.parametrize(
    ("write", "small", "large"),
    [
        (flags_file, (60, 100), (60, 400)),
        (flags_file, (100, 30), (400, 30)),
        (names_file, (1200, 100), (1200, 400)),
        (names_file, (1000, 100), (4000, 100)),
    ],
)
def test_four_times_the_rows_columns_or_labels_are_at_most_four_times_the_work(write, small, large, tmp_path):
    whole_way(write(tmp_path, *small))  # what is imported and cached at first is not counted
    counts = [calls(lambda size=size: whole_way(write(tmp_path, *size))) for size in (small, large)]
    assert counts[1] <= 4.4 * counts[0]


def test_stratifying_four_times_the_labels_is_about_four_times_the_work():
    counts = []
    for labels in (500, 2000):
        rows = [[i % labels, (i * 7 + 1) % labels] for i in range(4 * labels)]
        counts.append(calls(lambda rows=rows: stratified_parts(rows, (0.8, 0.1, 0.1))))
    assert counts[1] <= 5 * counts[0]


def test_encoding_four_times_the_rows_is_four_times_the_work():
    counts = []
    for rows in (100, 400):
        labels = [[f"label {i % 50}"] for i in range(rows)]
        counts.append(calls(lambda labels=labels: encode_labels(labels, [f"label {i}" for i in range(50)])))
    assert counts[1] <= 4.4 * counts[0]
