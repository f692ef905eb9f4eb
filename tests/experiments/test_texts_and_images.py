"""A table with images and texts, from its columns to predictions."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import DatasetDict
from PIL import Image
from transformers import AutoModel, pipeline
from typer.testing import CliRunner

from hf_mlcl import MLCLForImageClassification, MLCLModel
from hf_mlcl.cli import predict
from hf_mlcl.cli.app import app
from hf_mlcl.data import image_processor, read_own_data
from hf_mlcl.data.own import data_fingerprint
from hf_mlcl.experiments import build_experiment, own_recipe, run_experiment
from hf_mlcl.experiments.own import as_read
from hf_mlcl.experiments.prediction import Predictor
from models import saved
from models.tiny_backbones import folder_of
from pages.made import data_of

ROWS = 48
COLOURS = ("red", "green", "blue")


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    """Every fourth row lacks its image, every fourth its title."""
    folder = tmp_path_factory.mktemp("films")
    rows = []
    for i in range(ROWS):
        colours = [COLOURS[i % 3], *([COLOURS[(i + 1) % 3]] if i % 2 else [])]
        pixels = np.zeros((30, 20, 3), dtype="uint8")
        for colour in colours:
            pixels[10 * COLOURS.index(colour) :, :, COLOURS.index(colour)] = 200 + i
        Image.fromarray(pixels).save(folder / f"{i}.png")
        title = " ".join([*colours, "of the"])
        rows.append(["" if i % 4 == 1 else f"{i}.png", "" if i % 4 == 2 else title, "|".join(colours)])
    with (folder / "films.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["poster", "title", "genres"], *rows])
    return folder / "films.csv"


def test_a_table_with_both_is_recognised_and_no_row_is_lost(table):
    data = read_own_data(table)
    assert (data.modality, data.content_column, data.beside_column) == ("text+image", "poster", "title")
    assert sum(map(len, data.splits.values())) == ROWS
    assert ("texts", "column 'title', for a backbone that reads both") in data.describe()
    assert own_recipe(data, "films").for_loss("reg")["backbone"].startswith("openai/clip")
    rows = [row for split in data.splits.values() for row in split]
    assert all(row["image"] is not None or row["text"] for row in rows)
    assert sum(row["image"] is None for row in rows) == ROWS // 4
    without = {name: split.remove_columns("text") for name, split in data.splits.items()}
    assert data_fingerprint(data.splits) != data_fingerprint(without)


def test_the_choices_for_texts_with_images_are_shown_without_a_training(table):
    result = CliRunner().invoke(app, ["train", str(table), "--check"])
    assert result.exit_code == 0, result.output
    shown = [line.split()[0] for line in result.output.splitlines() if line.strip()]
    assert {"max_length", "image_size", "steps"} <= set(shown)


def run(table: Path, backbone: Path, output: Path):
    data = read_own_data(table)
    settings = {
        "backbone": str(backbone),
        "output_dir": str(output),
        "max_steps": 2,
        "use_cpu": True,
    }
    recipe = own_recipe(data, str(table), str(backbone))
    return run_experiment(*build_experiment(recipe, {**settings, "corpus": str(table)}), data.splits, quiet=True)


def test_a_pair_of_towers_learns_from_both_and_predicts_from_either(table, tmp_path):
    result = run(table, folder_of("CLIP", tmp_path / "clip"), tmp_path / "run")
    assert "a photo of {}." in result.verdict["choices"]["prior"]  # names went through the text tower
    predictor = Predictor(tmp_path / "run")
    assert predictor.modality == "text+image"
    image = table.parent / "3.png"
    text, picture, both = predictor.probabilities(["red of", image, {"text": "red of", "image": image}])
    assert not np.allclose(both, text, atol=1e-4)
    assert not np.allclose(both, picture, atol=1e-4)
    plain = pipeline("text-classification", str(tmp_path / "run" / "classifier"), top_k=None, device="cpu")
    found = {one["label"]: one["score"] for one in plain(["red of"])[0]}
    np.testing.assert_allclose([found[name] for name in predictor.label_names], text, atol=1e-5)
    assert (tmp_path / "run" / "backbone" / "processor_config.json").is_file()


def command(*words, code=0):
    """What the program prints; where it fails, why."""
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == code, f"{done.output}\n{done.stderr}\n{done.exception!r}"
    return done.stdout if code == 0 else f"{done.stderr}\n{done.exception}"


def test_from_the_command_line_a_pair_of_towers_goes_all_the_way(table, tmp_path, monkeypatch):
    """Trained, asked, scored, explained; its encoder goes to others, and the classifier says by which command."""
    monkeypatch.chdir(tmp_path)
    folder = folder_of("CLIP", tmp_path / "clip")
    command("train", table, "--backbone", folder, "--output_dir", "run", "--max_steps", 2, "--use_cpu")
    found = json.loads(command("predict", table.parent / "3.png", "red of the", "--model", "run", "--json"))
    assert [row["input"] for row in found] == [str(table.parent / "3.png"), "red of the"]
    assert not any("error" in row for row in found)
    scores = json.loads(command("evaluate", table, "--model", "run", "--split", "all", "--json"))
    assert scores["rows"] == ROWS
    assert (tmp_path / "run" / "explain.html").is_file()
    command("explain", "run", table, "--output", "again.html")
    assert (tmp_path / "again.html").stat().st_size > 100_000
    refused = command("export", "run", "--output_dir", "plain", code=1)
    assert "hf-mlcl export run/encoder --to transformers" in " ".join(refused.split())
    assert not (tmp_path / "plain").exists()
    command("export", "run/encoder", "--to", "transformers", "--output_dir", "plain")
    assert type(AutoModel.from_pretrained(tmp_path / "plain")).__name__ == "CLIPModel"


def test_a_backbone_that_cannot_read_the_data_is_refused_before_it_is_loaded(table, tmp_path):
    data = read_own_data(table)
    only = {name: split.remove_columns("image") for name, split in data.splits.items()}
    backbone = folder_of("Swin", tmp_path / "backbone")
    settings = {"backbone": str(backbone), "output_dir": str(tmp_path / "run"), "use_cpu": True, "corpus": str(table)}
    experiment = build_experiment(own_recipe(data, str(table), str(backbone)), settings)
    with pytest.raises(ValueError, match="reads images, but the data have texts"):
        run_experiment(*experiment, DatasetDict(only), quiet=True)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "rows"), [("Swin", 36), ("Qwen3", 36)])
def test_a_backbone_that_reads_one_of_them_takes_the_rows_that_have_it(name, rows, table, tmp_path, caplog):
    result = run(table, folder_of(name, tmp_path / "backbone"), tmp_path / "run")
    assert "12 rows without any are left out" in caplog.text
    assert Predictor(result.folder).modality == ("image" if name == "Swin" else "text")


def test_settings_are_those_of_what_the_backbone_reads(table, tmp_path):
    data = read_own_data(table)
    texts, images = (as_read(data, str(folder_of(name, tmp_path / name))) for name in ("BERT", "ViT"))
    assert (texts.modality, texts.content_column, texts.beside_column) == ("text", "title", None)
    assert (images.modality, images.content_column, images.beside_column) == ("image", "poster", None)
    settings = own_recipe(texts, "films", str(tmp_path / "BERT")).for_loss("reg")
    assert (settings["max_length"], settings["pooling"], settings["learning_rate"]) == (32, "auto", 1e-4)
    assert data_fingerprint(texts.splits) == data_fingerprint(data.splits)  # what `evaluate` knows them by
    asked = ["train", table, "--backbone", tmp_path / "BERT", "--image_size", "64", "--check"]
    assert "image_size=64 is for images, but the data are texts" in " ".join(command(*asked, code=2).split())


@pytest.mark.parametrize(("modality", "missing"), [("text", 2), ("image", 1)])
def test_a_classifier_of_one_kind_is_scored_on_the_rows_that_have_it(modality, missing, table, tmp_path):
    """Every fourth row lacks its image, every fourth its title: as in training, these are left out and counted."""
    if modality == "text":
        model = saved.text_classifier(len(COLOURS))
        saved.tokenizer().save_pretrained(tmp_path)
    else:
        encoder = MLCLModel.from_backbone("test_resnet", list(COLOURS), pretrained=False)
        size = encoder.projection.hidden.in_features
        model = MLCLForImageClassification.from_encoder(encoder, torch.randn(1, 3, size), torch.zeros(1, 3))
        image_processor(32).save_pretrained(tmp_path)
    model.config.id2label, model.config.label2id = dict(enumerate(COLOURS)), {c: i for i, c in enumerate(COLOURS)}
    model.save_pretrained(tmp_path)
    kept = [i for i in range(ROWS) if i % 4 != missing]
    told = CliRunner().invoke(app, ["evaluate", str(table), "--model", str(tmp_path), "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["rows"] == len(kept)
    page = tmp_path / "page.html"
    shown = CliRunner().invoke(app, ["explain", str(tmp_path), str(table), "--output", str(page)])
    assert shown.exit_code == 0, shown.output
    places = [row["place"] for row in data_of(page.read_text(encoding="utf-8"))["datasets"]["rows"]]
    assert places == [f"films.csv, line {i + 2}" for i in kept]


def test_a_text_with_an_image_is_shown_by_both(table):
    rows = list(predict.expand(str(table), "text+image"))
    assert [predict._shown(row) for row in rows[:3]] == ["red of the [0.png]", "green blue of the", "[2.png]"]
    assert next(iter(predict.expand(str(table), "text"))) == "red of the"
