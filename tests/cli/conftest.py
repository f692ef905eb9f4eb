"""A small trained classifier, and the program to run."""

from __future__ import annotations

import pandas as pd
import pytest
from typer.testing import CliRunner

from hf_mlcl.cli.app import app
from hf_mlcl.data import load_corpus


@pytest.fixture
def hf_mlcl():
    """Run the program; returns what it printed and its code."""

    def call(*arguments, code=0):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        shown = f"{result.output}\n{result.stderr}"
        assert result.exit_code == code, shown if result.exception is None else f"{shown}\n{result.exception!r}"
        return result

    return call


@pytest.fixture(scope="session")
def reviews(tmp_path_factory):
    """A CSV of texts and labels, a few of the built-in documents."""
    corpus = load_corpus("toy_text")["train"].select(range(150))
    names = corpus.features["labels"].feature.names
    table = pd.DataFrame(
        {"text": corpus["text"], "tags": ["|".join(names[i] for i in row) for row in corpus["labels"]]}
    )
    path = tmp_path_factory.mktemp("data") / "reviews.csv"
    table.to_csv(path, index=False)
    return path


SMALL = ["--backbone", "small", "--epochs", "1", "--batch_size", "16", "--use_cpu"]
QUICK = [*SMALL, "--no_page"]


@pytest.fixture(scope="session")
def trained(reviews, tmp_path_factory):
    """The output folder of a training."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    result = CliRunner().invoke(app, ["train", str(reviews), "--output_dir", str(folder), *SMALL])
    assert result.exit_code == 0, f"{result.output}\n{result.stderr}\n{result.exception!r}"
    return folder
