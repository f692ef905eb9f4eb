"""Stages of a training: usable from the first minute, never below where it began."""

import dataclasses
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import average_precision_score

from experiments.toy import build
from hf_mlcl import (
    ContrastiveMultiLabelTrainer,
    ContrastiveTrainingArguments,
    MLCLForSequenceClassification,
    MLCLModel,
)
from hf_mlcl.evaluation import LinearEvaluationConfig, fit_best_heads
from hf_mlcl.experiments import anytime, train_classifier, verdict
from hf_mlcl.experiments import stages as stages_module
from hf_mlcl.experiments.anytime import Anytime
from hf_mlcl.experiments.prediction import Predictor, training_settings
from hf_mlcl.experiments.running import run_experiment
from hf_mlcl.experiments.stages import BLENDS, Stages, ranking_score, step_seconds
from hf_mlcl.experiments.verdict import side_by_side
from hf_mlcl.files import HIDDEN_FOLDER
from hf_mlcl.metrics import DecisionRule
from training.tiny import image_model, image_rows


def rows(count, seed=0, size=12, labels=4):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, size, generator=generator)
    y = x[:, :labels] + 0.7 * torch.randn(count, labels, generator=generator) > 0.5
    return [{"feature_values": a, "labels": b.float()} for a, b in zip(x, y, strict=True)]


def trainer(tmp_path, loss="reg", **settings):
    torch.manual_seed(0)
    model = MLCLModel.from_features(12, ["a", "b", "c", "d"], projection_dim=8)
    arguments = {"max_steps": 8, "per_device_train_batch_size": 16, "report_to": "none", "disable_tqdm": True}
    args = ContrastiveTrainingArguments(
        str(tmp_path), loss=loss, use_cpu=True, save_strategy="no", logging_steps=100, **{**arguments, **settings}
    )
    return ContrastiveMultiLabelTrainer(model, args, train_dataset=rows(80))


def failing_at(fatal):
    """A training step that does its work until it is called for the time with this number."""
    step, calls = ContrastiveMultiLabelTrainer.training_step, []

    def training_step(*args, **kwargs):
        calls.append(1)
        return step(*args, **kwargs) if len(calls) < fatal else 1 / 0

    return training_step


def test_the_ranking_score_is_the_mean_of_scikit_learns_macro_and_micro_average_precision():
    rng = np.random.default_rng(0)
    labels, p = rng.random((60, 5)) < 0.3, rng.random((60, 5))
    labels[:, 4] = False  # no row carries it: it says nothing
    macro = average_precision_score(labels[:, :4], p[:, :4], average="macro")
    micro = average_precision_score(labels, p, average="micro")
    assert ranking_score(labels, p) == pytest.approx((macro + micro) / 2)
    assert ranking_score(np.zeros((3, 2)), np.zeros((3, 2))) == 0.0


@pytest.mark.parametrize("rate", [1e-3, 10.0], ids=["training that helps", "training that wrecks"])
def test_what_remains_is_never_below_the_frozen_encoder_on_validation(tmp_path, rate):
    trained = trainer(tmp_path, learning_rate=rate, max_grad_norm=0.0)
    better = []
    stages = Stages(trained, rows(80), rows(60, seed=1), on_better=better.append)
    before = {name: weight.clone() for name, weight in trained.model.backbone.state_dict().items()}
    frozen = stages.begin("means")
    trained.add_callback(stages.callback(8))
    trained.train()
    best = stages.restore_best()
    assert best.score >= frozen.score
    assert best.score == max(score for _, score in stages.history)
    assert [stage.score for stage in better] == sorted(stage.score for stage in better)
    validation = trained.features_and_labels(rows(60, seed=1))
    found = best.result
    np.testing.assert_allclose(found.predict_proba(validation[0]), found.validation_probabilities, atol=1e-5)
    if best.step == 0:
        torch.testing.assert_close(trained.model.backbone.state_dict(), before)


