"""Every command as a person or a program calls it: what it prints, what it writes, how it ends."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys

import datasets
import pandas as pd
import pytest
from PIL import Image

from cli.conftest import QUICK
from hf_mlcl import list_corpora, list_losses, load_corpus
from hf_mlcl.data import read_own_data
from hf_mlcl.experiments.prediction import Predictor
from hub.hub_server import USER, HubServer


def in_json(result):
    return json.loads(result.stdout)


def assert_same_predictions(found, expected):
    """But for rounding, which may also turn the last digit and the order of labels."""
    assert [one["input"] for one in found] == [one["input"] for one in expected]
    mine, theirs = (
        [{hit["label"]: hit["score"] for hit in one["labels"]} for one in both] for both in (found, expected)
    )
    assert mine == [pytest.approx(scores, abs=2e-4) for scores in theirs]


# Looking around -------------------------------------------------------------------------------------------------------


def test_losses_are_listed_with_their_formulas(hf_mlcl):
    facts = in_json(hf_mlcl("losses", "--json"))
    assert {fact["name"] for fact in facts} >= {"reg", "msc", "zlpr", "cross_entropy"}
    assert all(fact["formula"] for fact in facts if fact["name"] in ("reg", "bce"))
    printed = hf_mlcl("losses").stdout
    assert all(name in printed for name in ("reg", "zlpr", "temperature, alpha"))


def test_one_loss_is_explained(hf_mlcl):
    printed = hf_mlcl("losses", "reg").stdout
    assert "hyperparameters  temperature, alpha" in printed
    joined = hf_mlcl("losses", "reg+zlpr").stdout
    assert printed.strip() in joined
    assert hf_mlcl("losses", "zlpr").stdout.strip() in joined
    assert [fact["name"] for fact in in_json(hf_mlcl("losses", "reg+zlpr", "--json"))] == ["reg", "zlpr"]
    assert "no loss 'regg'" in hf_mlcl("losses", "regg+zlpr", code=1).stderr
    assert "no loss 'regg'" in hf_mlcl("losses", "regg", code=1).stderr


def test_a_plugin_shows_among_the_losses(hf_mlcl, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\nfrom hf_mlcl import register_loss\n\n"
        "@register_loss('cli-test-loss')\nclass Mine(torch.nn.Module):\n"
        "    '''Mine.'''\n\n    def forward(self, logits, labels):\n        return logits.sum()\n"
    )
    assert "cli-test-loss" not in list_losses()
    assert "cli-test-loss" in hf_mlcl("losses", "--plugins", tmp_path / "mine.py").stdout


def test_corpora_are_listed_with_how_to_get_them(hf_mlcl):
    assert [row["name"] for row in in_json(hf_mlcl("corpora", "--json"))] == list_corpora()
    about = hf_mlcl("corpora", "rcv1").stdout
    assert "recipes/rcv1_reg.py" in about
    assert "NIST" in about


def test_doctor_says_what_is_there(hf_mlcl, tmp_path, monkeypatch):
    monkeypatch.setattr("hf_mlcl.data.download.hub_is_reachable", lambda: False)
    (tmp_path / "20news-bydate.tar.gz").touch()
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "no-cache")
    checks = {row["what"]: row for row in in_json(hf_mlcl("doctor", "--data-dir", tmp_path, "--json"))}
    assert checks["torch"]["state"] == "ok"
    assert checks["Hub"]["state"].startswith("not reached")
    assert checks["newsgroups20"]["found"] == f"files in {tmp_path}"
    assert (checks["toy_text"]["found"], checks["bgc"]["found"]) == ("here", "not here")


def test_doctor_ends_with_code_1_where_something_must_be_mended(hf_mlcl, monkeypatch):
    monkeypatch.setattr("hf_mlcl.data.download.hub_is_reachable", lambda: False)
    monkeypatch.setattr("hf_mlcl.cli.doctor.installed_version", lambda name: None if name == "timm" else "99")
    assert "fix: pip install 'timm>=" in hf_mlcl("doctor", code=1).stdout


# Help and codes -------------------------------------------------------------------------------------------------------


def test_help_comes_without_loading_torch(tmp_path):
    program = tmp_path / "hf-mlcl"
    program.write_text(
        "import sys\nfrom hf_mlcl.cli import main\ntry:\n    main()\nfinally:\n"
        "    print(sorted({'torch', 'transformers', 'datasets', 'pandas'} & set(sys.modules)), file=sys.stderr)\n"
    )
    for arguments in (["--help"], ["train", "--help"], ["study", "--help"]):
        done = subprocess.run(
            [sys.executable, str(program), *arguments],
            capture_output=True,
            text=True,
            env={"PYTHONPATH": ":".join(sys.path), "PATH": ""},
        )
        assert done.returncode == 0
        assert "Usage" in done.stdout
        assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("start", [["-m", "hf_mlcl"], ["-mhf_mlcl"]])
def test_the_package_run_as_a_module_helps_without_loading_torch(start):
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *start, "train", "--help"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": ""},
    )
    assert done.returncode == 0
    assert "Usage" in done.stdout
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "typer" in loaded
    assert not {"torch", "transformers", "datasets", "pandas"} & loaded


@pytest.mark.parametrize(
    "arguments",
    [
        ["train"],
        ["no-such-command"],
        ["predict"],
        ["demo", "--corpus", "aapd"],
        ["demo", "--losses", "regg"],
        ["train", "toy_text", "--loss", "regg"],
        ["train", "toy_text", "--no_such_argument", "1"],
        ["evaluate", "toy_text", "--split", "dev"],
        ["evaluate", "toy_text", "--size", "tiny"],
    ],
)
def test_wrong_arguments_end_with_code_2(hf_mlcl, arguments):
    assert hf_mlcl(*arguments, code=2).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--learning_rat", "1"], "There is no argument '--learning_rat'. Known, nearest first: --learning_rate"),
        (["--learning_rate", "fast"], "'--learning_rate'"),
    ],
)
def test_a_wrong_argument_of_the_training_is_an_error_of_the_program(hf_mlcl, arguments, message):
    said = " ".join(hf_mlcl("train", "toy_text", *arguments, code=2).stderr.replace("│", " ").split())
    assert message in said
    assert "Usage: hf-mlcl train" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "missing.csv"], "'missing.csv' is not there"),
        (["predict", "a text", "--model", "nowhere"], "'nowhere' is not a classifier that can be loaded"),
        (["corpora", "imagenet"], "There is no corpus 'imagenet'"),
    ],
)
def test_what_fails_ends_with_code_1_and_says_why(hf_mlcl, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    result = hf_mlcl(*arguments, code=1)
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", [["train"], ["evaluate"], ["predict"], ["study", "run"], ["demo"], ["doctor"]])
def test_options_are_shown_as_hfs_own_and_taken_in_both_spellings(hf_mlcl, command):
    shown = hf_mlcl(*command, "--help").stdout
    assert re.search(r"--\w+_\w+", shown)
    assert not re.search(r"--[a-z]+-[a-z]", shown)


def test_dashes_are_taken_for_underscores(hf_mlcl, tmp_path, monkeypatch):
    monkeypatch.setattr("hf_mlcl.data.download.hub_is_reachable", lambda: False)
    for spelled in ("--data-dir", "--data_dir"):
        hf_mlcl("doctor", spelled, tmp_path)
    for spelled in ("--max-steps", "--max_steps"):
        assert "'many'" in hf_mlcl("train", "toy_text", spelled, "many", code=2).stderr


def test_the_version_is_told(hf_mlcl):
    from hf_mlcl.versions import installed_version

    assert hf_mlcl("--version").stdout.startswith(installed_version("hf-mlcl") or "unknown")


# Training -------------------------------------------------------------------------------------------------------------


def test_check_shows_what_was_recognised_and_trains_nothing(hf_mlcl, reviews, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    printed = hf_mlcl("train", reviews, "--check", "--backbone", "small").stdout
    assert "column 'tags', labels separated by '|'" in printed
    assert re.search(r"train 1\d\d, validation 1\d, test 1\d \(validation and test by stratification\)", printed)
    assert "global_batch_size" in printed
    assert not (tmp_path / "outputs").exists()


def test_training_saves_a_classifier_with_the_names_of_the_labels(trained):
    metrics = json.loads((trained / "metrics.json").read_text())
    assert metrics["settings"]["num_train_epochs"] == 1
    known = set(load_corpus("toy_text")["train"].features["labels"].feature.names)
    assert set(Predictor(trained).label_names) <= known


def test_training_prints_nothing_but_json_when_asked_to(hf_mlcl, reviews, tmp_path):
    result = hf_mlcl("train", reviews, "--output_dir", tmp_path / "run", "--loss", "zlpr", "--json", *QUICK)
    assert in_json(result)["folder"] == str(tmp_path / "run")
    assert "test_macro_f1" in in_json(result)["metrics"]


def test_images_of_ones_own_are_trained_and_predicted(hf_mlcl, tmp_path):
    corpus = load_corpus("toy_images")["train"].select(range(40))
    names = corpus.features["labels"].feature.names
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    lines = ["file_name,labels"]
    for number, row in enumerate(corpus):
        row["image"].save(pictures / f"{number}.png")
        lines.append(f"{number}.png,{'|'.join(names[i] for i in row['labels'])}")
    (pictures / "metadata.csv").write_text("\n".join(lines))
    hf_mlcl("train", pictures, "--output_dir", tmp_path / "run", "--image_size", "32", *QUICK)
    found = in_json(hf_mlcl("predict", pictures, "--model", tmp_path / "run", "--json", "--scores"))
    assert len(found) == 40
    assert all(len(one["labels"]) == len(Predictor(tmp_path / "run").label_names) for one in found)
    one = in_json(hf_mlcl("predict", pictures / "3.png", "--model", tmp_path / "run", "--json", "--scores"))
    assert_same_predictions(one, [other for other in found if other["input"].endswith("/3.png")])
    scores = in_json(hf_mlcl("evaluate", pictures, "--model", tmp_path / "run", "--split", "all", "--json"))
    assert scores["rows"] == 40


# Predicting and evaluating --------------------------------------------------------------------------------------------


def test_prediction_says_which_classifier_it_uses(hf_mlcl, trained, monkeypatch):
    (trained.parent / "outputs").symlink_to(trained) if not (trained.parent / "outputs").exists() else None
    monkeypatch.chdir(trained.parent)
    result = hf_mlcl("predict", "some text about boats", "--threshold", "0")
    assert "Using outputs/classifier" in result.stderr
    assert "boats" in result.stdout


def test_without_a_classifier_it_says_how_to_get_one(hf_mlcl, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "hf-mlcl demo" in hf_mlcl("predict", "some text", code=1).stderr


def test_texts_files_tables_and_folders_give_the_same_predictions(hf_mlcl, trained, tmp_path):
    texts = load_corpus("toy_text")["test"]["text"][:3]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    with open(tmp_path / "texts.csv", "w", newline="") as file:
        csv.writer(file).writerows([["id", "text"], *([i, text] for i, text in enumerate(texts))])
    (tmp_path / "texts.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.txt").write_text("\n".join(texts[:1]))
    (folder / "b.txt").write_text("\n".join(texts[1:]))
    options = ("--model", trained, "--json", "--scores")
    expected = in_json(hf_mlcl("predict", *texts, *options))
    for source in (tmp_path / "texts.txt", tmp_path / "texts.csv", tmp_path / "texts.jsonl", folder):
        assert_same_predictions(in_json(hf_mlcl("predict", source, *options)), expected)


def test_thresholds_decide_which_labels_are_given(hf_mlcl, trained):
    everything = in_json(hf_mlcl("predict", "boats", "--model", trained, "--threshold", "0", "--json"))
    nothing = in_json(hf_mlcl("predict", "boats", "--model", trained, "--threshold", "1", "--json"))
    assert len(everything[0]["labels"]) == len(Predictor(trained).label_names)
    assert nothing[0]["labels"] == []
    assert "must be between 0 and 1" in hf_mlcl("predict", "x", "--model", trained, "--threshold", "2", code=1).stderr


def test_predictions_are_written_as_csv_with_a_column_a_label(hf_mlcl, trained, reviews, tmp_path):
    hf_mlcl("predict", reviews, "--model", trained, "--output", tmp_path / "out.csv")
    with open(tmp_path / "out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    predictor = Predictor(trained)
    assert len(rows) == 150
    assert list(rows[0]) == ["input", "labels", *predictor.label_names, "error"]
    probabilities = predictor.probabilities([row["input"] for row in rows[:5]])
    for row, expected in zip(rows, probabilities, strict=False):
        assert [float(row[name]) for name in predictor.label_names] == pytest.approx(expected.tolist(), abs=1e-5)


def test_evaluation_of_the_test_rows_gives_the_scores_of_training(hf_mlcl, trained, reviews):
    reported = json.loads((trained / "metrics.json").read_text())["metrics"]
    scores = in_json(hf_mlcl("evaluate", reviews, "--model", trained, "--json"))
    assert scores["rows"] == len(read_own_data(reviews).splits["test"])
    for name, value in scores["metrics"].items():
        assert reported[f"test_{name}" if name == "mAP" else f"tuned_test_{name}"] == pytest.approx(value, abs=1e-6)
    assert "label" in hf_mlcl("evaluate", reviews, "--model", trained, "--per-label").stdout


@pytest.mark.parametrize(
    ("trained_on", "asked", "expected"),
    [
        ({"corpus": "toy_text", "size": "small"}, [], "small"),
        ({"corpus": "toy_text", "size": "small"}, ["--size", "full"], "full"),
        ({"corpus": "toy_text", "size": "full"}, [], "full"),
        ({"corpus": "aapd", "size": "small"}, [], "full"),
    ],
)
def test_a_corpus_is_scored_in_the_size_that_was_trained_on(
    hf_mlcl, trained, reviews, tmp_path, monkeypatch, trained_on, asked, expected
):
    sizes = []
    splits = read_own_data(reviews).splits
    monkeypatch.setattr("hf_mlcl.data.load_corpus", lambda name, size, data_dir: sizes.append(size) or splits)
    shutil.copytree(trained / "classifier", tmp_path / "run" / "classifier")
    result = json.loads((trained / "metrics.json").read_text())
    (tmp_path / "run" / "metrics.json").write_text(json.dumps({**result, "settings": trained_on}))
    hf_mlcl("evaluate", "toy_text", "--model", tmp_path / "run", "--max-samples", "2", *asked)
    assert sizes == [expected]


def scored(hf_mlcl, data, model, *options):
    """Split, number of rows and what was said about them."""
    result = hf_mlcl("evaluate", data, "--model", model, "--json", *options)
    return in_json(result)["split"], in_json(result)["rows"], result.stderr


def copy_of_training(trained, folder, data):
    """The training as if it had been on other rows of the same file."""
    shutil.copytree(trained / "classifier", folder / "copy" / "classifier")
    result = json.loads((trained / "metrics.json").read_text())
    settings = result["settings"] | {"data_fingerprint": "other", "data_source": str(data.resolve())}
    (folder / "copy" / "metrics.json").write_text(json.dumps(result | {"settings": settings}))
    return folder / "copy"


def rows_of(reviews, *numbers):
    lines = reviews.read_text().splitlines(keepends=True)
    return "".join([lines[0], *(lines[1 + number] for number in numbers)])


def test_all_rows_are_scored_where_they_are_too_few_to_split(hf_mlcl, trained, reviews, tmp_path):
    (tmp_path / "few.csv").write_text(rows_of(reviews, *range(5)))
    assert scored(hf_mlcl, tmp_path / "few.csv", trained, "--split", "all")[:2] == ("all", 5)
    assert scored(hf_mlcl, tmp_path / "few.csv", trained)[:2] == ("all", 5)


def test_a_label_without_a_column_is_named_and_counts_as_absent(hf_mlcl, trained, tmp_path):
    names = Predictor(trained).label_names
    (tmp_path / "one.csv").write_text(f"text,{names[1]}\nsome text,1\nanother,0\n")
    outcome = hf_mlcl("evaluate", tmp_path / "one.csv", "--model", trained, "--json")
    assert [one["rows"] for one in in_json(outcome)["per_label"]] == [int(name == names[1]) for name in names]
    assert f"has no column for {names[0]}, {names[2]}" in outcome.stderr


def test_a_copy_of_the_training_data_is_scored_on_the_rows_that_training_held_out(hf_mlcl, trained, reviews, tmp_path):
    shutil.copy(reviews, tmp_path / "copy.csv")
    held_out = len(read_own_data(reviews).splits["test"])
    assert scored(hf_mlcl, tmp_path / "copy.csv", trained) == ("test", held_out, "")


def test_of_data_that_were_not_trained_on_every_row_is_scored_and_it_is_said(hf_mlcl, trained, reviews, tmp_path):
    (tmp_path / "more.csv").write_text(rows_of(reviews, *range(150), 3, 4))
    (tmp_path / "turned.csv").write_text(rows_of(reviews, *reversed(range(150))))
    for name, rows in (("more.csv", 152), ("turned.csv", 150)):
        split, number, said = scored(hf_mlcl, tmp_path / name, trained)
        assert (split, number) == ("all", rows)
        assert f"{name} is not what the classifier was trained on: all {rows} rows are scored" in said
    changed = scored(hf_mlcl, reviews, copy_of_training(trained, tmp_path, reviews))[2]
    assert "reviews.csv has changed since the classifier was trained on it, and most of it was trained on" in changed
    cut_off = len(read_own_data(tmp_path / "more.csv").splits["test"])
    assert scored(hf_mlcl, tmp_path / "more.csv", trained, "--split", "test")[:2] == ("test", cut_off)


def test_a_test_split_that_the_data_bring_is_scored(hf_mlcl, trained, reviews, tmp_path):
    (tmp_path / "train.csv").write_text(rows_of(reviews, 0, 1, 2))
    (tmp_path / "test.csv").write_text(rows_of(reviews, 3, 4, 5, 6))
    assert scored(hf_mlcl, tmp_path, trained) == ("test", 4, "")
    assert scored(hf_mlcl, tmp_path, trained, "--split", "all")[:2] == ("all", 7)


def test_data_are_read_with_the_columns_of_the_training(hf_mlcl, reviews, tmp_path):
    table = pd.read_csv(reviews).rename(columns={"text": "title", "tags": "rubric"}).assign(text="always the same")
    table.to_csv(tmp_path / "data.csv", index=False)
    columns = ("--text_column", "title", "--label_columns", "rubric")
    hf_mlcl("train", tmp_path / "data.csv", "--output_dir", tmp_path / "run", *columns, *QUICK)
    split, _, said = scored(hf_mlcl, tmp_path / "data.csv", tmp_path / "run")
    assert (split, said) == ("test", "")


def test_a_classifier_of_unknown_training_is_scored_on_every_row(hf_mlcl, trained, reviews, tmp_path):
    shutil.copytree(trained / "classifier", tmp_path / "alone")
    split, number, said = scored(hf_mlcl, reviews, tmp_path / "alone")
    assert (split, number) == ("all", 150)
    assert "It is not known whether the classifier was trained on" in said


def test_a_size_is_refused_for_data_of_ones_own(hf_mlcl, trained, reviews):
    assert "--size" in hf_mlcl("evaluate", reviews, "--model", trained, "--size", "small", code=2).stderr


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_text_is_refused(hf_mlcl, trained, text):
    assert "An empty text has no labels" in hf_mlcl("predict", text, "--model", trained, code=1).stderr


def test_labels_that_the_classifier_does_not_know_are_named(hf_mlcl, trained, tmp_path):
    (tmp_path / "other.csv").write_text("text,tags\n" + "x,unheard|of\ny,of\n" * 10)
    message = hf_mlcl("evaluate", tmp_path / "other.csv", "--model", trained, code=1).stderr
    assert "labels that the classifier does not know: of, unheard" in message


def test_images_are_refused_by_a_classifier_of_texts(hf_mlcl, trained, tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    (tmp_path / "metadata.csv").write_text("path,labels\na.png,x\n")
    message = hf_mlcl("predict", tmp_path / "metadata.csv", "--model", trained, code=1).stderr
    assert "has images in column 'path', but texts are wanted" in message
    message = hf_mlcl("predict", tmp_path / "a.png", "--model", trained, code=1).stderr
    assert f"This classifier takes texts; {tmp_path / 'a.png'} is an image" in message
    assert "'b.png' is not there" in hf_mlcl("predict", "b.png", "--model", trained, code=1).stderr


def test_a_table_without_rows_has_nothing_to_predict(hf_mlcl, trained, tmp_path):
    (tmp_path / "head.csv").write_text("text,tags\n")
    for command in (["predict", tmp_path / "head.csv", "--model", trained], ["train", tmp_path / "head.csv"]):
        assert "head.csv has a header but no rows" in hf_mlcl(*command, code=1).stderr


# Pushing --------------------------------------------------------------------------------------------------------------


def test_an_experiments_folder_pushes_its_classifier_privately(hf_mlcl, trained, tmp_path):
    with HubServer() as server, server.here(tmp_path / "cache"):
        assert "classifier" in hf_mlcl("push", trained, f"{USER}/reviews").stderr
        repository = server.repositories["model", f"{USER}/reviews"]
    assert repository.private
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md"} <= repository.files.keys()
    assert repository.files["model.safetensors"] == (trained / "classifier" / "model.safetensors").read_bytes()


def test_what_cannot_be_pushed_is_said_without_asking_the_hub(hf_mlcl, trained, tmp_path):
    with HubServer() as server, server.here(tmp_path / "cache"):
        assert "holds no model" in hf_mlcl("push", tmp_path, f"{USER}/nothing", code=1).stderr
        assert "'nosuch' is not a folder" in hf_mlcl("push", "nosuch", f"{USER}/nothing", code=1).stderr
        assert "'me/a/b' cannot name a repository" in hf_mlcl("push", trained, "me/a/b", code=1).stderr
        assert not server.requests


def test_a_push_tells_programs_where_it_went(hf_mlcl, trained, tmp_path):
    with HubServer() as server, server.here(tmp_path / "cache"):
        told = in_json(hf_mlcl("push", trained, f"{USER}/told", "--json"))
    assert told["repo_id"] == f"{USER}/told"
    assert told["commit"].startswith(f"{server.url}/{USER}/told/commit/")


def test_whoever_is_not_logged_in_is_told_so(hf_mlcl, trained, tmp_path, monkeypatch):
    with HubServer() as server, server.here(tmp_path / "cache"):
        monkeypatch.setenv("HF_TOKEN", "hf_wrong")
        assert "log in with `hf auth login`" in hf_mlcl("push", trained, f"{USER}/x", code=1).stderr
        assert not server.repositories


def test_a_training_that_could_not_be_pushed_is_not_begun(hf_mlcl, reviews, tmp_path, monkeypatch):
    monkeypatch.setattr("hf_mlcl.data.download.hub_is_reachable", lambda: False)
    arguments = ("--output_dir", tmp_path / "run", "--push_to_hub", *QUICK)
    assert "The Hub cannot be reached" in hf_mlcl("train", reviews, *arguments, code=1).stderr
    assert not (tmp_path / "run").exists()


def test_a_push_that_fails_after_the_training_loses_nothing_and_says_how_to_repeat_it(
    hf_mlcl, reviews, tmp_path, monkeypatch
):
    def fail(*_, **__):
        raise ConnectionError("the line\nis cut")

    monkeypatch.setattr("hf_mlcl.experiments.running.push_folder", fail)
    folder = tmp_path / "run"
    with HubServer() as server, server.here(tmp_path / "cache"):
        result = hf_mlcl("train", reviews, "--output_dir", folder, "--push_to_hub", *QUICK, code=1)
    assert "macro_f1" in result.stdout
    assert f"Saved in {folder}" in result.stderr
    encoder = f"hf-mlcl push {folder / 'backbone'} run"
    both = f"{encoder} && hf-mlcl push {folder / 'classifier'} run-classifier"
    assert f"push failed: the line is cut; repeat with {both}" in " ".join(result.stderr.split())
    assert (folder / "classifier" / "model.safetensors").is_file()


def test_without_a_way_to_the_hub_nothing_is_pushed(hf_mlcl, trained, monkeypatch):
    monkeypatch.setattr("hf_mlcl.data.download.hub_is_reachable", lambda: False)
    assert "The Hub cannot be reached" in hf_mlcl("push", trained, "me/reviews", code=1).stderr


# The demo -------------------------------------------------------------------------------------------------------------


def test_the_demo_ends_with_a_table_a_picture_and_a_classifier(hf_mlcl, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quick = ("--epochs", "1", "--max_train_samples", "128", "--max_eval_samples", "64", "--linear_epochs", "2")
    with monkeypatch.context() as two_cores:
        two_cores.setattr("torch.get_num_threads", lambda: 2)
        two_cores.setattr("hf_mlcl.recipes.quickstart.run_experiment", None)  # other processes do it
        printed = hf_mlcl("demo", *quick).stdout
    for loss in ("bce", "zlpr", "reg", "reg+zlpr"):
        assert f"\n{loss} " in printed
        assert (tmp_path / "outputs" / "demo" / loss / "metrics.json").is_file()
    with Image.open(tmp_path / "outputs" / "demo" / "scores.png") as picture:
        assert picture.size[0] > 500
    assert "Using outputs/demo/classifier" in hf_mlcl("predict", "some text").stderr
    hf_mlcl("demo", *quick, "--losses", "bce")  # once more in the same folder, in this process


def test_settings_that_are_wrong_stop_the_demo_before_anything_is_made(hf_mlcl, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failed = hf_mlcl("demo", "--max_train_samples", "-3", code=1)
    assert "max_train_samples must be at least 1" in failed.stderr
    assert not list(tmp_path.iterdir())


BROKEN = """
import sys
sys.argv = ["hf-mlcl", "doctor"]  # before the package is loaded, which loads no models in the program
import hf_mlcl.cli.doctor as doctor
from hf_mlcl.cli import main

