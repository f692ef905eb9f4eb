"""Each recipe, run as a person runs it, on a corpus of a few rows in its official layout."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import datasets
import pytest
from PIL import Image
from transformers import AutoModel, pipeline

from copies import all_went_well, run_ranks
from experiments import tiny
from hf_mlcl import MLCLModel
from hf_mlcl.experiments import study_recipe
from hf_mlcl.experiments.prediction import Predictor
from hf_mlcl.recipes import RECIPES

ROOT = Path(__file__).parents[2]
RECIPE_FOLDER = ROOT / "recipes"
TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def backbones(tmp_path_factory):
    folder = tmp_path_factory.mktemp("backbones")
    return {"text": tiny.text_backbone(folder / "text"), "image": tiny.image_backbone(folder / "image")}


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def arguments(corpus, folder, backbones, export=False):
    kind = "text" if corpus in tiny.TEXTS else "image"
    data = tiny.CORPORA[corpus](folder / "data")
    return [
        *("--data_dir", str(data), "--backbone", str(backbones[kind]), "--output_dir", str(folder / "run")),
        *("--export", str(export)),
        *tiny.QUICK,
        *tiny.QUICK_KIND[kind],
    ]


def run(corpus, argv, monkeypatch):
    monkeypatch.setattr(sys, "argv", [f"{RECIPES[corpus]}.py", *argv])
    runpy.run_path(str(RECIPE_FOLDER / f"{RECIPES[corpus]}.py"), run_name="__main__")


def check_output(folder, corpus):
    """Everything that a run promises is there and can be used."""
    content = json.loads((folder / "metrics.json").read_text())
    metrics = content["metrics"]
    for name in ("validation_micro_f1", "test_micro_f1", "test_macro_f1", "test_hamming_loss"):
        assert 0 <= metrics[name] <= 1
    assert metrics["alignment"] >= 0 >= metrics["uniformity"]
    assert content["settings"]["corpus"] == corpus
    assert "hub_token" not in content["settings"]
    assert content["seconds"]["train"] > 0
    assert list(folder.glob("checkpoint-*"))
    assert not list(folder.glob("*.part"))
    encoder = MLCLModel.from_pretrained(folder / "encoder")
    assert encoder.config.num_labels == len(content["per_label"])
    if corpus in tiny.TEXTS:
        classify = pipeline("text-classification", model=str(folder / "classifier"), top_k=None, truncation=True)
        found = classify(["a story about a number"])[0]
    else:
        classify = pipeline("image-classification", model=str(folder / "classifier"), top_k=encoder.config.num_labels)
        found = classify(Image.new("RGB", (20, 20)))
    assert {one["label"] for one in found} == set(encoder.config.label2id)
    return content


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("corpus", sorted(tiny.CORPORA))
def test_recipe_trains_evaluates_saves_and_sums_up(corpus, tmp_path, backbones, monkeypatch, capsys):
    export = corpus in ("semeval2018", "voc2007")
    run(corpus, arguments(corpus, tmp_path, backbones, export), monkeypatch)
    content = check_output(tmp_path / "run", corpus)
    assert (tmp_path / "run" / "backbone").is_dir() == export
    if export:
        assert type(AutoModel.from_pretrained(tmp_path / "run" / "backbone")).__module__.startswith("transformers.")
    assert content["settings"]["loss"] == study_recipe(corpus).loss
    assert content["settings"]["lr_scheduler_type"] == "cosine"
    assert ("test_accuracy" in content["metrics"]) == (corpus == "newsgroups20")
    printed = capsys.readouterr().out
    assert "micro_f1" in printed
    assert str(tmp_path / "run") in printed


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize(("corpus", "loss"), [("semeval2018", "zlpr"), ("newsgroups20", "cross_entropy")])
def test_a_loss_on_logits_is_trained_and_judged_by_its_own_protocol(corpus, loss, tmp_path, backbones, monkeypatch):
    argv = [*arguments(corpus, tmp_path, backbones), "--loss", loss, "--num_train_epochs", "2"]
    run(corpus, argv, monkeypatch)
    content = check_output(tmp_path / "run", corpus)
    assert content["settings"]["lr_scheduler_type"] == "linear"
    assert content["settings"]["metric_for_best_model"] == "micro_f1"
    assert content["settings"]["load_best_model_at_end"] is True
    config = json.loads((tmp_path / "run" / "classifier" / "config.json").read_text())
    assert config["num_heads"] == 1
    expected = "single_label" if loss == "cross_entropy" else "multi_label"
    assert config["problem_type"] == f"{expected}_classification"


def by_torchrun(corpus, argv, folder):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--rdzv-backend=c10d"]
    command += ["--rdzv-endpoint=localhost:0", str(RECIPE_FOLDER / f"{RECIPES[corpus]}.py")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(TESTS.parent / "src"), *sys.path]),
        "HF_DATASETS_CACHE": str(folder / "cache"),
    }
    done = subprocess.run([*command, *argv], env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-9000:]
    return done.stdout


def rank_of_a_copy(corpus, argv, folder):
    os.chdir(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", folder / "cache")
        run(corpus, argv, patch)


def by_copies(corpus, argv, folder):
    copies = run_ranks(rank_of_a_copy, corpus, argv, folder, ranks=2, folder=folder)
    assert all_went_well(copies)
    return "".join(copy.output.read_text() for copy in copies)


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("corpus", "launch"),
    [
        ("aapd", by_copies),
        pytest.param("aapd", by_torchrun, marks=pytest.mark.slow),
        pytest.param("voc2007", by_torchrun, marks=pytest.mark.slow),
    ],
)
def test_recipe_on_two_ranks_shares_the_batch_and_writes_once(corpus, launch, tmp_path, backbones):
    printed = launch(corpus, arguments(corpus, tmp_path, backbones, export=True), tmp_path)
    content = check_output(tmp_path / "run", corpus)
    assert content["settings"]["per_device_train_batch_size"] == 4
    assert printed.count("Encoder, classifier and metrics.json are in") == 1
    assert (tmp_path / "run" / "backbone" / "README.md").is_file()


@pytest.mark.slow
@pytest.mark.distributed
def test_a_recipe_with_the_ready_configuration_of_fsdp2_is_sharded_and_saves_whole_models(tmp_path):
    """The command of docs/scaling.md on two ranks, with gloo on CPUs."""
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", "2", "--main_process_port", "0"]
    launch += ["--config_file", str(ROOT / "docs" / "accelerate" / "fsdp2.yaml")]
    recipe = [str(TESTS / "recipes" / "sharded_on_cpus.py"), str(RECIPE_FOLDER / "toy_text_reg.py")]
    argv = ["--protocol", "study", "--max_steps", "2", "--max_train_samples", "128", "--max_eval_samples", "64"]
    argv += ["--use_cpu", "--output_dir", "run"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "HF_DATASETS_CACHE": str(tmp_path / "cache")}
    done = subprocess.run([*launch, *recipe, *argv], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-9000:]
    assert sorted(re.findall(r"sharded: (\d+) of (\d+)", done.stdout)) == [("0", "40")] * 2 + [("40", "40")] * 2
    assert list((tmp_path / "run").glob("checkpoint-2/pytorch_model_fsdp_*"))
    assert MLCLModel.from_pretrained(tmp_path / "run" / "encoder").config.num_labels == 28
    assert Predictor(tmp_path / "run", device="cpu").probabilities(["a text"]).shape == (1, 28)


def test_the_package_has_the_recipes_themselves_and_the_repository_a_link_to_them():
    """A checkout without links, or a wheel, must not lack them."""
    inside = ROOT / "src" / "hf_mlcl" / "recipes"
    assert not inside.is_symlink()
    assert all(path.is_file() and not path.is_symlink() for path in inside.glob("*.py"))
    assert RECIPE_FOLDER.resolve() == inside
    assert not Path(os.readlink(RECIPE_FOLDER)).is_absolute()


def test_every_corpus_has_a_recipe_short_enough_to_read_at_once():
    from hf_mlcl import list_corpora

    assert sorted(RECIPES) == list_corpora()
    for name in RECIPES.values():
        assert len((RECIPE_FOLDER / f"{name}.py").read_text().splitlines()) <= 70