def test_a_training_that_is_late_ends_with_a_look(tmp_path):
    trained = trainer(tmp_path, max_steps=40)
    stages = Stages(trained, rows(80), rows(60, seed=1))
    stages.begin()
    trained.add_callback(stages.callback(40, late=lambda: trained.state.global_step >= 3))
    trained.train()
    assert trained.state.global_step == 3
    assert [step for step, _ in stages.history] == [0, 3]


def test_training_stops_when_looks_find_nothing_better(tmp_path):
    trained = trainer(tmp_path, learning_rate=0.0, max_steps=40)
    stages = Stages(trained, rows(80), rows(60, seed=1))
    stages.begin()
    # Heads of an unchanged encoder, judged on validation this time: nothing more to gain by any later look.
    trained.add_callback(stages.callback(40))
    trained.train()
    assert trained.state.global_step < 40


def test_classifier_and_prototypes_start_at_stage_0(tmp_path):
    trained = trainer(tmp_path, loss="reg+bce")
    names = torch.eye(4, 12)
    stages = Stages(trained, rows(80), rows(60, seed=1), priors=lambda: {"{}": names})
    stage = stages.begin("names")
    torch.testing.assert_close(trained.model.classifier.weight.data, 0.3 * stage.result.best.weight)
    torch.testing.assert_close(trained.model.classifier.bias.data, 0.3 * stage.result.best.bias)
    with torch.no_grad():
        torch.testing.assert_close(trained.model.prototypes.weight.data, trained.model.projection(names))


def test_thresholds_of_stage_0_come_from_training_rows_as_well(tmp_path):
    """With two validation rows nothing could be cross-fitted: the 80 training rows, scored unseen, can."""
    stages = Stages(trainer(tmp_path), rows(80), rows(2, seed=1))
    assert stages.begin().result.tuned.scores.keys() == {"half", "global", "label"}
    at_half = LinearEvaluationConfig(protocol="best")
    assert Stages(trainer(tmp_path), rows(80), rows(20, seed=1), at_half).begin().result.tuned is None


def test_heads_of_a_look_at_some_rows_are_fitted_to_all_in_the_end(tmp_path):
    trained = trainer(tmp_path)
    stages = Stages(trained, rows(80), rows(60, seed=1))
    assert stages.look(rows=20).rows == 20
    assert stages.restore_best().rows == 80


@pytest.mark.parametrize("rate", [0.0, 1e-3, 10.0])
def test_of_many_rows_looks_are_compared_with_the_frozen_encoder_on_as_many(tmp_path, monkeypatch, rate):
    monkeypatch.setattr("hf_mlcl.experiments.stages.LOOK_ROWS", 30)
    trained = trainer(tmp_path, learning_rate=rate, max_grad_norm=0.0)
    stages = Stages(trained, rows(80), rows(60, seed=1))
    frozen = stages.begin("means")
    on_all = frozen.result
    assert frozen.rows == 80
    # the encoder has not changed: a look is what the frozen one was compared by, but for how strength is chosen
    by_hand = fit_best_heads(*[torch.from_numpy(x[np.linspace(0, 79, 30).astype(int)]) for x in on_these(trained)])
    seen = by_hand.logits(torch.from_numpy(trained.features_and_labels(rows(60, seed=1))[0])).sigmoid()
    assert frozen.score == pytest.approx(ranking_score(on_all.validation_labels, seen), abs=0.02)
    trained.add_callback(stages.callback(8))
    trained.train()
    best = stages.restore_best()
    assert best.rows in (30, 80)
    judged = [ranking_score(one.validation_labels, one.validation_probabilities) for one in (on_all, best.result)]
    assert judged[1] >= judged[0]  # never below the frozen encoder with heads on all rows
    features = trained.features_and_labels(rows(60, seed=1))[0]
    np.testing.assert_allclose(best.result.predict_proba(features), best.result.validation_probabilities, atol=1e-5)


