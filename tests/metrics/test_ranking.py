import warnings

import numpy as np
import pytest
from hypothesis import given
from sklearn import metrics as sk

from hf_mlcl import metrics
from metrics.strategies import labels_and_scores


@given(labels_and_scores())
def test_average_precision_agrees_with_scikit_learn_on_every_label(case):
    labels, scores = case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of labels that no row carries and says 0
        expected = [sk.average_precision_score(y, s) for y, s in zip(labels.T, scores.T, strict=True)]
    np.testing.assert_allclose(metrics.average_precision(labels, scores), expected, rtol=0, atol=1e-9)
    assert metrics.mean_average_precision(labels, scores) == pytest.approx(np.mean(expected), abs=1e-9)


@given(labels_and_scores())
def test_absent_labels_are_left_out_of_the_mean_when_they_count_nan(case):
    labels, scores = case
    each = metrics.average_precision(labels, scores)
    present = labels.any(axis=0)
    expected = each[present].mean() if present.any() else 0.0
    assert metrics.mean_average_precision(labels, scores, absent=float("nan")) == pytest.approx(expected, abs=1e-9)


@given(labels_and_scores())
def test_average_precision_does_not_change_under_a_monotone_map_of_scores(case):
    labels, scores = case
    mapped = np.searchsorted(np.unique(scores), scores)  # ranks: the same order, the same ties
    np.testing.assert_allclose(metrics.average_precision(labels, scores), metrics.average_precision(labels, mapped))


@given(labels_and_scores())
def test_label_ranking_average_precision_agrees_with_naive_loops(case):
    labels, scores = case
    rows = []
    for y, s in zip(labels, scores, strict=True):
        relevant = np.flatnonzero(y)
        if len(relevant) in (0, len(y)):
            rows.append(1.0)
        else:
            rows.append(np.mean([sum(y[s >= s[j]]) / sum(s >= s[j]) for j in relevant]))
    assert metrics.label_ranking_average_precision(labels, scores) == pytest.approx(np.mean(rows), abs=1e-9)
    if labels.shape[1] > 1:  # scikit-learn refuses a single column
        expected = sk.label_ranking_average_precision_score(labels, scores)
        assert metrics.label_ranking_average_precision(labels, scores) == pytest.approx(expected, abs=1e-9)


@given(labels_and_scores())
def test_precision_at_k_agrees_with_a_naive_loop_at_every_k(case):
    labels, scores = case
    for k in range(1, labels.shape[1] + 1):
        shares = []
        for y, s in zip(labels, scores, strict=True):
            best = sorted(range(len(y)), key=lambda j: (-s[j], j))[:k]
            shares.append(sum(int(y[j]) for j in best) / k)
        assert metrics.precision_at_k(labels, scores, k) == pytest.approx(np.mean(shares), abs=1e-9)


def test_the_result_does_not_depend_on_how_rows_and_columns_are_chunked(monkeypatch):
    rng = np.random.default_rng(0)
    labels, scores = rng.random((40, 9)) < 0.3, rng.integers(0, 4, (40, 9)) / 4

    def all_of_them():
        return (
            metrics.mean_average_precision(labels, scores),
            metrics.label_ranking_average_precision(labels, scores),
            metrics.precision_at_k(labels, scores, 3),
        )

    whole = all_of_them()
    monkeypatch.setattr("hf_mlcl.metrics._arrays.CHUNK_ELEMENTS", 18)
    monkeypatch.setattr("hf_mlcl.metrics.ranking.COLUMN_BLOCK", 2)
    assert all_of_them() == pytest.approx(whole)


def test_the_scores_that_came_in_are_left_as_they_were():
    scores = np.asfortranarray(np.random.default_rng(0).random((30, 4)))
    before = scores.copy()
    metrics.average_precision(scores > 0.7, scores)
    np.testing.assert_array_equal(scores, before)


def test_k_outside_the_number_of_labels_is_refused():
    with pytest.raises(ValueError, match="`k` must lie between 1 and the number of labels, 2, but is 3"):
        metrics.precision_at_k([[1, 0]], [[0.1, 0.2]], k=3)
