"""Doubtful labels: what is expected is a regression on other rows, and flipped labels are found."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge

from hf_mlcl.data import encode_labels, load_corpus
from hf_mlcl.pages import suspicious
from hf_mlcl.pages.suspicious import expected_labels, suspicious_rows


def test_what_is_expected_is_the_ridge_regression_of_each_label_on_features_and_other_labels(monkeypatch):
    monkeypatch.setattr(suspicious, "STRENGTHS", (0.05,))
    random = np.random.default_rng(0)
    labels = random.random((60, 3)) < 0.4
    features = labels @ random.normal(size=(3, 5)) + random.normal(size=(60, 5))
    found = expected_labels(features, labels, folds=4, seed=3)
    x, y = (features - features.mean(0)) / features.std(0), labels.astype(float)
    expected = np.empty_like(y)
    for held_out in np.array_split(np.random.default_rng(3).permutation(60), 4):
        known = np.setdiff1d(np.arange(60), held_out)
        for label in range(3):
            # scikit-learn has one strength for all columns: labels are scaled so that theirs is a tenth.
            others = np.sqrt(10) * np.delete(y, label, axis=1)
            inputs = np.concatenate([others, x], axis=1)
            ridge = Ridge(alpha=0.05 * len(known)).fit(inputs[known], y[known, label])
            expected[held_out, label] = ridge.predict(inputs[held_out])
    np.testing.assert_allclose(found, expected, atol=1e-8)


@pytest.fixture(scope="module")
def toy_text():
    rows = load_corpus("toy_text")["train"]
    words = TfidfVectorizer().fit_transform(rows["text"])
    features = TruncatedSVD(100, random_state=0).fit_transform(words)
    return features, encode_labels(rows["labels"], len(rows.features["labels"].feature.names)) > 0


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_of_40_flipped_labels_at_least_20_are_among_the_80_most_suspicious_rows(toy_text, seed):
    features, labels = toy_text
    random = np.random.default_rng(seed)
    rows = random.choice(len(labels), 40, replace=False)
    flipped = labels.copy()
    flipped[rows, random.integers(labels.shape[1], size=40)] ^= True
    found = suspicious_rows(flipped, expected_labels(features, flipped), most=80)
    assert len({each.row for each in found} & set(rows.tolist())) >= 20  # by chance it would be one


def test_doubtful_labels_are_named_the_most_doubtful_first():
    labels = np.array([[1, 0, 1], [0, 1, 0]], dtype=bool)
    found = suspicious_rows(labels, np.array([[0.4, 0.9, 0.1], [0.0, 0.9, 0.1]]))
    assert [each.row for each in found] == [0]  # of the other row nothing is doubtful
    assert (found[0].wrong, found[0].missing, found[0].score) == ([2, 0], [1], pytest.approx(0.9))


def test_features_that_never_move_and_labels_that_never_occur_do_no_harm():
    labels = np.zeros((20, 2), dtype=bool)
    labels[::2, 0] = True
    assert np.isfinite(expected_labels(np.ones((20, 4)), labels)).all()
    with pytest.raises(ValueError, match="same rows"):
        expected_labels(np.ones((3, 4)), labels)
