"""Settings for data of your own follow from the data, the encoder and the machine."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value

from experiments.tiny import text_backbone
from hf_mlcl import MLCLModel
from hf_mlcl.data.own import OwnData
from hf_mlcl.experiments import build_experiment, inputs
from hf_mlcl.experiments.own import default_backbone, own_recipe
from models.tiny_backbones import folder_of


def data_of(rows, words=5, kind="text"):
    features = Features({"text": Value("string"), "labels": List(ClassLabel(names=["a", "b"]))})
    table = Dataset.from_dict({"text": ["training " * words] * rows, "labels": [[0]] * rows}, features=features)
    return OwnData(DatasetDict(train=table), kind, "text", "made", "made")


@pytest.mark.parametrize(
    ("kind", "rows", "epochs"),
    [("text", 10, 16), ("text", 300, 9), ("text", 1000, 3), ("text", 3000, 2), ("text", 30_000, 1), ("image", 1000, 5)],
)
def test_steps_follow_from_the_rows(kind, rows, epochs):
    settings = own_recipe(data_of(rows, kind=kind), "mine", backbone="somewhere").for_loss("reg")
    assert settings["num_train_epochs"] == epochs
    assert settings["global_batch_size"] == min(rows, 32)


def test_the_length_is_counted_in_tokens_of_the_encoder(tmp_path):
    folder = str(text_backbone(tmp_path / "encoder"))
    assert own_recipe(data_of(20, words=40), "mine", folder).for_loss("reg")["max_length"] == 48  # 42 tokens
    assert own_recipe(data_of(20, words=400), "mine", folder).for_loss("reg")["max_length"] == 256
    assert own_recipe(data_of(20, words=40), "mine", "no/such").for_loss("reg")["max_length"] == 64  # 50 by its words


@pytest.mark.parametrize(
    ("said", "expected"),
    [({}, False), ({"pooling": "mean"}, True), ({"pooling": "mean", "normalize_features": "no"}, False)],
    ids=["first token", "means", "as they are"],
)
def test_means_of_tokens_have_length_one(tmp_path, said, expected):
    folder, rows = str(text_backbone(tmp_path / "encoder")), data_of(20)
    settings = {"output_dir": str(tmp_path / "out"), "use_cpu": True, **said}
    arguments = build_experiment(own_recipe(rows, "mine", folder), settings)
    splits = DatasetDict(dict.fromkeys(("train", "validation", "test"), rows.splits["train"]))
    assert inputs.prepare_inputs(splits, *arguments).model.config.normalize_features is expected


def test_length_one_is_refused_where_it_cannot_be_had(tmp_path):
    folder = str(folder_of("CLIP", tmp_path / "clip"))
    settings = {"output_dir": str(tmp_path / "out"), "use_cpu": True, "normalize_features": "yes"}
    arguments = build_experiment(own_recipe(data_of(20), "mine", folder), settings)
    splits = DatasetDict(dict.fromkeys(("train", "validation", "test"), data_of(20).splits["train"]))
    with pytest.raises(ValueError, match="normalize_features is not for"):
        inputs.prepare_inputs(splits, *arguments)


@pytest.mark.parametrize("loss", ["reg", "zlpr"])
def test_the_protocol_of_the_study_can_be_asked_for(tmp_path, loss):
    recipe = own_recipe(data_of(20), "mine", "somewhere")
    settings = {"protocol": "study", "loss": loss, "linear_epochs": 3, "output_dir": str(tmp_path), "use_cpu": True}
    experiment, _ = build_experiment(recipe, settings)
    assert (experiment.protocol, experiment.linear_epochs, experiment.prototype_init) == ("study", 3, "random")


def test_a_processor_that_knows_bfloat16_uses_it_for_texts_until_something_else_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    recipe = own_recipe(data_of(20), "mine", "somewhere")
    settings = {"output_dir": str(tmp_path)}  # as it comes: nobody says use_cpu on a machine without a GPU
    for facts, expected in (({"avx512_bf16": True}, True), ({"amx_bf16": False}, False)):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda facts=facts: facts, raising=False)
        assert build_experiment(recipe, settings)[1].bf16 == expected
        assert not build_experiment(recipe, {**settings, "bf16": False})[1].bf16
        assert not own_recipe(data_of(20, kind="image"), "mine", "somewhere").for_loss("reg").get("bf16")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    assert not build_experiment(recipe, {**settings, "fp16": False})[1].bf16
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    assert not build_experiment(recipe, settings)[1].bf16


def test_settings_follow_the_training_rows_that_are_kept():
    few, cut, many = data_of(160), data_of(5000), data_of(5000)
    settings = [
        own_recipe(data, "mine", "somewhere", most).for_loss("reg")
        for data, most in ((few, None), (cut, 160), (many, None))
    ]
    assert settings[0]["num_train_epochs"] == settings[1]["num_train_epochs"] > settings[2]["num_train_epochs"]


@pytest.mark.parametrize("kind", ["text", "image"])
def test_the_default_encoder_fits_the_machine(kind, monkeypatch):
    sizes = {}
    for has_gpu in (False, True):
        monkeypatch.setattr(torch.accelerator, "is_available", lambda has_gpu=has_gpu: has_gpu)
        sizes[has_gpu] = default_backbone(kind)[1]
    assert sizes[False] < sizes[True]


@pytest.mark.parametrize(
    ("stated", "pooling"),
    [
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "first"),
        ({"embedding_dimension": 16, "pooling_mode": "cls"}, "first"),
        ({"pooling_mode_lasttoken": True, "include_prompt": True}, "last"),
        ({"pooling_mode_max_tokens": True}, "first"),  # which we do not have: that of BERT
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, "first"),  # both together, likewise
        (None, "first"),
    ],
)
def test_pooling_is_what_the_models_own_files_say(tmp_path, stated, pooling):
    folder = text_backbone(tmp_path / "encoder")
    if stated is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(stated))
    assert MLCLModel.from_backbone(folder, ["a", "b"], pooling="auto").config.pooling == pooling


def test_models_in_the_cache_are_offered_by_name(monkeypatch):
    class Repository:
        def __init__(self, repo_id, repo_type):
            self.repo_id, self.repo_type = repo_id, repo_type

    repositories = [Repository("someone/encoder", "model"), Repository("someone/rows", "dataset")]
    monkeypatch.setattr(inputs, "scan_cache_dir", lambda: SimpleNamespace(repos=repositories))
    message = inputs._no_backbone("nowhere", OSError("no network"))
    assert message.endswith("In the cache: someone/encoder.")
    monkeypatch.setattr(inputs, "scan_cache_dir", lambda: 1 / 0)
    assert "In the cache" not in inputs._no_backbone("nowhere", OSError("no network"))


def test_data_of_ones_own_are_trained_with_the_loss_that_the_docs_name_until_another_is_given(tmp_path):
    recipe = own_recipe(data_of(20), "mine", "somewhere")
    settings = {"output_dir": str(tmp_path), "use_cpu": True}
    assert build_experiment(recipe, settings)[1].loss == "reg+two_way"
    assert build_experiment(recipe, {**settings, "loss": "zlpr"})[1].loss == "zlpr"
    folders = [build_experiment(recipe, {"use_cpu": True, **given})[1].output_dir for given in ({}, {"loss": "zlpr"})]
    assert folders == ["outputs/mine", "outputs/mine-zlpr"]
    docs = Path(__file__).parents[2] / "docs"
    assert "with `reg+two_way`" in (docs / "own_data.md").read_text()
    assert "| data of your own, `hf-mlcl train` | `reg+two_way`, the default |" in (docs / "choosing.md").read_text()


@pytest.mark.parametrize(
    ("source", "folder"),
    [
        (".", "here"),
        ("./", "here"),
        ("..", "above"),
        ("../here/table.csv", "table"),
        ("linked.csv", "linked"),
        ("owner/name", "name"),
        ("owner/reviews-2.0", "reviews-2.0"),
        ("../v1.0", "v1.0"),
        ("packed.csv.gz", "packed"),
        ("/", "data"),
    ],
)
def test_results_of_data_of_ones_own_go_to_a_folder_below_outputs(source, folder, tmp_path, monkeypatch):
    here = tmp_path / "above" / "here"
    here.mkdir(parents=True)
    (here.parent / "v1.0").mkdir()
    (here / "table.csv").write_text("text,label")
    (here / "linked.csv").symlink_to(here / "table.csv")
    monkeypatch.chdir(here)
    recipe = own_recipe(data_of(20), source, "somewhere")
    assert build_experiment(recipe, {"use_cpu": True})[1].output_dir == f"outputs/{folder}"


def test_label_aware_batches_take_the_place_of_batches_of_like_length(tmp_path):
    recipe = own_recipe(data_of(20), "mine", "somewhere")
    settings = {"output_dir": str(tmp_path), "use_cpu": True}
    assert build_experiment(recipe, settings)[1].train_sampling_strategy == "group_by_length"
    aware = build_experiment(recipe, {**settings, "label_aware_batches": True})[1]
    assert aware.train_sampling_strategy == "random"
    with pytest.raises(ValueError, match="both decide the order"):
        build_experiment(
            recipe, {**settings, "label_aware_batches": True, "train_sampling_strategy": "group_by_length"}
        )


def test_the_small_encoder_obeys_pooling_and_prompt_and_refuses_weights(tmp_path):
    rows = data_of(20)
    recipe = own_recipe(rows, "mine", "small")
    settings = {"output_dir": str(tmp_path), "pooling": "first", "prompt": "training ", "use_cpu": True}
    splits = DatasetDict(dict.fromkeys(("train", "validation", "test"), rows.splits["train"]))
    found = inputs.prepare_inputs(splits, *build_experiment(recipe, settings))
    assert found.model.config.pooling == "first"
    assert found.processor.tokenize("training") == ["training", "training"]
    with pytest.raises(ValueError, match="backbone_weights are for a timm architecture"):
        build_experiment(recipe, {**settings, "backbone_weights": "no/such/file"})
