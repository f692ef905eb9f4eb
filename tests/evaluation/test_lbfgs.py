import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from hf_mlcl.evaluation import LinearEvaluationConfig, linear_evaluate
from hf_mlcl.evaluation.lbfgs import fit_logistic

DECAYS = (1.0, 1e-2, 1e-4)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 10)) * rng.uniform(0.2, 2, 10)  # badly scaled, as features are
    y = (x @ rng.normal(size=(10, 4)) + rng.normal(size=(200, 4))) > np.array([0, 1, 3, 0.5])
    return torch.tensor(x), torch.tensor(y)


def test_every_label_and_weight_decay_reaches_the_optimum_of_scikit_learn(data):
    x, y = data
    heads = fit_logistic([x], y, DECAYS, torch.device("cpu"))
    for point, decay in enumerate(DECAYS):
        for label in range(y.shape[1]):
            reference = LogisticRegression(C=1 / (len(x) * decay), tol=1e-10, max_iter=10_000)
            reference.fit(x.numpy(), y[:, label].numpy())
            np.testing.assert_allclose(heads.weight[point, 0, label], reference.coef_[0], atol=2e-3, rtol=2e-3)
            ours = torch.sigmoid(x.float() @ heads.weight[point, 0, label] + heads.bias[point, 0, label])
            np.testing.assert_allclose(ours, reference.predict_proba(x.numpy())[:, 1], atol=1e-3)


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
    monkeypatch.setattr("hf_mlcl.evaluation.lbfgs.TILE_CELLS", 5 * len(x))
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


def test_as_a_solver_it_is_deterministic_and_chooses_a_weight_decay_for_each_label(data):
    x, y = data
    config = LinearEvaluationConfig(solver="lbfgs", weight_decays=DECAYS)
    first, second = (
        linear_evaluate(x[:150], y[:150], x[150:], y[150:], config=config, progress=False) for _ in range(2)
    )
    torch.testing.assert_close(first.weight, second.weight, atol=1e-4, rtol=1e-4)
    assert first.weight.shape == (1, 4, 10)
    assert first.curves == {}
    assert all(choice.learning_rate is None and choice.weight_decay in DECAYS for choice in first.choices)


def test_several_passes_count_as_more_rows(data):
    x, y = data
    once = fit_logistic([x], y, (1e-2,), torch.device("cpu"))
    twice = fit_logistic([x, x], y, (1e-2,), torch.device("cpu"))
    torch.testing.assert_close(once.weight, twice.weight, atol=1e-4, rtol=1e-4)
