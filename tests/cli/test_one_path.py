"""The data's way through an experiment is a line: nothing is encoded, fitted or scored twice."""

from __future__ import annotations

import runpy
import sys
from collections import Counter

import numpy as np
import pytest
import torch

from cli.conftest import SMALL
from experiments.toy import SETTINGS, build
from hf_mlcl import ContrastiveMultiLabelTrainer
from hf_mlcl.evaluation import linear
from hf_mlcl.experiments import run_experiment
from hf_mlcl.experiments.anytime import Anytime


@pytest.fixture
def calls(monkeypatch):
    """What was encoded by which weights, and what was scored."""
    counted = Counter()
    encode, score, names = ContrastiveMultiLabelTrainer.features_and_labels, linear._scores, Anytime._encode_names

    def weights(trainer):
        return float(sum(parameter.detach().double().sum() for parameter in trainer.model.backbone.parameters()))

    def encoded(self, dataset, augmented_pass=None):
        features, labels = encode(self, dataset, augmented_pass)
        counted["encoded", weights(self), features.tobytes()] += 1
        return features, labels

    def scored(split, labels, probabilities, single):
        counted["scored", split, np.asarray(probabilities).tobytes()] += 1
        return score(split, labels, probabilities, single)

    def named(self, texts, *args, **kwargs):
        found = names(self, texts, *args, **kwargs)
        counted["names", torch.as_tensor(found).numpy().tobytes()] += 1
        return found

    monkeypatch.setattr(ContrastiveMultiLabelTrainer, "features_and_labels", encoded)
    monkeypatch.setattr(linear, "_scores", scored)
    monkeypatch.setattr(Anytime, "_encode_names", named)
    return counted


def kinds(calls):
    return Counter(kind for kind, *_ in calls.elements())


def test_a_recipe_encodes_each_split_once_and_scores_validation_and_test_once(calls, tmp_path, monkeypatch):
    settings = {**SETTINGS, "output_dir": tmp_path / "run", "linear_learning_rates": 0.1, "linear_weight_decays": 0.01}
    argv = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    monkeypatch.setattr(sys, "argv", ["recipe.py", *argv])
    runpy.run_module("hf_mlcl.recipes.toy_text_reg", run_name="__main__")
    assert kinds(calls) == {"encoded": 3, "scored": 2}
    assert max(calls.values()) == 1


def test_a_joined_loss_has_two_classifiers_on_the_same_features(calls, tmp_path):
    run_experiment(*build(tmp_path / "run", loss="reg+zlpr"), quiet=True)
    assert kinds(calls) == {"encoded": 3, "scored": 4}


def test_a_loss_on_logits_needs_no_features_of_training_rows(calls, tmp_path):
    run_experiment(*build(tmp_path / "run", loss="zlpr"), quiet=True)
    assert kinds(calls) == {"encoded": 2, "scored": 2}


@pytest.mark.parametrize("minutes", [None, 0.001], ids=["fine-tuned", "frozen"])
def test_train_encodes_each_split_once_by_each_weights(calls, hf_mlcl, reviews, tmp_path, minutes):
    time = [] if minutes is None else ["--minutes", minutes]
    quick = SMALL if minutes is None else [word for word in SMALL if word not in ("--epochs", "1")]
    hf_mlcl("train", reviews, "--output_dir", tmp_path / "run", "--export", "False", *quick, *time)
    repeated = {key[:2]: count for key, count in calls.items() if count > 1}
    assert not repeated
    if minutes is not None:
        assert kinds(calls) == {"encoded": 3, "scored": 2, "names": 1}


def test_features_that_were_kept_are_not_computed_again(calls, tmp_path):
    again = {"feature_cache_dir": str(tmp_path / "cache"), "max_steps": 2, "learning_rate": 0.0}
    first = run_experiment(*build(tmp_path / "a", **again), quiet=True)
    second = run_experiment(*build(tmp_path / "b", **again), quiet=True)
    assert kinds(calls)["encoded"] == 3
    assert second.metrics["test_mAP"] == pytest.approx(first.metrics["test_mAP"])
