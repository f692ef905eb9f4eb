import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import expit

from hf_mlcl import metrics


class Prediction:
    """Shaped as `transformers.EvalPrediction`."""

    def __init__(self, predictions, label_ids):
        self.predictions, self.label_ids = predictions, label_ids


LOGITS = np.array([[3.0, -1.0, 0.5], [-2.0, 1.0, -0.5], [0.1, 0.0, -3.0]])
LABELS = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])


@given(hnp.arrays(np.float64, (3, 2), elements=st.floats(-1e4, 1e4)))
def test_sigmoid_agrees_with_scipy_without_overflow(logits):
    with np.errstate(over="raise", invalid="raise"):
        np.testing.assert_allclose(metrics.sigmoid(logits), expit(logits), rtol=1e-12, atol=1e-300)


def test_logits_are_decided_at_probability_one_half():
    result = metrics.compute_metrics(Prediction(LOGITS, LABELS))
    assert result["micro_f1"] == metrics.f1(LABELS, LOGITS >= 0, "micro")
    assert result["mAP"] == metrics.mean_average_precision(LABELS, LOGITS)


def test_further_model_outputs_after_the_logits_are_ignored():
    assert metrics.compute_metrics(Prediction((LOGITS, np.zeros((3, 8))), LABELS)) == metrics.compute_metrics(
        Prediction(LOGITS, LABELS)
    )


def test_thresholds_ranks_frequency_groups_and_label_names_add_their_metrics():
    compute = metrics.make_compute_metrics(
        threshold=[0.9, 0.5, 0.5], k=2, train_labels=[9, 5, 1], label_names=["a", "b", "c"]
    )
    result = compute(Prediction(LOGITS, LABELS))
    each = metrics.f1(LABELS, metrics.decide(metrics.sigmoid(LOGITS), [0.9, 0.5, 0.5]))
    assert [result[f"f1_{name}"] for name in "abc"] == each.tolist()
    assert [result[f"{name}_f1"] for name in ("head", "medium", "tail")] == each.tolist()
    assert result["precision@2"] == metrics.precision_at_k(LABELS, LOGITS, 2)
    assert result["lrap"] == metrics.label_ranking_average_precision(LABELS, LOGITS)
    assert all(isinstance(value, float) for value in result.values())


def test_label_names_of_another_number_are_refused():
    with pytest.raises(ValueError, match="`label_names` has 2 names, but the logits 3"):
        metrics.make_compute_metrics(label_names=["a", "b"])(Prediction(LOGITS, LABELS))
