"""Stages of a training: usable from the first minute, never below where it began."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from experiments.toy import build
from hf_mlcl import ContrastiveMultiLabelTrainer, ContrastiveTrainingArguments, MLCLModel
from hf_mlcl.experiments.prediction import Predictor
from hf_mlcl.experiments.running import run_experiment
from hf_mlcl.experiments.stages import Stages, ranking_score, step_seconds
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
    np.testing.assert_allclose(best.probabilities(validation[0]), best.validation_probabilities, atol=1e-5)
    if best.step == 0:
        torch.testing.assert_close(trained.model.backbone.state_dict(), before)


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
    torch.testing.assert_close(trained.model.classifier.weight.data, stage.heads.weight)
    torch.testing.assert_close(trained.model.classifier.bias.data, stage.heads.bias)
    with torch.no_grad():
        torch.testing.assert_close(trained.model.prototypes.weight.data, trained.model.projection(names))


def test_thresholds_of_stage_0_come_from_training_rows_as_well(tmp_path):
    """With two validation rows nothing could be cross-fitted: the 80 training rows, scored unseen, can."""
    stages = Stages(trainer(tmp_path), rows(80), rows(2, seed=1))
    assert stages.begin().thresholds.scores.keys() == {"half", "global", "label"}
    assert Stages(trainer(tmp_path), rows(80), rows(20, seed=1), objective=None).begin().thresholds is None


def test_heads_of_a_look_at_some_rows_are_fitted_to_all_in_the_end(tmp_path):
    trained = trainer(tmp_path)
    stages = Stages(trained, rows(80), rows(60, seed=1))
    assert stages.look(rows=20).rows == 20
    assert stages.restore_best().rows == 80


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
    assert len(predicted.thresholds) == len(predicted.label_names)


def test_no_time_for_training_leaves_the_frozen_classifier(tmp_path, capsys):
    result = run_experiment(*build(tmp_path / "run", protocol="best", minutes=0.001))
    assert "no time for fine-tuning" in capsys.readouterr().out
    assert result.metrics["test_mAP"] == pytest.approx(result.metrics["frozen_test_mAP"])


@pytest.mark.parametrize("setting", [{"minutes": 3.0}, {"prototype_init": "names"}, {"label_templates": ["{}"]}])
def test_settings_of_one_protocol_are_refused_by_the_other(tmp_path, setting):
    with pytest.raises(ValueError, match=f"{next(iter(setting))} belongs to protocol='best'"):
        build(tmp_path, **setting)
