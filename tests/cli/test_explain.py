"""``hf-mlcl explain``, and the page that ``train`` writes."""

from __future__ import annotations

import json
import logging

import pandas as pd
import pytest

from cli.conftest import QUICK
from experiments import toy
from hf_mlcl.experiments import explaining
from hf_mlcl.experiments.results import ExperimentResult
from pages.made import data_of


def test_train_writes_the_page_of_its_classifier_and_the_card_links_it(trained):
    page = (trained / "explain.html").read_text(encoding="utf-8")
    result = ExperimentResult.load(trained)
    rows = data_of(page)["datasets"]["rows"]
    assert {label for row in rows for label in row["truth"]} <= set(range(len(result.per_label)))
    assert f"{result.verdict['scores']['trained']['macro_f1'][0]:.3f}" in page
    assert "frozen encoder" in page
    assert "[explain.html](../explain.html)" in (trained / "classifier" / "README.md").read_text(encoding="utf-8")


def test_explain_shows_the_rows_and_scores_that_train_showed(hf_mlcl, trained, reviews, tmp_path):
    told = json.loads(
        hf_mlcl(
            "explain", trained, reviews, "--output", tmp_path / "page.html", "--json", "--feature_cache_dir", tmp_path
        ).stdout
    )
    again, before = (
        data_of(path.read_text(encoding="utf-8")) for path in (tmp_path / "page.html", trained / "explain.html")
    )
    assert told["split"] == "test"
    keys = ("id", "text", "truth", "given", "near")
    for one, other in zip(again["datasets"]["rows"], before["datasets"]["rows"], strict=True):
        assert {key: one[key] for key in keys[:4]} == {key: other[key] for key in keys[:4]}
    assert told["scores"]["macro_f1"] == pytest.approx(
        ExperimentResult.load(trained).verdict["scores"]["trained"]["macro_f1"][0], abs=1e-3
    )
    assert len(list(tmp_path.glob("*.safetensors"))) == 2  # test and training rows, for the next time


def test_rows_are_found_again_in_the_file_of_the_user(trained, reviews):
    """Texts are cut in the page, so that each begins the cell of the line that it is said to be in."""
    lines = reviews.read_text(encoding="utf-8").splitlines()
    rows = data_of((trained / "explain.html").read_text(encoding="utf-8"))["datasets"]["rows"]
    for row in rows:
        name, number = row["place"].split(", line ")
        assert name == reviews.name
        assert lines[int(number) - 1].lstrip('"').startswith(row["text"].rstrip("…")[:60])
    assert len({row["place"] for row in rows}) == len(rows)


def test_rows_without_a_text_are_left_out_and_counted(hf_mlcl, trained, reviews, tmp_path):
    table = pd.read_csv(reviews).head(20)
    table["text"] = "other " + table["text"]
    table.loc[3, "text"] = None
    table.to_csv(tmp_path / "holes.csv", index=False)
    for command in (
        ["explain", trained, tmp_path / "holes.csv", "--output", tmp_path / "x.html"],
        ["evaluate", tmp_path / "holes.csv", "--model", trained],
    ):
        told = hf_mlcl(*command, "--json")
        assert "a row without a text was left out" in told.stderr
        assert json.loads(told.stdout)["rows"] == 19


def test_data_that_it_was_not_trained_on_are_explained_without_training_rows(hf_mlcl, trained, reviews, tmp_path):
    table = pd.read_csv(reviews).head(20)
    table["text"] = "other " + table["text"]
    table.to_csv(tmp_path / "new.csv", index=False)
    result = hf_mlcl("explain", trained, tmp_path / "new.csv", "--output", tmp_path / "new.html")
    assert "all 20 rows are scored" in result.stderr
    assert "probably labelled wrongly" not in (tmp_path / "new.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--output", "page.pdf"], "must be a file that ends in .html"),
        (["--map", "sphere"], "--map must be one of pca, tsne, umap"),
        (["--split", "dev"], "--split must be one of"),
        (["--size", "small"], "--size is for the corpora"),
    ],
)
def test_wrong_arguments_are_named(hf_mlcl, trained, reviews, wrong, message):
    assert message in " ".join(hf_mlcl("explain", trained, reviews, *wrong, code=2).stderr.replace("│", " ").split())


def test_train_without_a_page_writes_none_and_refuses_a_contradiction(hf_mlcl, reviews, tmp_path):
    hf_mlcl("train", reviews, "--output_dir", tmp_path / "run", "--export", "False", *QUICK)
    assert not (tmp_path / "run" / "explain.html").exists()
    assert "explain.html" not in (tmp_path / "run" / "classifier" / "README.md").read_text(encoding="utf-8")
    hf_mlcl("train", reviews, "--page", "True", *QUICK, code=2)


def test_a_page_that_cannot_be_written_fails_no_training(tmp_path, monkeypatch, caplog):
    def broken(*arguments, **more):
        raise RuntimeError("no ink")

    monkeypatch.setattr(explaining, "write_explain_page", broken)
    with caplog.at_level(logging.WARNING):
        result = toy.run(tmp_path / "run", page=True)
    assert "its page could not be written: RuntimeError: no ink" in caplog.text
    assert not (tmp_path / "run" / "explain.html").exists()
    assert (result.folder / "classifier" / "README.md").is_file()


def test_a_page_of_an_earlier_training_does_not_stay(tmp_path):
    toy.run(tmp_path / "run", page=True, loss="zlpr")  # whose training rows training has no need of
    assert (tmp_path / "run" / "explain.html").is_file()
    toy.run(tmp_path / "run", overwrite=True)
    assert not (tmp_path / "run" / "explain.html").exists()