def on_these(trained):
    features, labels = trained.features_and_labels(rows(80))
    return features, labels > 0


def test_the_best_stage_comes_back_with_all_of_its_weights(tmp_path):
    trained = trainer(tmp_path, loss="reg+zlpr", max_steps=12)
    stages = Stages(trained, rows(80), rows(60, seed=1))
    states = {}
    stages.on_better = lambda stage: states.update(
        {stage.step: {name: value.clone() for name, value in trained.model.state_dict().items()}}
    )
    stages.begin("means")
    trained.add_callback(stages.callback(12))
    trained.train()
    best = stages.restore_best()
    if best.step:  # at stage 0, classifier and prototypes are set after it was scored
        torch.testing.assert_close(dict(trained.model.state_dict()), states[best.step])


def test_a_training_that_goes_on_knows_the_best_stage_before_the_interruption(tmp_path):
    stages = Stages(trainer(tmp_path / "a"), rows(80), rows(60, seed=1))
    stages.begin("means")
    stages.save(tmp_path / "best.pt")
    again = Stages(trainer(tmp_path / "b"), rows(80), rows(60, seed=1))
    assert again.load(tmp_path / "best.pt")
    assert again.best.score == stages.best.score
    torch.testing.assert_close(again._weights, stages._weights)
    restored, before = again.restore_best().result, stages.best.result
    np.testing.assert_allclose(restored.validation_probabilities, before.validation_probabilities, atol=1e-6)
    assert restored.tuned == before.tuned
    (tmp_path / "best.pt").write_bytes((tmp_path / "best.pt").read_bytes()[:1000])
    assert not Stages(trainer(tmp_path / "c"), rows(80), rows(60, seed=1)).load(tmp_path / "best.pt")


def test_measuring_the_pace_leaves_everything_as_it_was(tmp_path):
    model = image_model()
    args = ContrastiveTrainingArguments(
        str(tmp_path), use_cpu=True, report_to="none", disable_tqdm=True, per_device_train_batch_size=8
    )
    timed = ContrastiveMultiLabelTrainer(model, args, train_dataset=image_rows(40))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    assert step_seconds(timed) > 0
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0, msg=name)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(parameter.grad is None for parameter in model.parameters())


# As an experiment ----------------------------------------------------------------------------------------------------


def test_a_classifier_is_there_whenever_training_is_interrupted(tmp_path, monkeypatch):
    def interrupted(self, *args, **kwargs):
        found = Predictor(tmp_path / "run")
        assert found.probabilities(["w1 w2"]).shape == (1, len(found.label_names))
        raise RuntimeError("the power is gone")

    monkeypatch.setattr(ContrastiveMultiLabelTrainer, "train", interrupted)
    with pytest.raises(RuntimeError, match="the power is gone"):
        run_experiment(*build(tmp_path / "run", protocol="best"), quiet=True)
    assert Predictor(tmp_path / "run").probabilities(["w1 w2"]).shape[0] == 1


