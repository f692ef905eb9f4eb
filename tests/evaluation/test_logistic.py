import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from hf_mlcl.evaluation.logistic import fit_logistic

DECAYS = (1.0, 1e-2, 1e-4)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 10)) * rng.uniform(0.2, 2, 10)  # badly scaled, as features are
    y = (x @ rng.normal(size=(10, 4)) + rng.normal(size=(200, 4))) > np.array([0, 1, 3, 0.5])
    return torch.tensor(x), torch.tensor(y)


@pytest.mark.parametrize("columns", [10, 300], ids=["more rows than features", "more features than rows"])
def test_every_label_and_weight_decay_reaches_the_optimum_of_scikit_learn(data, columns):
    x, y = data
    if columns > x.shape[1]:
        x = torch.cat([x, torch.randn(len(x), columns - x.shape[1], generator=torch.Generator().manual_seed(0))], dim=1)
    heads = fit_logistic([x], y, DECAYS, torch.device("cpu"))
    for point, decay in enumerate(DECAYS):
        for label in range(y.shape[1]):
            reference = LogisticRegression(C=1 / (len(x) * decay), tol=1e-12, max_iter=100_000)
            reference.fit(x.numpy(), y[:, label].numpy())
            np.testing.assert_allclose(heads.weight[point, 0, label], reference.coef_[0], atol=1e-4, rtol=1e-4)
            ours = torch.sigmoid(x.float() @ heads.weight[point, 0, label] + heads.bias[point, 0, label])
            np.testing.assert_allclose(ours, reference.predict_proba(x.numpy())[:, 1], atol=1e-5)


def test_heads_shrink_towards_their_prior_as_an_offset_of_the_logits_says(data):
    """With w = w0 + v the penalty is on v, and X w0 is an offset: minimised here by scipy, with no code of ours."""
    x, y = data
    prior = torch.randn(y.shape[1], x.shape[1], generator=torch.Generator().manual_seed(1), dtype=x.dtype)
    heads = fit_logistic([x], y, (0.1,), torch.device("cpu"), priors=prior[None])
    for label in range(y.shape[1]):
        sign, offset = np.where(y[:, label], 1.0, -1.0), (x @ prior[label]).numpy()

        def loss(theta, sign=sign, offset=offset):
            logits = x.numpy() @ theta[:-1] + theta[-1] + offset
            return np.logaddexp(0, -sign * logits).mean() + 0.05 * theta[:-1] @ theta[:-1]

        found = minimize(loss, np.zeros(x.shape[1] + 1), tol=1e-12).x
        np.testing.assert_allclose(heads.weight[0, 0, label], found[:-1] + prior[label].numpy(), atol=1e-4)
        np.testing.assert_allclose(heads.bias[0, 0, label], found[-1], atol=1e-4)


def test_a_prior_is_kept_where_the_rows_say_nothing(data):
    x, y = data
    x = torch.cat([x, torch.zeros(len(x), 1, dtype=x.dtype)], dim=1)  # a feature that never moves
    prior = torch.zeros(y.shape[1], x.shape[1])
    prior[:, -1] = 3.0
    heads = fit_logistic([x], y, (0.1,), torch.device("cpu"), priors=prior[None])
    np.testing.assert_allclose(heads.weight[0, 0, :, -1], 3.0, atol=1e-6)


def test_the_gradient_vanishes_at_the_solution(data):
    x, y = data
    heads = fit_logistic([x], y, DECAYS, torch.device("cpu"))
    for point, decay in enumerate(DECAYS):
        weight, bias = heads.weight[point, 0].double(), heads.bias[point, 0].double()
        error = torch.sigmoid(x @ weight.T + bias) - y.double()
        assert (error.T @ x / len(x) + decay * weight).abs().max() < 1e-5
        assert error.mean(0).abs().max() < 1e-5


def test_the_solution_does_not_depend_on_how_columns_are_tiled(data, monkeypatch):
    x, y = data
    whole = fit_logistic([x], y, DECAYS, torch.device("cpu"))
    monkeypatch.setattr("hf_mlcl.evaluation.logistic.TILE_CELLS", 5 * len(x))
    tiled = fit_logistic([x], y, DECAYS, torch.device("cpu"))
    torch.testing.assert_close(whole.weight, tiled.weight, atol=1e-3, rtol=1e-3)


def test_labels_that_nobody_or_everybody_has_stay_finite(data):
    x, _ = data
    y = torch.zeros(len(x), 2, dtype=torch.bool)
    y[:, 1] = True
    heads = fit_logistic([x], y, (1e-2,), torch.device("cpu"))
    p = torch.sigmoid(x.float() @ heads.weight[0, 0].T + heads.bias[0, 0])
    assert p[:, 0].max() < 0.01
    assert p[:, 1].min() > 0.99
    assert torch.isfinite(heads.weight).all()


def test_several_passes_count_as_more_rows(data):
    x, y = data
    once = fit_logistic([x], y, (1e-2,), torch.device("cpu"))
    twice = fit_logistic([x, x], y, (1e-2,), torch.device("cpu"))
    torch.testing.assert_close(once.weight, twice.weight, atol=1e-4, rtol=1e-4)
