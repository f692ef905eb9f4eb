"""Experiments with ``lora_rank``: from the command line to a classifier that needs no PEFT."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from transformers import AutoModel

from experiments import toy
from experiments.tiny import text_backbone
from hf_mlcl import MLCLForSequenceClassification, MLCLModel
from hf_mlcl.experiments import build_experiment, study_recipe
from hf_mlcl.experiments.prediction import Predictor
from hf_mlcl.inference import Encoder
from hf_mlcl.models.adapters import has_adapter
from hf_mlcl.models.pipelines import probabilities_of

pytest.importorskip("peft", reason="PEFT is an extra: pip install 'hf-mlcl[peft]'")
TEXTS = ["a training", "another text about nothing", "training training"]


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    return str(text_backbone(tmp_path_factory.mktemp("backbone") / "encoder"))


@pytest.mark.parametrize(
    "settings",
    [{"loss": "reg+zlpr", "protocol": "best", "normalize_features": "yes"}, {"loss": "reg"}],
    ids=["best, of length 1", "study"],
)
def test_an_adapter_is_trained_evaluated_and_saved_and_the_classifier_needs_no_peft(
    backbone, tmp_path, monkeypatch, settings
):
    result = toy.run(tmp_path / "run", backbone=backbone, lora_rank=4, export=True, learning_rate=0.05, **settings)
    assert result.settings["lora_rank"] == 4
    folder = tmp_path / "run"
    encoder = MLCLModel.from_pretrained(folder / "encoder")
    assert has_adapter(encoder)
    assert not (folder / "encoder" / "model.safetensors").exists()
    checkpoints = list(folder.glob("checkpoint-*"))
    assert all((one / "heads.safetensors").exists() for one in checkpoints)
    assert bool(checkpoints) == ("protocol" not in settings)
    features = Encoder.from_pretrained(folder / "encoder").features(TEXTS)
    lengths = features.norm(dim=1)
    assert torch.allclose(lengths, torch.ones_like(lengths), atol=1e-5) == ("normalize_features" in settings)
    monkeypatch.setitem(sys.modules, "peft", None)  # as where it is not installed
    classifier = MLCLForSequenceClassification.from_pretrained(folder / "classifier")
    with torch.no_grad():
        expected = probabilities_of(classifier.heads(features) / classifier.config.logit_temperature, classifier.config)
    np.testing.assert_allclose(Predictor(folder, device="cpu").probabilities(TEXTS), expected, atol=1e-5)
    exported = AutoModel.from_pretrained(folder / "backbone")
    assert not any("lora" in name for name, _ in exported.named_parameters())


def test_the_learning_rate_of_an_adapter_is_larger_unless_one_is_given(backbone, tmp_path):
    recipe, common = study_recipe("toy_text"), {"backbone": backbone, "output_dir": str(tmp_path), "use_cpu": True}
    usual = build_experiment(recipe, common)[1]
    adapted = build_experiment(recipe, {**common, "lora_rank": 8})[1]
    assert adapted.learning_rate == pytest.approx(10 * usual.learning_rate)
    assert adapted.head_learning_rate == pytest.approx(usual.learning_rate)
    given = build_experiment(recipe, {**common, "lora_rank": 8, "learning_rate": 3e-4})[1]
    assert (given.learning_rate, given.head_learning_rate) == (3e-4, usual.head_learning_rate)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"backbone": "small"}, "lora_rank trains an adapter of a pre-trained backbone"),
        ({"backbone": "resnet18", "backbone_weights": "some.safetensors"}, "lora_rank trains an adapter"),
        ({"pretrained": False}, "lora_rank trains an adapter"),
        ({"lora_rank": 0}, "lora_rank must be at least 1; got 0"),
    ],
)
def test_what_cannot_have_an_adapter_is_refused_before_anything_is_loaded(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        build_experiment(
            study_recipe("toy_text"), {"lora_rank": 4, "output_dir": str(tmp_path), "use_cpu": True, **settings}
        )
