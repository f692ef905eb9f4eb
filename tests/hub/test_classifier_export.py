"""Classifiers as plain models of transformers and timm, where those compute the same."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    AlbertConfig,
    AutoModelForSequenceClassification,
    CamembertConfig,
    DistilBertConfig,
    ElectraConfig,
    XLMRobertaConfig,
)

from hf_mlcl import MLCLConfig, MLCLForImageClassification, MLCLForSequenceClassification, MLCLModel
from hf_mlcl.hub import export_classifier
from hf_mlcl.metrics import DecisionRule
from hub.cases import NAMES, labelled
from models.test_modeling import TEXT_CONFIGS

SMALL = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
EXACT = {
    **{name: TEXT_CONFIGS[name] for name in ("bert", "roberta", "mpnet", "deberta", "distilbert")},
    "albert": AlbertConfig(**SMALL, embedding_size=16),
    "camembert": CamembertConfig(**SMALL),
    "electra": ElectraConfig(**SMALL, embedding_size=16),
    "xlm-roberta": XLMRobertaConfig(**SMALL),
}


def classifier(config, heads=1, pooling="first", normalize=False):
    torch.manual_seed(0)
    vectors = {"pooling": pooling, "normalize_features": normalize}
    encoder = MLCLModel(MLCLConfig(backbone_config=config, **vectors, **labelled()))
    size = encoder.projection.hidden.in_features
    weight, bias = 3 * torch.randn(heads, 3, size), torch.randn(heads, 3)
    return MLCLForSequenceClassification.from_encoder(encoder, weight, bias)


@pytest.mark.parametrize("name", EXACT)
def test_heads_with_tanh_gelu_or_relu_hold_a_linear_layer_to_the_last_bits(name, tmp_path):
    ours = classifier(EXACT[name])
    export_classifier(ours, tmp_path)
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert type(theirs).__module__.startswith("transformers.models.")
    ids = torch.randint(5, 60, (16, 11), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(11) < torch.randint(3, 12, (16, 1), generator=torch.Generator().manual_seed(2))).long()
    with torch.no_grad():
        expected = ours(input_ids=ids, attention_mask=mask).logits
        found = theirs(input_ids=ids, attention_mask=mask).logits
    assert expected.abs().max() > 3, "far from where a sigmoid forgives anything"
    assert (found - expected).abs().max() < 1e-5
    assert theirs.config.id2label == dict(enumerate(NAMES))


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float16, 2**-11), (torch.bfloat16, 2**-8)], ids=str)
@pytest.mark.parametrize("name", ["roberta", "electra", "distilbert"])
def test_heads_in_half_precision_lose_no_more_than_a_linear_layer_does(name, dtype, rounding, tmp_path):
    """One of tanh, GELU and ReLU. Weights are of the size that contributes as much to a logit as float16 can hold."""
    ours = classifier(EXACT[name])
    with torch.no_grad():
        ours.heads.weight *= 4
    export_classifier(ours, tmp_path)
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path, dtype=dtype).eval()
    ids = torch.randint(5, 60, (16, 11), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        ours.backbone.to(dtype)
        features = ours.features_of({"input_ids": ids, "attention_mask": torch.ones_like(ids)}).float()
        expected, found = ours.heads(features), theirs(input_ids=ids).logits.float()
        terms = features.abs() @ ours.heads.weight[0].T.abs()
    assert expected.abs().max() > 10
    assert (found - expected).abs().max() < 2 * rounding * terms.max()


def test_calibration_goes_along(tmp_path):
    ours = classifier(EXACT["bert"])
    ours.calibrate([0.2, 0.5, 0.7], temperature=2.0)
    export_classifier(ours, tmp_path)
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    ids = torch.randint(5, 60, (4, 7))
    with torch.no_grad():
        assert torch.allclose(theirs(ids).logits, ours(ids).logits, atol=1e-5)
    assert theirs.config.thresholds == ours.config.thresholds


def test_a_classifier_that_gives_one_label_per_row_does_so_once_exported(tmp_path):
    ours = classifier(EXACT["bert"])
    ours.calibrate(DecisionRule(single_label=True))
    export_classifier(ours, tmp_path)
    assert DecisionRule.of(AutoModelForSequenceClassification.from_pretrained(tmp_path).config).single_label


def unit_images():
    encoder = MLCLModel.from_backbone("test_resnet", NAMES, pretrained=False, normalize_features="auto")
    size = encoder.projection.hidden.in_features
    return MLCLForImageClassification.from_encoder(encoder, torch.randn(1, 3, size), torch.randn(1, 3))


narrow = DistilBertConfig(vocab_size=60, dim=4, n_layers=1, n_heads=2, hidden_dim=8)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: classifier(EXACT["bert"], heads=3), "averages the probabilities of 3 linear heads"),
        (lambda: classifier(EXACT["bert"], pooling="mean"), r"looks at \(pooling='mean'\)"),
        (lambda: classifier(EXACT["bert"], normalize=True), "scaled to length 1, and no model of transformers"),
        (lambda: unit_images(), "scaled to length 1.*--normalize_features no"),
        (lambda: classifier(narrow), "DistilBertForSequenceClassification cannot hold"),
        (lambda: classifier(TEXT_CONFIGS["modernbert"]), "head of ModernBertForSequenceClassification"),
    ],
    ids=["heads", "mean", "length one", "images of length one", "more labels than ReLU has room for", "norm"],
)
def test_what_cannot_be_exact_is_refused_with_its_reason_and_the_way_out(make, reason, tmp_path):
    with pytest.raises(ValueError, match=reason) as error:
        export_classifier(make(), tmp_path / "model", custom_code=False)
    assert "custom_code=True" in str(error.value)
    assert not (tmp_path / "model").exists()


def test_the_classifier_of_a_loss_on_logits_is_one_layer_and_can_be_exported(tmp_path):
    torch.manual_seed(0)
    model = MLCLModel.from_backbone("resnet10t", NAMES, pretrained=False, classifier=True).eval()
    export_classifier(model, tmp_path)
    import timm

    theirs = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    pixels = torch.randn(2, 3, 48, 48)
    with torch.no_grad():
        assert torch.allclose(theirs(pixels), model(pixel_values=pixels).logits, atol=1e-5)


def test_wrong_input_is_named(tmp_path):
    with pytest.raises(ValueError, match="has no classifier"):
        export_classifier(MLCLModel.from_features(4, NAMES), tmp_path)
    with pytest.raises(ValueError, match="got Linear"):
        export_classifier(torch.nn.Linear(2, 2), tmp_path)
    with pytest.raises(ValueError, match="precomputed features has no counterpart"):
        export_classifier(MLCLModel.from_features(4, NAMES, classifier=True), tmp_path)
    encoder = MLCLModel.from_backbone("resnet10t", NAMES, pretrained=False)
    three = MLCLForImageClassification.from_encoder(encoder, torch.zeros(3, 3, 512), torch.zeros(3, 3))
    with pytest.raises(ValueError, match="3 linear heads"):
        export_classifier(three, tmp_path, custom_code=False)
