import numpy as np
import pytest
import torch
from hypothesis import given
from sklearn import metrics as sk

from hf_mlcl import metrics
from metrics.strategies import labels_and_scores


@given(labels_and_scores())
@pytest.mark.parametrize("average", ["micro", "macro", None])
def test_f1_precision_and_recall_agree_with_scikit_learn(average, case):
    labels, scores = case
    predictions = metrics.decide(scores)
    for ours, theirs in (
        (metrics.f1, sk.f1_score),
        (metrics.precision, sk.precision_score),
        (metrics.recall, sk.recall_score),
    ):
        if labels.shape[1] == 1:  # scikit-learn would read one column as binary, with its own averages
            labels, predictions = np.hstack([labels, labels]), np.hstack([predictions, predictions])
        expected = theirs(labels, predictions, average=average, zero_division=0)
        np.testing.assert_allclose(ours(labels, predictions, average), expected, rtol=0, atol=1e-9)


@given(labels_and_scores())
def test_hamming_loss_and_subset_accuracy_agree_with_their_definitions(case):
    labels, scores = case
    predictions = metrics.decide(scores)
    wrong = [labels[i, j] != predictions[i, j] for i in range(len(labels)) for j in range(labels.shape[1])]
    whole = [all(labels[i] == predictions[i]) for i in range(len(labels))]
    assert metrics.hamming_loss(labels, predictions) == pytest.approx(np.mean(wrong), abs=1e-9)
    assert metrics.subset_accuracy(labels, predictions) == pytest.approx(np.mean(whole), abs=1e-9)


@given(labels_and_scores())
def test_all_metrics_at_once_are_those_taken_one_by_one(case):
    labels, scores = case
    predictions = metrics.decide(scores)
    together = metrics.decision_metrics(labels, predictions)
    for name in ("f1", "precision", "recall"):
        for average in ("micro", "macro"):
            assert together[f"{average}_{name}"] == getattr(metrics, name)(labels, predictions, average)
    assert together["hamming_loss"] == metrics.hamming_loss(labels, predictions)
    assert together["subset_accuracy"] == metrics.subset_accuracy(labels, predictions)


def test_the_result_does_not_depend_on_how_rows_are_chunked(monkeypatch):
    rng = np.random.default_rng(0)
    labels, predictions = rng.random((2, 50, 7)) < 0.3
    whole = metrics.decision_metrics(labels, predictions)
    monkeypatch.setattr("hf_mlcl.metrics._arrays.CHUNK_ELEMENTS", 21)
    assert metrics.decision_metrics(labels, predictions) == whole


@pytest.mark.parametrize(
    "kind", [np.bool_, np.int64, np.float32, torch.bool, torch.int64, torch.float16, torch.bfloat16, list]
)
def test_every_kind_of_input_gives_the_same_number(kind):
    labels, predictions = [[1, 0, 1], [0, 1, 0]], [[1, 1, 0], [0, 1, 0]]
    if isinstance(kind, torch.dtype):
        given_labels, given_predictions = torch.tensor(labels, dtype=kind), torch.tensor(predictions, dtype=kind)
    elif kind is list:
        given_labels, given_predictions = labels, predictions
    else:
        given_labels, given_predictions = np.array(labels, dtype=kind), np.array(predictions, dtype=kind)
    assert metrics.f1(given_labels, given_predictions, "micro") == pytest.approx(2 / 3)


def test_a_score_on_the_threshold_counts_as_predicted_in_every_precision():
    for dtype in (np.float16, np.float32, np.float64):
        assert metrics.decide(np.array([[0.3]], dtype=dtype), 0.3).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.f1([1, 0], [1, 0]), r"`labels` must be a \(rows, labels\) matrix.*encode_labels"),
        (lambda: metrics.f1([[0.5]], [[1]]), r"`labels` must hold only 0 and 1, but holds .*0\.5"),
        (lambda: metrics.f1([[1, 0]], [[1]]), r"`predictions` has shape \(1, 1\), but `labels` has \(1, 2\)"),
        (lambda: metrics.f1([[1]], [[1]], "weighted"), r"`average` must be 'micro', 'macro' or None.*'weighted'"),
        (lambda: metrics.f1(np.zeros((0, 3)), np.zeros((0, 3))), "at least one example and one label"),
        (
            lambda: metrics.decide([[0.1, 0.2]], [0.5]),
            "thresholds must have one number for each of the 2 labels, but has 1",
        ),
        (lambda: metrics.decide([[float("nan")]]), "`scores` holds NaN"),
    ],
)
def test_errors_name_the_argument_and_what_was_expected(call, message):
    with pytest.raises(ValueError, match=message):
        call()
