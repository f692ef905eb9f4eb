import dataclasses

import numpy as np
import pytest
import torch

from evaluation.plain_loop import linear_evaluate_plainly, make_optimizer, train_head
from hf_mlcl import metrics
from hf_mlcl.evaluation import LinearEvaluationConfig, linear_evaluate
from hf_mlcl.evaluation.heads import GridHeads, score
from hf_mlcl.evaluation.optimizer import BatchedOptimizer

SMALL = LinearEvaluationConfig(weight_decays=(0.1, 1e-4), epochs=6, batch_size=32)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(260, 12)).astype(np.float32)
    y = (x @ rng.normal(size=(12, 5)) + rng.normal(size=(260, 5))) > np.array([0, 1, 2, 4, 99])
    return {"train": (x[:150], y[:150]), "validation": (x[150:200], y[150:200]), "test": (x[200:], y[200:])}


def run(data, config=SMALL, test=True, **kwargs):
    splits = [*data["train"], *data["validation"], *(data["test"] if test else ())]
    return linear_evaluate(*splits, config=config, progress=False, **kwargs)


def same_weights(first, second):
    """But for rounding, which optimisers enlarge where a gradient is almost nothing."""
    return torch.allclose(first.weight, second.weight, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "rmsprop", "sgd"])
def test_every_head_of_the_batched_optimizer_follows_torch_step_for_step(optimizer):
    torch.manual_seed(0)
    config = LinearEvaluationConfig(optimizer=optimizer, heads=2, weight_decays=(0.3, 0.0, 1e-3))
    double = torch.float64  # in which only a mistake can differ by 1e-9
    batches = [(torch.randn(16, 7, dtype=double), (torch.rand(16, 4) < 0.3).to(double)) for _ in range(25)]
    start = torch.randn(6, 2, 4, 7, dtype=double) / 3, torch.zeros(6, 2, 4, dtype=double)
    heads = GridHeads(start[0].clone(), start[1].clone())
    weight_grad, bias_grad = torch.zeros_like(heads.weight), torch.zeros_like(heads.bias)
    ours = BatchedOptimizer(heads, weight_grad, bias_grad, config, steps=len(batches))
    plain = {
        (point, head): train_head(
            batches, start[0][point, head], start[1][point, head], optimizer, rate, decay, dtype=double
        )
        for point, (rate, decay) in enumerate(config.grid())
        for head in range(2)
    }
    for x, y in batches:
        error = torch.sigmoid(torch.einsum("nh,gklh->gknl", x, heads.weight) + heads.bias.unsqueeze(2)) - y
        weight_grad.copy_(torch.einsum("gknl,nh->gklh", error, x) / y.numel())
        bias_grad.copy_(error.sum(2) / y.numel())
        ours.step()
        for (point, head), steps in plain.items():
            weight, bias = next(steps)
            torch.testing.assert_close(heads.weight[point, head], weight, rtol=0, atol=1e-9)
            torch.testing.assert_close(heads.bias[point, head], bias, rtol=0, atol=1e-9)


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "rmsprop", "sgd"])
def test_given_the_same_gradients_in_float32_it_stays_within_1e_6_of_torch_at_every_step(optimizer):
    torch.manual_seed(0)
    config = LinearEvaluationConfig(optimizer=optimizer, heads=2, weight_decays=(0.3, 0.0, 1e-3))
    heads = GridHeads(torch.randn(6, 2, 4, 7) / 3, torch.zeros(6, 2, 4))
    weight_grad, bias_grad = torch.zeros_like(heads.weight), torch.zeros_like(heads.bias)
    ours = BatchedOptimizer(heads, weight_grad, bias_grad, config, steps=40)
    plain = []
    for point, (rate, decay) in enumerate(config.grid()):
        for head in range(2):
            pair = [torch.nn.Parameter(t[point, head].clone()) for t in (heads.weight, heads.bias)]
            theirs = make_optimizer(optimizer, *pair, rate, decay, config.momentum)
            schedule = torch.optim.lr_scheduler.LambdaLR(theirs, lambda step: 1 - step / 40)
            plain.append((point, head, pair, theirs, schedule))
    for _ in range(40):
        gradients = torch.randn_like(weight_grad) / 50, torch.randn_like(bias_grad) / 50
        weight_grad.copy_(gradients[0])
        bias_grad.copy_(gradients[1])
        ours.step()
        for point, head, (weight, bias), theirs, schedule in plain:
            weight.grad, bias.grad = (gradient[point, head].clone() for gradient in gradients)
            theirs.step()
            schedule.step()
            torch.testing.assert_close(heads.weight[point, head], weight.detach(), rtol=1e-6, atol=1e-6)
            torch.testing.assert_close(heads.bias[point, head], bias.detach(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "rmsprop", "sgd"])
