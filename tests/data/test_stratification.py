"""Iterative stratification: every row once, every label's share kept, and equal to the algorithm written plainly."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_mlcl.data import stratified_parts

rows_of_labels = st.lists(st.sets(st.integers(0, 6), max_size=4).map(sorted), min_size=1, max_size=60)
shares = st.sampled_from([(0.8, 0.2), (0.5, 0.5), (0.8, 0.1, 0.1), (0.25, 0.25, 0.25, 0.25)])


def by_the_paper(labels, fractions, seed):
    """Algorithm 1 of Sechidis et al. with matrices that are counted anew for every row; ties go to the first part."""
    order = np.random.default_rng(seed).permutation(len(labels))
    truth = np.zeros((len(labels), 1 + max((max(row) for row in labels if row), default=-1)))
    for row, ids in enumerate(labels):
        truth[row, ids] = 1
    part_of = np.full(len(labels), -1)

    def wanted(part, label):
        rows = truth[:, label] if label is not None else np.ones(len(labels))
        return fractions[part] * rows.sum() - rows[part_of == part].sum()

    def choose(label):
        parts = range(len(fractions))
        ranks = [
            (wanted(part, label), wanted(part, None)) if label is not None else wanted(part, None) for part in parts
        ]
        return max(parts, key=lambda part: (*np.round(np.atleast_1d(ranks[part]), 9), -part))

    while (truth[part_of < 0].sum(axis=0) > 0).any():
        left = truth[part_of < 0].sum(axis=0)
        label = int(np.argmin(np.where(left > 0, left, np.inf)))
        for row in order:
            if part_of[row] < 0 and truth[row, label]:
                part_of[row] = choose(label)
    for row in range(len(labels)):
        if part_of[row] < 0:
            part_of[row] = choose(None)
    return part_of


@given(rows_of_labels, st.sampled_from([(0.5, 0.5), (0.75, 0.25), (0.5, 0.25, 0.25)]), st.integers(0, 5))
@settings(max_examples=60)
def test_parts_are_those_of_the_algorithm_written_plainly(labels, fractions, seed):
    # Fractions that a float holds exactly: ties are then ties on both sides.
    assert stratified_parts(labels, fractions, seed).tolist() == by_the_paper(labels, fractions, seed).tolist()


@given(rows_of_labels, shares, st.integers(0, 100))
def test_every_row_gets_one_part_and_the_same_seed_the_same_parts(labels, fractions, seed):
    parts = stratified_parts(labels, fractions, seed)
    assert parts.shape == (len(labels),)
    assert set(parts.tolist()) <= set(range(len(fractions)))
    assert np.array_equal(parts, stratified_parts(labels, fractions, seed))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=80), shares)
def test_with_one_label_a_row_no_label_is_off_its_share_by_a_row(classes, fractions):
    parts = stratified_parts([[label] for label in classes], fractions)
    for label in set(classes):
        mine = parts[np.asarray(classes) == label]
        for part, share in enumerate(fractions):
            assert abs((mine == part).sum() - share * len(mine)) < 1


def test_a_hundred_thousand_rows_with_a_long_tail_keep_every_share_within_a_row_and_take_no_quadratic_time():
    random = np.random.default_rng(0)
    truth = random.random((100_000, 100)) < 0.5 / np.arange(1, 101) ** 1.1
    labels = [np.flatnonzero(row).tolist() for row in truth]
    start = time.process_time()
    parts = stratified_parts(labels, (0.8, 0.1, 0.1))
    assert time.process_time() - start < 300  # it takes one; comparing all pairs of rows would take hours
    for part, share in enumerate((0.8, 0.1, 0.1)):
        assert abs((parts == part).sum() - share * len(truth)) <= 1
        assert np.abs(truth[parts == part].sum(axis=0) - share * truth.sum(axis=0)).max() < 2


def test_a_label_with_two_rows_stays_in_training():
    labels = [[0]] * 98 + [[1], [1]]
    assert stratified_parts(labels, (0.8, 0.1, 0.1))[98:].tolist() == [0, 0]


@pytest.mark.parametrize("fractions", [(1.0,), (0.5, 0.4), (1.2, -0.2), (0.5, 0.5, 0.0)])
def test_wrong_fractions_are_refused(fractions):
    with pytest.raises(ValueError, match="fractions must be two or more positive numbers that sum to 1"):
        stratified_parts([[0], [1]], fractions)
