"""The estimate of a study's cost."""

from __future__ import annotations

import pytest
from transformers import BertConfig, ViTConfig
from typer.testing import CliRunner

from hf_mlcl.cli.app import app
from hf_mlcl.study.cost import assumed_backbones, forward_operations, run_cost, split_sizes, study_cost
from study.made import finished_study, run
from study.quick import make_study


def test_operations_of_a_forward_pass_are_those_of_the_literature():
    """Two operations a weight of the encoder and token; attention over 220 tokens adds a little."""
    weights = 12 * (4 * 768**2 + 2 * 768 * 3072)
    assert 1.0 < forward_operations("text", "roberta-base", 220) / (2 * weights * 220) < 1.1
    assert forward_operations("image", "resnet50", 224) == pytest.approx(2 * 4.09e9, rel=0.01)


def test_a_run_costs_three_passes_an_example_in_training_and_one_in_evaluation():
    settings = {"max_train_samples": 100, "max_eval_samples": 10, "num_train_epochs": 4, "max_length": 96}
    one_pass = forward_operations("text", "small", 96)
    contrastive = run_cost(run("toy_text", "reg", 0, **settings))
    assert contrastive.operations == pytest.approx(one_pass * (3 * 4 * 100 + 100 + 10 + 10))
    logit = run_cost(run("toy_text", "bce", 0, **settings))  # validation after each epoch, no features of training rows
    assert logit.operations == pytest.approx(one_pass * (3 * 4 * 100 + 4 * 10 + 10 + 10))
    steps = run_cost(run("toy_text", "reg", 0, **settings, max_steps=5, global_batch_size=20))
    assert steps.operations == pytest.approx(one_pass * (3 * 100 + 100 + 10 + 10))
    assert run_cost(run("toy_text", "reg", 0, **settings), {"text": 1e9}).hours == contrastive.operations / 1e9 / 3600


def test_the_total_is_the_sum_over_runs(tmp_path):
    study = make_study(tmp_path)
    costs = study_cost(study)
    assert costs["total"].runs == len(study.runs)
    assert costs["total"].operations == pytest.approx(sum(run_cost(each).operations for each in study.runs))


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setattr("hf_mlcl.experiments.inputs.hub_is_reachable", lambda: False)


@pytest.mark.usefixtures("offline")
def test_backbones_that_cannot_be_had_are_named_and_no_others(tmp_path):
    BertConfig(hidden_size=16, num_attention_heads=2, num_hidden_layers=1).save_pretrained(tmp_path / "mine")
    texts = [None, "small", "roberta-base", str(tmp_path / "mine"), "nobody/text-model"]
    images = [None, "small", "resnet18", "timm/resnet50.a1_in1k", "nobody/image-model"]
    runs = [run("toy_text", "reg", 0, backbone=name) for name in texts]
    runs += [run("toy_images", "reg", 0, backbone=name) for name in images]
    study = finished_study(tmp_path / "study", [(each, {}) for each in runs])
    assert assumed_backbones(study) == {"nobody/text-model": "RoBERTa-base", "nobody/image-model": "ResNet-50"}


@pytest.mark.usefixtures("offline")
def test_a_backbone_in_the_cache_or_in_a_folder_is_counted_itself(tmp_path):
    config = BertConfig(hidden_size=32, num_attention_heads=2, num_hidden_layers=1, intermediate_size=64)
    config.save_pretrained(tmp_path)
    weights = 4 * 32**2 + 2 * 32 * 64
    assert 1.0 < forward_operations("text", str(tmp_path), 16) / (2 * weights * 16) < 1.3
    ViTConfig(hidden_size=32, num_attention_heads=2, num_hidden_layers=1, intermediate_size=64).save_pretrained(
        tmp_path / "vit"
    )
    assert forward_operations("image", str(tmp_path / "vit"), 224) < forward_operations("image", "resnet18", 224) / 10


@pytest.mark.usefixtures("offline")
def test_the_program_names_backbones_that_it_had_to_assume(tmp_path):
    (tmp_path / "study.yaml").write_text(
        "corpora: [toy_text]\nlosses: [reg]\nseeds: [0]\ndefaults: {backbone: nobody/text-model}\n"
    )
    result = CliRunner().invoke(app, ["study", "cost", str(tmp_path / "study.yaml")])
    assert "The backbone nobody/text-model is not available here: it is taken as RoBERTa-base." in result.output


def test_rows_are_counted_or_as_the_paper_rounds_them():
    assert split_sizes("bgc").train == pytest.approx(58_715, abs=100)
    assert split_sizes("rcv1").test == pytest.approx(781_200, abs=100)
    assert split_sizes("aapd", "small").train == 4_350
    with pytest.raises(ValueError, match=r"semeval2018 \(small\) is not known"):
        split_sizes("semeval2018", "small")
