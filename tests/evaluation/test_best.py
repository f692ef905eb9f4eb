import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.preprocessing import StandardScaler

from hf_mlcl.evaluation import LinearEvaluationConfig, fit_best_heads, linear_evaluate
from hf_mlcl.evaluation.best import _folds, _reach
from hf_mlcl.training.card_facts import scores_of


def made(rows, size=24, labels=5, seed=0, noise=1.0):
    """Features, labels whose directions are the first unit vectors, and those directions."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, size, generator=generator) * torch.linspace(0.3, 3, size) + 2
    standard = (x - 2) / torch.linspace(0.3, 3, size)
    wanted = standard[:, :labels] + noise * torch.randn(rows, labels, generator=generator)
    return x, wanted > torch.linspace(0.3, 1.5, labels), torch.eye(labels, size) * 10 + 2


def test_heads_are_those_of_scikit_learn_on_standardised_features():
    x, y, _ = made(300)
    heads = fit_best_heads(x, y)
    scaler = StandardScaler().fit(x.double().numpy())
    for label in range(y.shape[1]):
        reference = LogisticRegression(C=1 / (len(x) * heads.weight_decay), tol=1e-12, max_iter=10_000)
        reference.fit(scaler.transform(x.double().numpy()), y[:, label].numpy())
        ours = heads.weight[label] * torch.from_numpy(scaler.scale_).float()
        np.testing.assert_allclose(ours, reference.coef_[0], atol=1e-4)
        expected = reference.predict_proba(scaler.transform(x.double().numpy()))[:, 1]
        np.testing.assert_allclose(heads.logits(x)[:, label].sigmoid(), expected, atol=1e-5)


def test_the_strength_is_that_of_scikit_learns_cross_validation_pooled_over_labels():
    x, y, _ = made(120)
    strengths = (1.0, 0.1, 0.01)
    heads = fit_best_heads(x, y, weight_decays=strengths, folds=4, seed=3)
    standard = StandardScaler().fit_transform(x.numpy())
    losses = np.zeros(3)
    for held_out in _folds(120, 4, 3):
        kept = np.setdiff1d(np.arange(120), held_out)
        for number, strength in enumerate(strengths):
            for label in range(y.shape[1]):
                model = LogisticRegression(C=1 / (len(kept) * strength), tol=1e-10, max_iter=10_000)
                p = model.fit(standard[kept], y[kept, label].numpy()).predict_proba(standard[held_out])[:, 1]
                truth = y[held_out, label].numpy()
                losses[number] -= np.log(np.where(truth, p, 1 - p)).sum() / y.numel()
    np.testing.assert_allclose(heads.loss["zero"], losses, rtol=1e-3)
    assert heads.weight_decay == strengths[int(losses.argmin())]


def test_a_prior_that_points_to_the_labels_is_chosen_and_helps_where_rows_are_few():
    x, y, names = made(60)
    fresh, truth, _ = made(2000, seed=1)
    with_names = fit_best_heads(x, y, priors={"names": names})
    without = fit_best_heads(x, y)
    assert with_names.prior == "names"

    def loss(heads):
        return torch.nn.functional.binary_cross_entropy_with_logits(heads.logits(fresh), truth.float()).item()

    assert loss(with_names) < loss(without) - 0.01


def test_a_prior_that_points_nowhere_changes_nothing():
    x, y, names = made(200)
    misleading = names.flip(0).roll(7, dims=1)
    heads, plain = fit_best_heads(x, y, priors={"names": misleading}), fit_best_heads(x, y)
    if heads.prior == "zero":
        torch.testing.assert_close(heads.weight, plain.weight)
    assert min(heads.loss[heads.prior]) <= min(plain.loss["zero"])


def test_the_reach_of_a_prior_is_the_most_likely_common_factor():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(4000, 3, generator=generator)
    logits = 1.7 * scores + torch.tensor([-1.0, 0.0, 2.0])
    y = torch.rand(4000, 3, generator=generator) < logits.sigmoid()
    assert _reach(scores, y) == pytest.approx(1.7, abs=0.1)  # 12,000 flips of a coin: a standard error of 0.03
    assert _reach(-scores, y) == 0.0
    assert _reach(torch.zeros(10, 3), y[:10]) == 0.0


def test_a_prior_that_tells_every_label_of_every_row_reaches_far_but_not_without_end():
    scores = torch.randn(500, 4, generator=torch.Generator().manual_seed(0))
    assert 5 < _reach(scores, scores > 0.5) < 500


def test_a_prior_reaches_less_far_with_an_encoder_that_was_trained_on_the_rows(monkeypatch):
    """Features that were pulled in the direction of their labels: those of training rows further than those of new."""
    x, y, names = made(200)
    fresh, truth, _ = made(200, seed=1)
    toward = (names - 2) / 10
    trained, unseen = x + 2 * y.float() @ toward, (fresh + truth.float() @ toward, truth)
    some = fit_best_heads(trained, y, unseen, priors={"names": names})
    monkeypatch.setattr("hf_mlcl.evaluation.best.TRAINED_SHARE", 1.0)
    whole = fit_best_heads(trained, y, unseen, priors={"names": names})
    assert min(some.loss["names"]) < min(whole.loss["names"])
    assert min(some.loss["names"]) < min(some.loss["zero"])


def test_rows_that_the_encoder_was_trained_on_do_not_choose():
    """Memorised features: the label itself stands in them. Validation shows that it does not stand in new rows."""
    x, y, _ = made(200)
    fresh, truth, _ = made(200, seed=1)
    leaked = torch.cat([x, 5.0 * y.float()], dim=1)
    honest = torch.cat([fresh, 2.5 + torch.randn(200, y.shape[1], generator=torch.Generator().manual_seed(2))], dim=1)
    judged = fit_best_heads(leaked, y, (honest, truth))
    naive = fit_best_heads(leaked, y)
    new, answer, _ = made(2000, seed=3)
    unseen = torch.cat([new, 2.5 + torch.randn(2000, y.shape[1], generator=torch.Generator().manual_seed(4))], dim=1)
    losses = [
        torch.nn.functional.binary_cross_entropy_with_logits(heads.logits(unseen), answer.float()).item()
        for heads in (judged, naive)
    ]
    assert losses[0] < losses[1]
    assert naive.unseen_probabilities is not None
    assert judged.unseen_probabilities is None


def test_unseen_probabilities_are_made_by_heads_that_did_not_see_the_row():
    x, y, _ = made(100)
    before = fit_best_heads(x, y, weight_decays=(0.1,), folds=5, seed=0).unseen_probabilities
    row = int(_folds(100, 5, 0)[0][0])
    flipped = y.clone()
    flipped[row] = ~flipped[row]
    after = fit_best_heads(x, flipped, weight_decays=(0.1,), folds=5, seed=0).unseen_probabilities
    np.testing.assert_allclose(before[row], after[row], atol=1e-4)


@pytest.mark.parametrize("rows", [2, 3, 7])
def test_a_handful_of_rows_and_labels_that_nobody_has_give_finite_heads(rows):
    x, y, names = made(rows)
    y[:, 0], y[:, 1] = False, True
    heads = fit_best_heads(x, y, priors={"names": names})
    assert heads.weight.isfinite().all()
    assert heads.bias.isfinite().all()


def test_a_label_without_rows_is_as_likely_as_half_a_row_of_it_and_ranks_new_rows_by_its_prior():
    x, y, names = made(300)
    fresh, truth, _ = made(2000, seed=1)
    y[:, 0] = False
    p = fit_best_heads(x, y, priors={"names": names}).logits(fresh).sigmoid()
    assert 0.1 / len(x) < p[:, 0].mean() < 10 / len(x)
    assert average_precision_score(truth[:, 0], p[:, 0]) > 1.5 * truth[:, 0].float().mean()
    y[:, 1] = True
    sure = fit_best_heads(x, y).logits(fresh)[:, 1].sigmoid()
    assert 0.1 / len(x) < (1 - sure).mean() < 10 / len(x)


def test_constant_features_get_no_weight_that_would_blow_up_on_new_rows():
    x, y, _ = made(50)
    x[:, 0] = 1.0
    heads = fit_best_heads(x, y)
    assert heads.weight[:, 0].abs().max() < 1e-3


def test_as_a_protocol_of_the_linear_evaluation_it_gives_one_head_and_is_deterministic():
    x, y, _ = made(300)
    config = LinearEvaluationConfig(protocol="best")
    first, second = (
        linear_evaluate(x[:200], y[:200], x[200:], y[200:], config=config, progress=False) for _ in range(2)
    )
    torch.testing.assert_close(first.weight, second.weight)
    assert first.weight.shape == (1, 5, 24)
    assert first.curves == {}
    assert len({(choice.learning_rate, choice.weight_decay) for choice in first.choices}) == 1


@pytest.mark.parametrize("protocol", ["best", "study"])
def test_a_label_without_test_rows_is_left_out_of_map_for_users_and_counts_zero_in_the_study(protocol):
    x = torch.randn(120, 6, generator=torch.Generator().manual_seed(0))
    y = x[:, :3] > 0.3
    y[80:, 2] = False  # no test row carries it
    config = LinearEvaluationConfig(protocol=protocol, epochs=5)
    result = linear_evaluate(x[:40], y[:40], x[40:80], y[40:80], x[80:], y[80:], config=config, progress=False)
    expected = average_precision_score(y[80:, :2], result.test_probabilities[:, :2], average="macro")
    assert result.metrics["test_mAP"] == pytest.approx(expected * (1 if protocol == "best" else 2 / 3), abs=1e-6)
    assert scores_of(result).metrics(0.5)["mAP"] == pytest.approx(result.metrics["test_mAP"]), "on the card, too"
