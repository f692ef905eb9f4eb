"""A classifier is scored on the rows that it was meant for."""

from __future__ import annotations

import pytest

from data import official
from hf_mlcl.cli import evaluate

TWEETS = "ID\tTweet\tanger\tjoy\n1\thm\t1\t0\n2\tso\t0\t0\n"


@pytest.fixture
def tweets(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    files = {f"2018-E-c-En-{part}.txt": TWEETS for part in ("train", "dev", "test-gold")}
    return official.write_files(tmp_path / "data", files)


@pytest.mark.parametrize(
    ("trained", "rows"),
    [
        ({"corpus": "semeval2018", "corpus_options": {"labelled_only": True}, "seed": 0}, 1),
        ({"corpus": "semeval2018", "corpus_options": None}, 2),
        ({"corpus": "aapd", "corpus_options": {"labelled_only": True}}, 2),
        ({}, 2),
    ],
)
def test_a_corpus_is_scored_with_the_options_of_the_training(tweets, trained, rows, monkeypatch, capsys):
    monkeypatch.setattr("hf_mlcl.experiments.prediction.training_settings", lambda model: trained)
    splits = evaluate.corpus_splits("semeval2018", str(tweets), None, "model")
    assert len(splits["test"]) == rows
    assert ("labelled_only=True, as in training" in capsys.readouterr().err) == (rows == 1)


@pytest.mark.parametrize(
    ("data", "option", "message"),
    [
        ("mine.csv", ("--data_dir", "somewhere"), "--data_dir is for the corpora"),
        ("mine.csv", ("--size", "small"), "--size is for the corpora"),
        ("toy_text", ("--text_column", "text"), "--text_column is for data of your own"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(hf_mlcl, tmp_path, data, option, message):
    outcome = hf_mlcl("evaluate", data, "--model", tmp_path, *option, code=2)
    assert message in " ".join(outcome.output.split())
