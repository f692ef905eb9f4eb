import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hf_mlcl import metrics


@st.composite
def features_and_labels(draw):
    rows, size, width = draw(st.integers(2, 9)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    features = draw(hnp.arrays(np.float64, (rows, size), elements=st.sampled_from([-2.0, -0.5, 0.0, 1.0, 3.0])))
    return features, draw(hnp.arrays(np.int8, (rows, width), elements=st.integers(0, 1)))


def normalised(features):
    norm = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.where(norm == 0, 1, norm)


@given(features_and_labels())
def test_alignment_agrees_with_a_loop_over_pairs_of_equal_label_sets(case):
    features, labels = case
    x = normalised(features)
    distances = [
        np.sum((x[i] - x[j]) ** 2)
        for i in range(len(x))
        for j in range(len(x))
        if i != j and labels[i].any() and (labels[i] == labels[j]).all()
    ]
    result = metrics.alignment(features, labels)
    assert math.isnan(result) if not distances else result == pytest.approx(np.mean(distances), abs=1e-9)


@given(features_and_labels(), st.sampled_from([0.5, 2.0]))
def test_uniformity_agrees_with_a_loop_over_all_pairs(case, t):
    x = normalised(case[0])
    kernel = [math.exp(-t * np.sum((x[i] - x[j]) ** 2)) for i in range(len(x)) for j in range(len(x)) if i != j]
    assert metrics.uniformity(case[0], t=t) == pytest.approx(math.log(np.mean(kernel)), abs=1e-9)


def test_uniformity_does_not_depend_on_the_size_of_tiles(monkeypatch):
    features = np.random.default_rng(0).normal(size=(50, 6))
    whole = metrics.uniformity(features)
    for rows in (1, 7, 50):
        monkeypatch.setattr("hf_mlcl.metrics.representation.TILE_ROWS", rows)
        assert metrics.uniformity(features) == pytest.approx(whole, abs=1e-12)
        assert metrics.alignment(features, np.ones((50, 1))) > 0


def test_a_sample_is_near_the_exact_value_the_nearer_the_larger_it_is():
    features = torch.randn(1500, 6, generator=torch.Generator().manual_seed(0))
    exact = metrics.uniformity(features)
    small, large = (
        np.mean([abs(metrics.uniformity(features, max_rows=rows, seed=s) - exact) for s in range(20)])
        for rows in (100, 1200)
    )
    assert large < small / 2
    assert small < 0.1


def test_float32_and_half_precision_inputs_stay_close_to_float64():
    features = np.random.default_rng(0).normal(size=(200, 16))
    labels = np.random.default_rng(1).random((200, 3)) < 0.5
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 1e-2), (torch.bfloat16, 1e-1)):
        x = torch.tensor(features, dtype=dtype)
        assert metrics.uniformity(x) == pytest.approx(metrics.uniformity(features), abs=tolerance)
        assert metrics.alignment(x, labels) == pytest.approx(metrics.alignment(features, labels), abs=tolerance)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.uniformity(np.eye(2), t=0), "`t` must be positive"),
        (lambda: metrics.uniformity([1.0, 2.0]), r"`features` must be a \(rows, size\) matrix"),
        (lambda: metrics.uniformity([[float("inf")]]), "`features` holds NaN or infinity"),
        (lambda: metrics.uniformity(np.eye(3), max_rows=1), "`max_rows` must be at least 2"),
        (lambda: metrics.alignment([[1.0]], [[1], [0]]), "`features` has 1 rows, but `labels` has 2"),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()