def test_a_whole_run_of_one_head_is_that_of_a_plain_training_loop(data, optimizer):
    config = LinearEvaluationConfig(
        learning_rates=(0.1,), weight_decays=(0.01,), heads=1, epochs=5, batch_size=32, optimizer=optimizer, seed=3
    )
    result = run(data, config)
    x, y = (torch.as_tensor(part).float() for part in data["train"])
    random = torch.Generator().manual_seed(3)
    bound = (6 / (12 + 5)) ** 0.5
    weight = torch.empty(1, 1, 5, 12).uniform_(-bound, bound, generator=random)[0, 0]
    batches = []
    for _ in range(5):
        order = torch.randperm(len(x), generator=random)
        batches += [(x[rows], y[rows]) for rows in order.split(32)]
    assert len(batches[-1][0]) == 150 % 32  # the last, incomplete batch is part of the protocol
    *_, (weight, bias) = train_head(batches, weight, torch.zeros(5), optimizer, 0.1, 0.01)
    torch.testing.assert_close(result.weight[0], weight, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(result.bias[0], bias, rtol=1e-4, atol=1e-5)


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(data):
    first, again = run(data), run(data)
    assert first.metrics == pytest.approx(again.metrics, abs=1e-6)
    assert same_weights(first, again)
    assert not same_weights(first, run(data, dataclasses.replace(SMALL, seed=1)))


def test_heads_are_initialised_independently(data):
    weight = run(data, dataclasses.replace(SMALL, epochs=1)).weight
    assert not torch.allclose(weight[0], weight[1])
    assert not torch.allclose(weight[1], weight[2])


def test_metrics_are_those_of_the_classifier_that_is_returned(data):
    result = run(data)
    for split in ("validation", "test"):
        x, y = data[split]
        p = result.predict_proba(x)
        by_hand = torch.sigmoid(torch.as_tensor(x) @ result.weight.transpose(1, 2) + result.bias.unsqueeze(1)).mean(0)
        np.testing.assert_allclose(p, by_hand.numpy(), atol=1e-6)
        for name, value in metrics.multilabel_metrics(y, p).items():
            assert result.metrics[f"{split}_{name}"] == pytest.approx(value, abs=1e-6)


def test_each_label_takes_the_grid_point_with_its_best_validation_f1(data):
    x, y = data["validation"]
    result = run(data)
    each = metrics.f1(y, metrics.decide(result.predict_proba(x)))
    np.testing.assert_allclose([choice.validation_f1 for choice in result.choices], each, atol=1e-9)
    assert all((choice.learning_rate, choice.weight_decay) in SMALL.grid() for choice in result.choices)
    assert each.mean() >= result.curves["validation_macro_f1"][-1].max() - 1e-9  # of any one grid point for all labels


def test_equal_f1_is_decided_by_the_lower_loss_and_then_by_the_order_of_the_grid():
    x, y = torch.tensor([[1.0], [1.0]]), torch.tensor([[False, True], [False, True]])
    weight = torch.tensor([[-1.0, 3.0], [-2.0, 2.0], [-2.0, 2.0]]).view(3, 1, 2, 1)
    scores = score(GridHeads(weight, torch.zeros(3, 1, 2)), x, y)
    assert scores.f1.tolist() == [[0.0, 1.0]] * 3
    assert scores.best().tolist() == [1, 0]


def test_scores_of_a_grid_are_f1_and_cross_entropy_of_the_mean_probability():
    torch.manual_seed(0)
    heads = GridHeads(torch.randn(2, 3, 4, 6), torch.randn(2, 3, 4))
    x, y = torch.randn(1500, 6), torch.rand(1500, 4) < 0.4
    scores = score(heads, x, y)
    for point in range(2):
        p = torch.sigmoid(x @ heads.weight[point].transpose(1, 2) + heads.bias[point].unsqueeze(1)).mean(0)
        predictions = p.numpy() >= 0.5
        np.testing.assert_allclose(scores.f1[point], metrics.f1(y, predictions), atol=1e-9)
        loss = torch.nn.functional.binary_cross_entropy(p, y.float(), reduction="none").mean(0)
        np.testing.assert_allclose(scores.loss[point], loss, atol=1e-5)
        assert float(scores.micro_f1[point]) == pytest.approx(metrics.f1(y, predictions, "micro"), abs=1e-9)


def test_an_epoch_takes_the_next_pass_over_augmented_features(data):
    x, y = data["train"]
    passes = np.stack([x, x[:, ::-1]])
    as_array = run({**data, "train": (passes, y)})
    as_list = run({**data, "train": ([passes[0], passes[1]], y)})
    assert same_weights(as_array, as_list)
    assert same_weights(run({**data, "train": (np.stack([x, x]), y)}), run(data))
    assert not same_weights(as_array, run(data))
    two = dataclasses.replace(SMALL, epochs=1)  # one epoch sees the first pass only
    assert same_weights(run({**data, "train": (passes, y)}, two), run(data, two))


def test_no_rows_have_no_probabilities(data):
    assert run(data, dataclasses.replace(SMALL, epochs=1)).predict_proba(np.zeros((0, 12))).shape == (0, 5)


def test_curves_fall_in_loss_and_have_a_point_for_the_last_epoch(data):
    curves = run(data, dataclasses.replace(SMALL, learning_rates=(0.1,), epochs=9)).curves
    assert curves["epoch"].tolist() == [4, 8, 9]
    assert (curves["train_loss"][-1] < curves["train_loss"][0]).all()
    assert {values.shape for name, values in curves.items() if name != "epoch"} == {(3, 2)}


def test_extreme_features_give_finite_numbers(data):
    x, y = data["train"]
    result = run({**data, "train": (1e4 * x, y)})
    assert np.isfinite(list(result.metrics.values())).all()
    assert torch.isfinite(result.weight).all()


def test_half_precision_and_torch_inputs_are_taken_as_they_are(data):
    halves = {name: (torch.as_tensor(x).half(), torch.as_tensor(y)) for name, (x, y) in data.items()}
    assert run(halves).metrics["test_micro_f1"] == pytest.approx(run(data).metrics["test_micro_f1"], abs=0.05)


def test_the_classifier_is_as_good_as_separately_trained_heads(data):
    config = dataclasses.replace(SMALL, epochs=15)
    plain = linear_evaluate_plainly(data["train"], data["validation"], config)
    ours = [choice.validation_f1 for choice in run(data, config).choices]
    assert np.mean(np.abs(plain - ours)) < 0.03


def test_the_settings_of_the_study_are_known_by_corpus():
    assert LinearEvaluationConfig.for_corpus("nuswide").optimizer == "rmsprop"
    assert LinearEvaluationConfig.for_corpus("voc2007").batch_size == 64
    assert LinearEvaluationConfig.for_corpus("aapd", size="small").grid() == [(1.0, 1e-2)]
    assert len(LinearEvaluationConfig.for_corpus("rcv1").grid()) == 6
    assert LinearEvaluationConfig.for_corpus("bgc", epochs=2).epochs == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_features": np.zeros((150, 12), dtype=int)}, "`train_features` must be a .* matrix of floats"),
        ({"train_features": np.full((150, 12), np.nan)}, "`train_features` holds NaN"),
        ({"train_labels": np.zeros((3, 5))}, "`train_labels` has 3 rows, but the features have 150"),
        ({"validation_features": np.zeros((50, 3))}, "`validation_features` has 3 features per row.*12"),
        ({"validation_labels": np.zeros((50, 2))}, "`validation_labels` has 2 labels, but `train_labels` has 5"),
        ({"train_features": np.zeros((0, 12)), "train_labels": np.zeros((0, 5))}, "`train_features` has no rows"),
        (
            {"validation_features": np.zeros((0, 12)), "validation_labels": np.zeros((0, 5))},
            "`validation_features` has no rows: there is nothing to score. Is the validation split empty",
        ),
        ({"test_features": np.zeros((0, 12)), "test_labels": np.zeros((0, 5))}, "`test_features` has no rows"),
        ({"validation_features": None}, "`validation_features` must be a .* matrix of floats, but is NoneType"),
        ({"train_features": None}, "`train_features` must be a .* matrix of floats, but is NoneType"),
        ({"train_labels": None}, "`train_labels` must be a .* matrix of 0 and 1"),
        ({"train_labels": [[0], []] * 75}, "`train_labels` must be .*, but its rows differ in length. Turn lists of"),
        ({"train_labels": np.zeros((150, 0))}, r"`train_labels` has shape \(150, 0\): there must be a column for each"),
        ({"test_labels": None}, "`test_features` and `test_labels` belong together"),
    ],
)
def test_errors_name_the_argument_and_what_was_expected(data, change, message):
    arguments = {
        f"{split}_{kind}": value
        for split, pair in data.items()
        for kind, value in zip(("features", "labels"), pair, strict=True)
    }
    with pytest.raises(ValueError, match=message):
        linear_evaluate(**{**arguments, **change}, progress=False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "lion"}, "`optimizer` must be one of adamw, adam, rmsprop, sgd, but is 'lion'"),
        ({"protocol": "newton"}, "`protocol` must be one of study, best"),
        ({"heads": 0}, "`heads` must be at least 1"),
        ({"learning_rates": ()}, "`learning_rates` must hold positive numbers"),
        ({"weight_decays": (-1.0,)}, "`weight_decays` must hold at least one number >= 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        LinearEvaluationConfig(**settings)


def test_an_unknown_corpus_is_refused():
    with pytest.raises(ValueError, match="There is no recipe for 'imagenet'"):
        LinearEvaluationConfig.for_corpus("imagenet")
