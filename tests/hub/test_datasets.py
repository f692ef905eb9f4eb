"""Corpora and metrics on the Hub."""

from __future__ import annotations

import yaml
from datasets import load_dataset

from hf_mlcl import load_corpus
from hf_mlcl.metrics import list_modules, module_path
from hub.hub_server import USER, card_errors


def test_a_corpus_that_is_pushed_and_loaded_keeps_rows_and_features(server, tmp_path):
    corpus = load_corpus("toy_text", cache_dir=tmp_path / "corpora")
    for split in corpus:
        corpus[split] = corpus[split].select(range(40))
    with server.here(tmp_path / "hub"):
        corpus.push_to_hub(f"{USER}/toy_text", private=True)
        loaded = load_dataset(f"{USER}/toy_text", cache_dir=str(tmp_path / "datasets"))
    assert server.repositories["dataset", f"{USER}/toy_text"].private
    assert list(loaded) == ["train", "validation", "test"]
    for split, rows in corpus.items():
        assert loaded[split].features == rows.features
        assert loaded[split].features["labels"].feature.names[:3] == ["boats", "bread", "trees"]
        assert loaded[split].to_list() == rows.to_list()


def test_every_metric_has_a_card_that_the_hub_takes():
    for name in list_modules():
        with open(f"{module_path(name)}/README.md", encoding="utf-8") as file:
            content = file.read()
        assert card_errors(content, "space") == []
        data = yaml.safe_load(content.split("---\n")[1])
        assert {"title", "sdk", "license", "tags", "description"} <= data.keys()
        for heading in ("## How to use", "### Inputs", "### Output", "## Limitations", "## Citation"):
            assert heading in content, (name, heading)
