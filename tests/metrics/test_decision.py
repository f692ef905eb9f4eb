"""One rule decides everywhere: metrics, a saved classifier's `Predictor`, and its pipelines."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.special import expit, logit
from transformers import BertConfig, BertForSequenceClassification, pipeline

from hf_mlcl import MLCLConfig, MLCLForSequenceClassification, MLCLModel
from hf_mlcl.data import word_tokenizer
from hf_mlcl.experiments.prediction import Predictor
from hf_mlcl.metrics import DecisionRule, decide, multilabel_metrics

NAMES = ["red", "green", "blue"]
RULES = {
    "one half": DecisionRule(),
    "one for all": DecisionRule(0.45),
    "one per label": DecisionRule([0.4, 0.55, 0.5]),
    "single label": DecisionRule(single_label=True),
    "with a temperature": DecisionRule([0.45, 0.5, 0.52], temperature=2.0),
}
TEXTS = [f"{a} {b}" for a in NAMES for b in NAMES]


@pytest.fixture(scope="module")
def classifier():
    torch.manual_seed(0)
    backbone = BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    encoder = MLCLModel(MLCLConfig(backbone_config=backbone, id2label=dict(enumerate(NAMES))))
    model = MLCLForSequenceClassification.from_encoder(encoder, torch.randn(1, 3, 16) / 4, torch.zeros(1, 3))
    return model, word_tokenizer(TEXTS)


def given(labels):
    return [[name in {found["label"] for found in row} for name in NAMES] for row in labels]


@pytest.mark.parametrize("name", RULES)
def test_metrics_predictor_and_pipeline_decide_alike(name, classifier, tmp_path):
    (model, tokenizer), rule = classifier, RULES[name]
    model.calibrate(rule)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    predictor = Predictor(tmp_path, device="cpu")
    assert DecisionRule.of(model.config).temperature == predictor.rule.temperature == rule.temperature
    probabilities = predictor.probabilities(TEXTS)
    expected = probabilities >= np.float32(rule.thresholds)
    if rule.single_label:
        expected = probabilities == probabilities.max(axis=1, keepdims=True)
    assert 0 < expected.sum() < expected.size
    for decided in (rule.decide(probabilities), decide(probabilities, rule), predictor.rule.decide(probabilities)):
        np.testing.assert_array_equal(decided, expected)
    classify = pipeline("multilabel-text-classification", model=str(tmp_path), device="cpu")
    np.testing.assert_array_equal(given(classify(TEXTS)), expected)
    assert multilabel_metrics(expected, probabilities, rule)["subset_accuracy"] == 1


def test_a_classifier_of_another_kind_decides_by_what_its_configuration_has(tmp_path):
    torch.manual_seed(0)
    tokenizer = word_tokenizer(TEXTS)
    config = BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_labels=3)
    config.problem_type, config.id2label = "multi_label_classification", dict(enumerate(NAMES))
    config.thresholds = [0.0, 1.0, 0.0]
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    predictor = Predictor(tmp_path, device="cpu")
    expected = [[True, False, True]] * len(TEXTS)
    assert predictor.rule.decide(predictor.probabilities(TEXTS)).tolist() == expected
    assert given(pipeline("multilabel-text-classification", model=str(tmp_path), device="cpu")(TEXTS)) == expected


def test_configurations_of_before_keep_their_rule(classifier, tmp_path):
    model, _ = classifier
    model.config.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    for entries, expected in (
        ({}, DecisionRule()),
        ({"thresholds": [0.1, 0.2, 0.3], "logit_temperature": 2.0}, DecisionRule([0.1, 0.2, 0.3], temperature=2.0)),
        ({"single_label": True}, DecisionRule(single_label=True)),
    ):
        kept = {k: v for k, v in saved.items() if k not in ("thresholds", "logit_temperature", "single_label")}
        (tmp_path / "config.json").write_text(json.dumps({**kept, **entries}))
        assert DecisionRule.of(MLCLConfig.from_pretrained(tmp_path)) == expected


def test_the_kind_of_problem_says_that_rows_have_one_label():
    config = SimpleNamespace(problem_type="single_label_classification", num_labels=2)
    assert DecisionRule.of(config) == DecisionRule(single_label=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scaled_probabilities_are_those_of_divided_logits_also_at_the_ends(dtype):
    p = np.array([[0.0, 1e-6, 0.3, 0.5, 0.99, 1.0]], dtype=dtype)
    found = DecisionRule(temperature=3.0).scaled(p)
    np.testing.assert_allclose(found, expit(logit(p) / 3), rtol=1e-5)
    np.testing.assert_array_equal(found[0, [0, -1]], [0, 1])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"thresholds": [0.5, 1.5]}, "thresholds must be probabilities between 0 and 1, but one is 1.5"),
        ({"thresholds": float("nan")}, "thresholds must be probabilities between 0 and 1, but one is nan"),
        ({"thresholds": "half"}, "thresholds must be one number or a list of one per label, but are 'half'"),
        ({"thresholds": [True, False]}, "thresholds must be one number or a list of one per label"),
        ({"thresholds": [[0.5]]}, "thresholds must be one number or a list of one per label"),
        ({"thresholds": [0.5, None]}, "thresholds must be one number or a list of one per label"),
        ({"single_label": "yes"}, "single_label must be True or False, but is 'yes'"),
        ({"temperature": 0.0}, r"temperature .* must be a positive number, but is 0.0"),
        ({"temperature": float("inf")}, r"temperature .* must be a positive number, but is inf"),
        ({"temperature": True}, r"temperature .* must be a positive number, but is True"),
    ],
)
def test_rules_that_cannot_be_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        DecisionRule(**wrong)


def test_a_rule_for_other_labels_is_refused():
    with pytest.raises(ValueError, match="one number for each of the 3 labels, but has 2"):
        DecisionRule([0.5, 0.5]).decide([[0.1, 0.2, 0.3]])
