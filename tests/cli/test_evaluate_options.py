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
    monkeypatch.setattr(evaluate, "_settings_of_training", lambda model: trained)
    (test,) = evaluate._corpus_rows("semeval2018", "test", str(tweets), None, "model")
    assert len(test) == rows
    assert ("labelled_only=True, as in training" in capsys.readouterr().err) == (rows == 1)
