import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hf_mlcl.evaluation import gradient_study, prr_by_temperature


@st.composite
def batches(draw):
    rows, width = draw(st.integers(2, 7)), draw(st.integers(1, 4))
    labels = draw(hnp.arrays(np.bool_, (rows, width)))
    values = st.floats(-2, 2).filter(lambda v: abs(v) > 1e-3)
    embeddings = draw(hnp.arrays(np.float64, (rows, 3), elements=values))
    prototypes = draw(st.none() | hnp.arrays(np.float64, (width, 3), elements=values))
    return embeddings, labels, prototypes, draw(st.sampled_from([0.0, 0.5, 2.0]))


def naive_targets(y, alpha):
    """Word for word from the definition."""
    n, width = y.shape
    T = np.zeros((n, n))
    for i in range(n):
        for label in range(width):
            if not y[i, label]:
                continue
            carriers = [j for j in range(n) if j != i and y[j, label]]
            f = {j: (sum(y[i] & y[j]) / sum(y[j])) ** alpha for j in carriers}
            for j in carriers:
                T[i, j] += f[j] / sum(f.values()) / sum(y[i])
    return T


def stacked(embeddings, labels, prototypes):
    if prototypes is None:
        return embeddings, labels
    return np.vstack([embeddings, prototypes]), np.vstack([labels, np.eye(labels.shape[1], dtype=bool)])


@given(batches(), st.sampled_from([0.1, 0.5]))
def test_the_study_agrees_with_naive_loops(case, temperature):
    embeddings, labels, prototypes, alpha = case
    x, y = stacked(embeddings, labels, prototypes)
    T = naive_targets(y, alpha)
    u = x / np.linalg.norm(x, axis=1, keepdims=True)
    pulls, wrong, repulsion = [], 0.0, 0.0
    for i in range(len(x)):
        others = [j for j in range(len(x)) if j != i]
        z = sum(math.exp(u[i] @ u[j] / temperature) for j in others)
        for j in others:
            expected = T[i].sum() * math.exp(u[i] @ u[j] / temperature) / z
            if T[i, j] > 0:
                pulls.append(T[i, j] - expected)
                wrong += max(0.0, expected - T[i, j])
            else:
                repulsion += expected
    anchors = max(int((T.sum(1) > 0).sum()), 1)
    study = gradient_study(embeddings, labels, prototypes, temperature, alpha)
    assert study.positives == len(pulls)
    np.testing.assert_allclose(study.pulls, pulls, atol=1e-9)
    assert study.wrong == pytest.approx(wrong / anchors, abs=1e-9)
    assert study.repulsion == pytest.approx(repulsion / anchors, abs=1e-9)
    assert study.attraction == pytest.approx(study.wrong + study.repulsion, abs=1e-9)  # pulls of an anchor sum to 0


@given(batches(), st.sampled_from([0.1, 0.5]))
def test_pulls_are_minus_the_gradient_of_the_loss_to_the_similarities(case, temperature):
    embeddings, labels, prototypes, alpha = case
    x, y = stacked(embeddings, labels, prototypes)
    T = torch.tensor(naive_targets(y, alpha))
    u = torch.nn.functional.normalize(torch.tensor(x), dim=1)
    s = (u @ u.T / temperature).fill_diagonal_(-torch.inf).requires_grad_()
    loss = -torch.where(T > 0, T * torch.log_softmax(s, dim=1), 0.0).sum()
    if (T > 0).any():
        (gradient,) = torch.autograd.grad(loss, s)
        study = gradient_study(embeddings, labels, prototypes, temperature, alpha)
        np.testing.assert_allclose(study.pulls, -gradient[T > 0].numpy(), atol=1e-9)


def test_prr_of_one_batch_is_the_share_that_the_study_counts_and_batches_add_up():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(24, 6)), rng.random((24, 3)) < 0.4
    prototypes = rng.normal(size=(3, 6))
    whole = prr_by_temperature(x, y, [0.1, 0.5], prototypes, batch_size=64)
    for ratio, temperature in zip(whole, (0.1, 0.5), strict=True):
        assert ratio == pytest.approx(gradient_study(x, y, prototypes, temperature).prr)
    order = torch.randperm(24, generator=torch.Generator().manual_seed(0)).numpy()
    parts = [gradient_study(x[rows], y[rows], prototypes, 0.1) for rows in np.split(order[:20], 2)]
    expected = sum(p.repelled for p in parts) / sum(p.positives for p in parts)
    assert prr_by_temperature(x, y, [0.1], prototypes, batch_size=10)[0] == pytest.approx(expected)


def test_at_a_high_temperature_prr_is_the_share_of_targets_below_one_over_the_candidates():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(42, 6)), rng.random((42, 4)) < 0.4
    T = naive_targets(y, 0.0)
    expected = np.mean(T[T > 0] < T.sum(1, keepdims=True).repeat(42, axis=1)[T > 0] / 41)  # a prime: no ties
    assert prr_by_temperature(x, y, [1e6])[0] == pytest.approx(expected, abs=0.01)


def test_a_batch_without_positive_pairs_has_no_ratio():
    assert np.isnan(prr_by_temperature(np.eye(3), np.eye(3), [0.1])).all()
    study = gradient_study(np.eye(3), np.eye(3))
    assert (study.positives, study.wrong, study.attraction) == (0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": 0.0}, "temperature must be a number above 0; got 0.0"),
        ({"prototypes": np.eye(2)}, r"prototypes must have shape .* = \(3, 3\), but came with shape \(2, 2\)"),
        ({"embeddings": np.eye(2)}, "labels and embeddings must have the same number of rows; got 3 .* for 2"),
    ],
)
def test_errors_name_the_argument(arguments, message):
    with pytest.raises(ValueError, match=message):
        gradient_study(**{"embeddings": np.eye(3), "labels": np.eye(3), **arguments})
