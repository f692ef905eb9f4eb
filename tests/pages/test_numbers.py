"""What the page says of labels, against scikit-learn and plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import average_precision_score, precision_recall_fscore_support

from hf_mlcl.metrics import DecisionRule
from hf_mlcl.pages import charts, numbers
from pages.made import NAMES, explained

ONE = explained()
TRUTH, P, RULE = ONE.test.labels, ONE.probabilities, ONE.rule


def test_the_table_of_labels_has_the_scores_of_scikit_learn():
    table = numbers.label_table(TRUTH, P, RULE, [4, 3, 2, 1])
    expected = precision_recall_fscore_support(TRUTH, RULE.decide(P), zero_division=0)
    for label, row in enumerate(table):
        assert [row["precision"], row["recall"], row["F1"]] == pytest.approx([part[label] for part in expected[:3]])
        assert row["AP"] == pytest.approx(average_precision_score(TRUTH[:, label], P[:, label]))
        assert (row["rows"], row["train"], row["threshold"]) == (expected[3][label], 4 - label, RULE.thresholds[label])


def test_at_every_threshold_of_the_slider_true_and_false_positives_are_those_of_the_rule():
    for step in (0, 7, 35, 50, 99, 100):
        made = DecisionRule(step / charts.STEPS).decide(P)
        for curve in numbers.threshold_curves(TRUTH, P):
            label = curve["label"]
            assert curve["tp"][step] == int((made & TRUTH)[:, label].sum())
            assert curve["fp"][step] == int((made & ~TRUTH)[:, label].sum())
            assert curve["rows"] == int(TRUTH[:, label].sum())


def test_reliability_is_scikit_learns_calibration_curve():
    for label in range(len(NAMES)):
        found = [row for row in numbers.reliability(TRUTH, P) if row["label"] == label]
        seen, said = calibration_curve(TRUTH[:, label], P[:, label], n_bins=numbers.BINS)
        np.testing.assert_allclose([row["seen"] for row in found], seen, atol=1e-4)
        np.testing.assert_allclose([row["said"] for row in found], said, atol=1e-4)
        assert sum(row["rows"] for row in found) == len(TRUTH)


def test_confusions_and_pairs_count_rows():
    decided = RULE.decide(P)
    cells = {(c["kind"], c["first"], c["second"]): c["count"] for c in numbers.confusions(TRUTH, decided, NAMES)}
    couples = {couple["pair"]: couple for couple in numbers.pairs(TRUTH, decided, NAMES)}
    for i, first in enumerate(NAMES):
        for j, second in enumerate(NAMES):
            missed = sum(t[i] and not d[i] and d[j] and not t[j] for t, d in zip(TRUTH, decided, strict=True))
            assert cells["missed, and this given instead", first, second] == missed
            both = sum(t[i] and not d[i] and t[j] and not d[j] for t, d in zip(TRUTH, decided, strict=True))
            assert cells["both missed", first, second] == (both if i != j else 0)
            if i < j:
                couple = couples[f"{first} + {second}"]
                assert couple["labels"] == int((TRUTH[:, i] & TRUTH[:, j]).sum())
                assert couple["predictions"] == int((decided[:, i] & decided[:, j]).sum())


def test_of_many_labels_those_with_the_most_errors_are_in_the_matrix():
    random = np.random.default_rng(0)
    truth, decided = random.random((200, 40)) < 0.2, random.random((200, 40)) < 0.2
    decided[:, 10:20] = truth[:, 10:20]
    names = [f"label {i}" for i in range(40)]
    shown = {cell["first"] for cell in numbers.confusions(truth, decided, names)}
    assert len(shown) == numbers.LABELS_IN_A_MATRIX
    assert not shown & set(names[10:20])
