import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_mlcl import metrics
from metrics.strategies import labels_and_scores


@given(labels_and_scores(), st.integers(1, 20))
def test_calibration_error_agrees_with_a_naive_loop_over_bins(case, bins):
    labels, probabilities = case
    gap = 0.0
    for b in range(bins):
        inside = [
            (p, y)
            for p, y in zip(probabilities.ravel(), labels.ravel(), strict=True)
            if min(int(p * bins), bins - 1) == b
        ]
        if inside:
            gap += len(inside) * abs(np.mean([p for p, _ in inside]) - np.mean([y for _, y in inside]))
    expected = gap / labels.size
    assert metrics.expected_calibration_error(labels, probabilities, bins) == pytest.approx(expected, abs=1e-9)


def test_probabilities_that_equal_the_frequencies_have_no_calibration_error():
    labels = np.array([[1], [0], [0], [0]])
    assert metrics.expected_calibration_error(labels, np.full((4, 1), 0.25)) == 0


def test_logits_are_refused_as_probabilities():
    with pytest.raises(ValueError, match=r"`probabilities` must lie between 0 and 1.*sigmoid"):
        metrics.expected_calibration_error([[1]], [[3.0]])


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30))
def test_groups_hold_every_label_once_and_no_tail_label_is_more_frequent_than_a_head_label(counts):
    groups = metrics.frequency_groups(counts)
    assert sorted(np.concatenate(list(groups.values())).tolist()) == list(range(len(counts)))
    ordered = [[counts[i] for i in groups[name]] for name in ("head", "medium", "tail") if len(groups[name])]
    for frequent, rarer in itertools.pairwise(ordered):
        assert min(frequent) >= max(rarer)


@given(labels_and_scores())
def test_the_breakdown_is_the_macro_f1_of_each_group(case):
    labels, scores = case
    predictions, train = metrics.decide(scores), labels[::-1]
    each = metrics.f1(labels, predictions)
    result = metrics.frequency_breakdown(labels, predictions, train)
    for name, ids in metrics.frequency_groups(train.sum(axis=0)).items():
        assert (f"{name}_f1" in result) == bool(len(ids))
        if len(ids):
            assert result[f"{name}_f1"] == pytest.approx(np.mean([each[i] for i in ids]), abs=1e-9)


def test_training_labels_of_another_label_set_are_refused():
    with pytest.raises(ValueError, match="`train_labels` speaks of 3 labels, but `labels` has 2 columns"):
        metrics.frequency_breakdown([[1, 0]], [[1, 0]], [3, 2, 1])