def test_ctrl_c_keeps_and_scores_the_best_so_far(tmp_path, monkeypatch, capsys):
    def stopped(self, *args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(ContrastiveMultiLabelTrainer, "train", stopped)
    result = run_experiment(*build(tmp_path / "run", protocol="best"))
    assert "best so far" in capsys.readouterr().out
    assert result.metrics["test_mAP"] == pytest.approx(result.metrics["frozen_test_mAP"])
    assert (tmp_path / "run" / "metrics.json").is_file()


def test_an_experiment_tells_the_frozen_encoder_beside_the_trained_one(tmp_path):
    result = run_experiment(*build(tmp_path / "run", protocol="best", thresholds="macro_f1"), quiet=True)
    for name in ("validation_mAP", "test_micro_f1", "tuned_test_macro_f1"):
        assert 0 <= result.metrics[f"frozen_{name}"] <= 1
        assert 0 <= result.metrics[name] <= 1
    predicted = Predictor(tmp_path / "run")
    assert len(predicted.rule.thresholds) == len(predicted.label_names)


@pytest.mark.parametrize("rate", [0.0, 1e-2])
def test_the_encoder_of_a_loss_on_logits_has_the_logits_of_the_best_heads(tmp_path, rate):
    settings = {"protocol": "best", "loss": "reg+two_way", "learning_rate": rate, "thresholds": "half"}
    run_experiment(*build(tmp_path / "run", **settings), quiet=True)
    encoder = MLCLModel.from_pretrained(tmp_path / "run" / "encoder")
    heads = MLCLForSequenceClassification.from_pretrained(tmp_path / "run" / "classifier").heads
    torch.testing.assert_close(encoder.classifier.weight, heads.weight[0])
    torch.testing.assert_close(encoder.classifier.bias, heads.bias[0])


def test_a_training_that_diverges_leaves_the_best_before(tmp_path, capsys):
    result = run_experiment(
        *build(tmp_path / "run", protocol="best", learning_rate=1e30, max_grad_norm=0.0, max_steps=12)
    )
    assert "is kept" in capsys.readouterr().out
    assert np.isfinite(result.metrics["test_mAP"])
    assert result.metrics["validation_mAP"] >= result.metrics["frozen_validation_mAP"] - 1e-6


def test_a_finished_result_stays_whole_until_a_later_training_in_its_folder_is_complete(tmp_path, monkeypatch):
    def files():
        found = (path for path in (tmp_path / "run").rglob("*") if path.is_file() and HIDDEN_FOLDER not in path.parts)
        return {str(path.relative_to(tmp_path)): path.read_bytes() for path in found}

    run_experiment(*build(tmp_path / "run", protocol="best", seed=1), quiet=True)
    before = files()
    with monkeypatch.context() as patch:
        patch.setattr(ContrastiveMultiLabelTrainer, "train", lambda *args, **kwargs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run_experiment(*build(tmp_path / "run", protocol="best", seed=2), quiet=True)
    assert {"run/metrics.json", "run/encoder/model.safetensors"} <= before.keys()
    assert files() == before
    run_experiment(*build(tmp_path / "run", protocol="best", seed=2), quiet=True)
    assert training_settings(tmp_path / "run")["seed"] == 2


def test_the_best_of_other_data_does_not_count_where_a_training_goes_on_with_new_ones(tmp_path, monkeypatch):
    table = pd.DataFrame([(f"a {word} {n}", word) for word in ("cat", "dog", "cow") for n in range(40)])
    table.columns = ["text", "tags"]
    settings = {"backbone": "small", "max_steps": 8, "use_cpu": True, "export": False, "disable_tqdm": True}
    with monkeypatch.context() as patch:
        patch.setattr(ContrastiveMultiLabelTrainer, "training_step", failing_at(6))
        with pytest.raises(ZeroDivisionError):
            train_classifier(table, tmp_path / "run", quiet=True, **settings)
    (kept,) = (tmp_path / "run").glob(".*/best.pt")
    best = torch.load(kept, weights_only=True)
    torch.save({**best, "stage": {**best["stage"], "score": 2.0}, "history": [(0, 2.0)]}, kept)
    went_on = {**settings, "resume_from_checkpoint": "last"}
    result = train_classifier(table[::-1], tmp_path / "run", quiet=True, **went_on)
    assert "2.000" not in result.verdict["choices"]["looks"]


@pytest.mark.parametrize(("most", "minutes"), [(3, 60.0), (1, 60.0)])
def test_the_steps_of_a_user_are_not_exceeded_by_a_time(tmp_path, most, minutes, monkeypatch):
    planned = []
    monkeypatch.setattr(Stages, "callback", lambda self, steps, *more: planned.append(steps) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_experiment(*build(tmp_path / "run", protocol="best", max_steps=most, minutes=minutes), quiet=True)
    assert planned == [most]


@pytest.mark.parametrize(
    ("encoding", "hurried", "fewest"),
    [(2.0, False, 200), (20.0, False, 40), (50.0, True, 20), (200.0, False, 0)],
    ids=["very quick machine", "quick machine", "slow machine", "too slow"],
)
def test_a_time_that_is_short_for_a_machine_goes_to_steps_before_looks(monkeypatch, encoding, hurried, fewest):
    """Three minutes for 6,838 rows; a second look and another pass over all rows would leave a slow machine none."""
    monkeypatch.setattr(anytime, "step_seconds", lambda *_: 0.5)
    monkeypatch.setattr(anytime, "training_steps", lambda *_: 428)
    plan = Anytime.__new__(Anytime)
    args = SimpleNamespace(max_steps=-1, gradient_accumulation_steps=1, world_size=1)
    plan.trainer, plan.tell = SimpleNamespace(args=args), lambda line: None
    plan.experiment = SimpleNamespace(minutes=3.0, max_train_length=None)
    plan.trainer.accelerator = SimpleNamespace(gather=lambda numbers: numbers)
    plan.trainer.args.device = "cpu"
    plan.inputs = SimpleNamespace(data={"train": range(6838), "validation": range(886)})
    plan.stages = SimpleNamespace(train=plan.inputs.data["train"], looks=lambda steps: min(2 + steps // 40, 5))
    plan.seconds, plan.start = {"all": encoding, "test": encoding / 3}, time.perf_counter() - 1.4 * encoding
    steps, alone = plan._plan()
    assert alone == hurried
    assert steps >= fewest
    looks = encoding if hurried else plan.stages.looks(steps) * plan.seconds["look"] + encoding
    assert steps == 0 or 1.4 * encoding + 0.5 * steps + looks + encoding / 3 + anytime.SAVING <= 180


@pytest.mark.parametrize(
    ("minutes", "row_seconds", "step", "labels", "expected"),
    [
        (None, 1.0, 0.5, 11, 6838),
        (10, 0.01, 0.5, 11, 6838),
        (3, 0.01, 0.5, 11, 1107),
        (3, 0.01, 0.5, 80, 1600),  # 20 per label
        (3, 0.001, 0.5, 11, 6838),
        (3, 0.1, 0.5, 11, 500),
        (2, 0.01, 2.0, 11, 6363),  # there is no time for steps, but for most rows
    ],
)
def test_where_encoding_would_take_most_of_the_time_heads_are_fitted_to_fewer_rows(
    monkeypatch, minutes, row_seconds, step, labels, expected
):
    clock = [0.0]
    monkeypatch.setattr(anytime.time, "perf_counter", lambda: clock[0])
    plan = Anytime.__new__(Anytime)
    plan.start, plan.experiment = 0.0, SimpleNamespace(minutes=minutes, feature_cache_dir=None)
    plan.step_seconds = step

    def encode(rows):
        clock[0] += 1.0 + row_seconds * len(rows)  # a loader takes a second to start

    accelerator = SimpleNamespace(gather=lambda numbers: numbers)
    plan.trainer = SimpleNamespace(extract_features=encode, accelerator=accelerator, args=SimpleNamespace(device="cpu"))
    plan.inputs = SimpleNamespace(
        data={"train": list(range(6838)), "validation": list(range(886)), "test": list(range(3259))}
    )
    plan.trainer.model = SimpleNamespace(config=SimpleNamespace(label_names=["label"] * labels))
    assert plan._rows_of_heads() == pytest.approx(expected, abs=2)
    plan.experiment.feature_cache_dir = "cache"
    assert plan._rows_of_heads() == 6838, "which a cache keeps for the next time"


def test_a_time_that_is_short_for_the_rows_still_ends_with_a_classifier_its_scores_and_its_page(
    tmp_path, monkeypatch, capsys
):
    for name, value in {"FEWEST_ROWS": 20, "ROWS_PER_LABEL": 0, "ENCODING": 0.0}.items():
        monkeypatch.setattr(anytime, name, value)
    result = run_experiment(*build(tmp_path / "run", protocol="best", minutes=30, max_steps=2, page=True))
    assert "heads are fitted to 20 of" in capsys.readouterr().out
    assert result.verdict["choices"]["heads"].startswith("fitted to 20 of ")
    assert (tmp_path / "run" / "explain.html").is_file()
    assert sum(row["train_rows"] for row in result.per_label) > 48, "the page counts all training rows"
    assert Predictor(tmp_path / "run").probabilities(["w1 w2"]).shape[0] == 1


def test_a_hurried_training_has_one_look_at_all_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(stages_module, "LOOK_ROWS", 20)
    trained = trainer(tmp_path, learning_rate=1e-2)
    stages = Stages(trained, rows(80), rows(60, seed=1))
    stages.begin("means")
    trained.add_callback(stages.callback(8, hurried=True))
    trained.train()
    assert [step for step, _ in stages.history] == [0, 8]
    assert stages.best.rows == 80, "nothing is left to be fitted"


def test_heads_on_all_rows_that_end_below_the_frozen_encoders_do_not_remain(tmp_path):
    stages = Stages(trainer(tmp_path), rows(80), rows(60, seed=1))
    frozen = stages.begin()
    wrong = dataclasses.replace(frozen.result, validation_probabilities=1 - frozen.result.validation_probabilities)
    stages.best = dataclasses.replace(frozen, step=8, score=1.0, result=wrong)  # chosen by heads on fewer rows
    assert stages.restore_best().step == 0


def test_no_time_for_training_leaves_the_frozen_classifier(tmp_path, capsys):
    result = run_experiment(*build(tmp_path / "run", protocol="best", minutes=0.001))
    assert "no time for fine-tuning" in capsys.readouterr().out
    assert result.metrics["test_mAP"] == pytest.approx(result.metrics["frozen_test_mAP"])


@pytest.mark.parametrize("setting", [{"minutes": 3.0}, {"prototype_init": "names"}, {"label_templates": ["{}"]}])
def test_settings_of_one_protocol_are_refused_by_the_other(tmp_path, setting):
    with pytest.raises(ValueError, match=f"{next(iter(setting))} means nothing with protocol='study'"):
        build(tmp_path, **setting)


@pytest.mark.parametrize("setting", [{"linear_epochs": 7}, {"evaluation": "direct"}, {"best_heads": True}])
def test_settings_of_the_study_are_refused_by_the_other_protocol(tmp_path, setting):
    with pytest.raises(ValueError, match=f"{next(iter(setting))} means nothing with protocol='best'"):
        build(tmp_path, protocol="best", **setting)


def test_descriptions_of_labels_are_what_the_encoder_reads_of_them(tmp_path, monkeypatch):
    seen = []
    encode = Anytime._encode_names
    monkeypatch.setattr(Anytime, "_encode_names", lambda self, texts: seen.extend(texts) or encode(self, texts))
    words = {"bread": "loaves and rolls", "of another table": "may be there"}
    described = {"label_descriptions": words, "label_templates": ["{}"]}
    run_experiment(*build(tmp_path / "a", protocol="best", max_steps=1, **described), quiet=True)
    assert "loaves and rolls" in seen
    assert "bread" not in seen
    assert "wine" in seen  # a label without a description is called by its name
    with pytest.raises(ValueError, match=r"label_descriptions: There is no label 'bred'\. .*: bread"):
        run_experiment(*build(tmp_path / "b", protocol="best", label_descriptions={"bred": "x"}), quiet=True)


def test_a_time_and_a_number_of_epochs_are_one_too_many(tmp_path):
    with pytest.raises(ValueError, match="Give one of them"):
        build(tmp_path, protocol="best", minutes=3.0, num_train_epochs=2.0)


def test_intervals_hold_their_score_also_with_labels_that_few_rows_carry():
    truth = np.eye(50, dtype=bool)[np.arange(200) % 50]
    perfect = np.where(truth, 0.9, 0.1).astype(np.float32)
    scores = {"frozen": 1 - perfect, "trained": perfect}
    table = side_by_side(truth, scores, dict.fromkeys(scores, DecisionRule()), [4] * 50)
    for metrics in table.values():
        for value, low, high in metrics.values():
            assert low - 1e-9 <= value <= high + 1e-9
    assert table["trained"]["macro_f1"] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("loss", ["reg", "reg+two_way"])
def test_a_training_that_was_interrupted_ends_with_the_numbers_of_one_that_was_not(loss, tmp_path, monkeypatch):
    settings = {"protocol": "best", "thresholds": "macro_f1", "prototype_init": "names", "seed": 3, "loss": loss}
    whole = run_experiment(*build(tmp_path / "whole", **settings), quiet=True)
    with monkeypatch.context() as patch:
        patch.setattr(ContrastiveMultiLabelTrainer, "training_step", failing_at(4))
        with pytest.raises(ZeroDivisionError):
            run_experiment(*build(tmp_path / "run", **settings), quiet=True)
    resumed = run_experiment(*build(tmp_path / "run", **settings), quiet=True)
    judged = {name for name in whole.metrics if "test_" in name or "validation_" in name}
    assert {name: resumed.metrics[name] for name in judged} == pytest.approx(
        {name: whole.metrics[name] for name in judged}, abs=1e-6
    )


def test_interrupted_before_its_first_checkpoint_it_keeps_the_best_so_far_until_something_is_better(
    tmp_path, monkeypatch
):
    settings = {"protocol": "best", "thresholds": "macro_f1", "save_strategy": "no"}
    fit, step, calls = Stages._fit, ContrastiveMultiLabelTrainer.training_step, []
    monkeypatch.setattr(  # the later the better
        Stages, "_fit", lambda self, at, *given: dataclasses.replace(fit(self, at, *given), score=float(at))
    )

    def interrupted(**more):
        """The classifier that a training leaves which fails at its last step or, the next time, at its first."""
        with monkeypatch.context() as patch:
            fatal = [8, 1, 1][len(calls)]
            calls.append([])
            counted = calls[-1]
            patch.setattr(
                ContrastiveMultiLabelTrainer,
                "training_step",
                lambda *given: step(*given) if not counted.append(1) and len(counted) < fatal else 1 / 0,
            )
            with pytest.raises(ZeroDivisionError):
                run_experiment(*build(tmp_path / "run", max_steps=8, **settings, **more), quiet=True)
        return (tmp_path / "run" / "classifier" / "model.safetensors").read_bytes()

    trained = interrupted()
    assert training_settings(tmp_path / "run")["max_steps"] == 8, "for `evaluate`, though there is no result yet"
    assert interrupted() == trained
    assert interrupted(overwrite=True) != trained, "stage 0 of a training that begins anew"
    result = run_experiment(*build(tmp_path / "run", max_steps=8, **settings), quiet=True)
    assert result.verdict["choices"]["kept"] == "step 8"


def test_a_training_that_fails_before_its_first_classifier_is_not_taken_for_that_of_the_one_before(
    tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(Anytime, "train", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run_experiment(*build(tmp_path / "run", protocol="best", seed=1), quiet=True)
    monkeypatch.setattr(Anytime, "begin", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_experiment(*build(tmp_path / "run", protocol="best", seed=2, overwrite=True), quiet=True)
    assert training_settings(tmp_path / "run")["seed"] == 1


def test_a_time_that_is_up_ends_the_training_with_a_look_and_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(Anytime, "_plan", lambda self: self.seconds.update(look=0.0) or (40, False))
    monkeypatch.setattr(Anytime, "_left", lambda self: -1.0 if self.trainer.state.global_step >= 3 else 1e6)
    told = []
    init = Anytime.__init__

    def listening(self, *given, **named):
        init(self, *given, **named)
        self.tell = told.append

    monkeypatch.setattr(Anytime, "__init__", listening)
    run_experiment(*build(tmp_path / "run", protocol="best", max_steps=40, minutes=60.0), quiet=True)
    assert "Time is up after 3 of 40 steps." in told


def test_a_look_that_is_met_again_is_told_once(tmp_path):
    stages = Stages(trainer(tmp_path / "a"), rows(80), rows(60, seed=1))
    stages.begin()
    stages.save(tmp_path / "best.pt")
    again = Stages(trainer(tmp_path / "b"), rows(80), rows(60, seed=1))
    again.load(tmp_path / "best.pt")
    again.begin()
    assert [step for step, _ in again.history] == [0]


@pytest.mark.parametrize(
    ("scores", "had_time", "advised"),
    [
        ((0.5, 0.6), True, True),
        ((0.6, 0.5), True, False),
        ((0.6, 0.6), True, False),
        ((0.5,), True, False),  # stopped by a person before the first look
        ((0.5,), False, True),
    ],
)
def test_more_time_is_advised_where_there_was_none_or_the_last_look_was_better_than_all_before(
    scores, had_time, advised
):
    stages = SimpleNamespace(history=list(enumerate(scores)))
    assert any("More time" in tip for tip in verdict._advice(stages, [], had_time=had_time)) == advised


@pytest.mark.parametrize(
    ("prior", "losses", "advised"),
    [("zero", {"zero": [1.0], "{}": [2.0]}, True), ("{}", {}, False), ("zero", {}, False)],
)
def test_words_for_labels_are_advised_where_their_names_were_tried_in_vain(prior, losses, advised):
    stages, rare = SimpleNamespace(history=[(0, 0.5)]), [{"label": "cs.LG", "train_rows": 2, "f1": 0.0}]
    heads = SimpleNamespace(prior=prior, loss=losses)
    assert any("label_descriptions" in tip for tip in verdict._advice(stages, rare, heads)) == advised
    assert not any("label_descriptions" in tip for tip in verdict._advice(stages, rare))


@pytest.mark.parametrize("rate", [1e-3, 10.0], ids=["training that helps", "training that wrecks"])
def test_points_between_frozen_and_trained_weights_remain_only_if_they_are_better(tmp_path, rate):
    trained = trainer(tmp_path, learning_rate=rate, max_grad_norm=0.0)
    looked_at = []
    stages = Stages(trained, rows(80), rows(60, seed=1))
    stages.begin("means")
    frozen = {name: weight.clone() for name, weight in trained.model.state_dict().items()}
    trained.add_callback(stages.callback(8))
    trained.train()
    before, weights = stages.best, dict(stages._weights)
    if before.step == 0:
        weights = {name: weight.clone() for name, weight in trained.model.state_dict().items()}
    fit = stages._fit
    stages._fit = lambda *given: looked_at.append(fit(*given)) or looked_at[-1]
    stages.blend()
    assert [stage.share for stage in looked_at] in ([BLENDS[0]], list(BLENDS))
    best = stages.restore_best()
    assert best.score == max(stage.score for stage in [before, *looked_at])
    share = best.share if best is not before or before.step else 0.0
    found = trained.model.state_dict()
    for name, weight in weights.items():
        if name.startswith("backbone."):
            torch.testing.assert_close(found[name], frozen[name] + share * (weight - frozen[name]))
        elif share:
            torch.testing.assert_close(found[name], weight)
    validation = trained.features_and_labels(rows(60, seed=1))
    probabilities = best.result.predict_proba(validation[0])
    np.testing.assert_allclose(probabilities, best.result.validation_probabilities, atol=1e-5)


def test_looks_take_a_part_of_the_time_of_a_training(tmp_path):
    few, many = (Stages(trainer(tmp_path), rows(count), rows(20, seed=1)) for count in (30, 3000))
    assert [few.looks(steps) for steps in (1, 100)] == [2, 5]  # of 50 rows, in steps of 16 rows and three passes
    assert many.looks(100) == 2
