"""Classifiers: thresholds and temperature in the configuration, and what they do to probabilities and decisions."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from huggingface_hub.errors import StrictDataclassClassValidationError
from scipy.special import expit, logit
from transformers import AutoModelForSequenceClassification

from hf_mlcl import MLCLConfig, MLCLForSequenceClassification
from hf_mlcl.evaluation import fit_temperature, tune_thresholds
from hf_mlcl.metrics import DecisionRule
from training.tiny import text_model

IDS = torch.randint(1, 50, (9, 6), generator=torch.Generator().manual_seed(0))


def classifier(names=("sport", "music", "art")):
    encoder = text_model(num_labels=len(names))
    encoder.config.id2label = dict(enumerate(names))
    random = torch.Generator().manual_seed(1)
    heads = torch.randn(3, len(names), 16, generator=random), torch.randn(3, len(names), generator=random)
    return MLCLForSequenceClassification.from_encoder(encoder, *heads)


@torch.no_grad()
def probabilities(model):
    return model(input_ids=IDS).logits.sigmoid().numpy()


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_logits_are_divided_by_the_temperature(temperature):
    model = classifier()
    raw = probabilities(model)
    model.calibrate(temperature=temperature)
    np.testing.assert_allclose(probabilities(model), expit(logit(raw) / temperature), atol=1e-6)
    np.testing.assert_allclose(
        probabilities(model), DecisionRule(temperature=temperature).scaled(raw).astype("float32"), atol=1e-6
    )


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_temperature_changes_no_decision(temperature):
    model, thresholds = classifier(), [0.2, 0.55, 0.9]
    decisions = DecisionRule(thresholds).decide(probabilities(model))
    model.calibrate(thresholds, temperature)
    np.testing.assert_array_equal(DecisionRule.of(model.config).decide(probabilities(model)), decisions)
    assert decisions.any()
    assert not decisions.all()


def test_what_was_tuned_on_validation_goes_in_as_it_is_and_survives_saving(tmp_path):
    model = classifier()
    p, labels = probabilities(model), np.random.default_rng(0).random((9, 3)) < 0.5
    thresholds, temperature = tune_thresholds(labels, p), fit_temperature(labels, p)
    model.calibrate(thresholds, temperature)
    model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["thresholds"] == pytest.approx(expit(logit(thresholds.thresholds) / temperature).tolist())
    assert saved["logit_temperature"] == temperature
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert loaded.config.thresholds == model.config.thresholds
    np.testing.assert_allclose(probabilities(loaded), probabilities(model), atol=1e-6)


def test_a_single_label_classifier_has_the_cross_entropy_of_class_ids_and_of_one_hot_rows():
    model, ids = classifier(), torch.arange(9) % 3
    model.config.problem_type = "single_label_classification"
    for labels in (ids, torch.nn.functional.one_hot(ids).float()):
        output = model(input_ids=IDS, labels=labels)
        chosen = output.logits.softmax(1)[torch.arange(9), ids]
        assert output.loss.item() == pytest.approx(-chosen.log().mean().item(), rel=1e-5)
    output.loss.backward()
    assert model.heads.weight.grad.abs().sum() > 0
    with pytest.raises(ValueError, match="labels must be class ids below the number of logits, 3; got 8"):
        model(input_ids=IDS, labels=torch.arange(9))


def test_the_largest_of_large_logits_stays_the_most_probable_of_a_single_label_classifier():
    model = classifier()
    model.config.problem_type = "single_label_classification"
    with torch.no_grad():
        model.heads.weight.zero_()
        model.heads.bias[:] = torch.tensor([90.0, 100.0, 95.0])
    assert model(input_ids=IDS).logits.softmax(1).argmax(1).tolist() == [1] * 9


def test_a_multi_label_classifier_has_the_binary_cross_entropy_of_multi_hot_rows():
    model, labels = classifier(), torch.rand(9, 3) < 0.4
    output = model(input_ids=IDS, labels=labels)
    right = torch.where(labels, output.logits.sigmoid(), 1 - output.logits.sigmoid())
    assert output.loss.item() == pytest.approx(-right.log().mean().item(), rel=1e-5)


def test_a_classifier_of_an_encoder_in_half_precision_sees_its_features_and_keeps_exact_heads_once_saved(tmp_path):
    encoder = text_model().bfloat16().eval()
    weight, bias = torch.randn(3, 4, 16), torch.randn(3, 4)
    model = MLCLForSequenceClassification.from_encoder(encoder, weight, bias)
    features = encoder(input_ids=IDS).features.float()
    expected = (torch.einsum("nf,hlf->hnl", features, weight) + bias.unsqueeze(1)).sigmoid().mean(0)
    np.testing.assert_allclose(probabilities(model), expected.detach(), atol=1e-6)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    np.testing.assert_allclose(probabilities(loaded), probabilities(model), atol=1e-6)


def test_a_larger_vocabulary_works_at_once_and_once_saved(tmp_path):
    model = classifier()
    before = probabilities(model)
    model.resize_token_embeddings(60)
    np.testing.assert_allclose(probabilities(model), before, atol=1e-6)
    assert model.get_input_embeddings().num_embeddings == 60
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert loaded.config.backbone_config.vocab_size == 60
    new = torch.tensor([[1, 59]])
    torch.testing.assert_close(loaded(input_ids=new).logits, model(input_ids=new).logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        (0.3, [0.3] * 3),
        ([0.1, 0.2, 1.0], [0.1, 0.2, 1.0]),
        (np.array([0.1, 0.2, 0.0]), [0.1, 0.2, 0.0]),
        ({"art": 0.9}, [0.5, 0.5, 0.9]),
    ],
)
def test_thresholds_are_one_for_all_one_each_or_some_by_name(given, expected):
    model = classifier()
    model.calibrate([0.7] * 3, 2.0)
    model.calibrate(given)  # a second call replaces the first
    assert model.config.logit_temperature == 1.0
    if expected is None:
        assert model.config.thresholds is None
    else:
        assert model.config.thresholds == pytest.approx(expected)


@pytest.mark.parametrize(
    ("thresholds", "temperature", "message"),
    [
        ([0.5, 0.5], 1.0, "one number for each of the 3 labels, but has 2"),
        ([0.5, 1.5, 0.5], 1.0, "between 0 and 1, but one is 1.5"),
        (float("nan"), 1.0, "between 0 and 1, but one is nan"),
        ({"cinema": 0.5}, 1.0, "thresholds name 'cinema', which is no label of this model: it has sport, music, art"),
        (None, 0.0, "temperature.* must be a positive number, but is 0.0"),
        (None, float("inf"), "temperature.* must be a positive number"),
    ],
)
def test_wrong_thresholds_are_refused_and_change_nothing(thresholds, temperature, message):
    model = classifier()
    model.calibrate([0.1, 0.2, 0.3], 2.0)
    before = model.config.to_dict()
    with pytest.raises((ValueError, StrictDataclassClassValidationError), match=message):
        model.calibrate(thresholds, temperature)
    assert model.config.to_dict() == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"thresholds": [0.5]},
        {"thresholds": [0.5, 7.0]},
        {"thresholds": 0.5},
        {"logit_temperature": -1.0},
        {"single_label": "yes"},
    ],
)
def test_a_configuration_with_wrong_thresholds_is_neither_made_nor_saved(wrong, tmp_path):
    with pytest.raises(StrictDataclassClassValidationError):
        MLCLConfig(num_labels=2, **wrong)
    config = MLCLConfig(num_labels=2)
    for name, value in wrong.items():
        setattr(config, name, value)
    with pytest.raises(StrictDataclassClassValidationError):
        config.save_pretrained(tmp_path)