def broken(*_):
    raise BrokenPipeError(32, "Broken pipe of a worker")

doctor._versions = broken
main()
"""


@pytest.mark.parametrize("traceback", [False, True])
def test_a_pipe_that_is_not_our_own_output_does_not_break_in_silence(traceback):
    environment = (
        os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | ({"HF_MLCL_TRACEBACK": "1"} if traceback else {})
    )
    done = subprocess.run([sys.executable, "-c", BROKEN], capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert "Broken pipe of a worker" in done.stderr
    assert ("Traceback" in done.stderr) == traceback


@pytest.mark.parametrize(("said", "expected"), [(None, "passive"), ("active", "active")])
def test_threads_that_wait_leave_a_busy_machine_to_others_unless_somebody_says_otherwise(said, expected):
    program = """
import os, sys
from hf_mlcl.cli import main

sys.argv = ["hf-mlcl", "losses"]
loaded = "torch" in sys.modules
try:
    main()
finally:
    print(loaded, os.environ["OMP_WAIT_POLICY"], file=sys.stderr)
"""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {} if said is None else {"OMP_WAIT_POLICY": said}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == f"False {expected}"


def test_the_demo_refuses_a_loss_of_its_own(hf_mlcl):
    assert "is not for the demo" in hf_mlcl("demo", "--loss", "msc", code=2).stderr
