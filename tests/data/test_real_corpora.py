"""Counts on real files; each test skips where they are not there."""

from __future__ import annotations

import dataclasses

import datasets
import numpy as np
import pytest

from hf_mlcl.data import CorpusWarning, corpus_facts
from hf_mlcl.experiments import build_experiment, study_recipe
from hf_mlcl.experiments.inputs import load_data


def sizes(corpus):
    return {split: len(data) for split, data in corpus.items()}


def names(corpus):
    return next(iter(corpus.values())).features["labels"].feature.names


def test_semeval_has_its_official_sizes_labels_and_unlabelled_rows(load, real_data):
    corpus = load("semeval2018", data_dir=real_data / "semeval2018_ec")
    assert sizes(corpus) == {"train": 6838, "validation": 886, "test": 3259}
    assert len(names(corpus)) == 11
    assert [sum(not labels for labels in data["labels"]) for data in corpus.values()] == [204, 14, 75]
    assert corpus["train"][0]["text"].startswith("“Worry is a down payment")
    assert [names(corpus)[i] for i in corpus["train"][0]["labels"]] == ["anticipation", "optimism", "trust"]


def test_labelled_semeval_has_the_sizes_that_the_paper_counts(load, real_data):
    corpus = load("semeval2018", data_dir=real_data / "semeval2018_ec", labelled_only=True)
    assert sizes(corpus) == {"train": 6634, "validation": 872, "test": 3184}  # 6.6k and 3.2k there
    assert tuple(sizes(corpus).values()) == dataclasses.astuple(corpus_facts("semeval2018").labelled_sizes)
    assert all(labels for data in corpus.values() for labels in data["labels"])


def test_the_recipe_of_semeval_trains_on_the_rows_that_the_paper_counts(real_data, cache_dir, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache_dir)
    settings = {"data_dir": real_data / "semeval2018_ec", "use_cpu": True}
    assert len(load_data(*build_experiment(study_recipe("semeval2018"), settings))["train"]) == 6634
    everything = {**settings, "corpus_options": {"labelled_only": False}}
    assert len(load_data(*build_experiment(study_recipe("semeval2018"), everything))["train"]) == 6838


def test_newsgroups_have_all_posts_in_twenty_classes_with_validation_held_out_of_train(load, real_data):
    corpus = load("newsgroups20", data_dir=real_data / "20newsgroups")
    assert sum(sizes(corpus).values()) == 18_846
    assert len(corpus["train"]) + len(corpus["validation"]) == 11_314
    assert len(names(corpus)) == 20
    for data in corpus.values():
        assert {len(labels) for labels in data["labels"]} == {1}
        assert len({labels[0] for labels in data["labels"]}) == 20


@pytest.fixture(scope="module")
def coco(real_data, cache_dir):
    from hf_mlcl.data import load_corpus

    return load_corpus("coco2014", data_dir=real_data / "coco2014_mini", cache_dir=cache_dir)


def test_coco_mini_has_its_sizes_classes_and_mean_labels(coco):
    assert sizes(coco) == {"train": 6000, "validation": 1500, "test": 1500}
    assert len(names(coco)) == 80
    mean = np.mean([len(labels) for data in coco.values() for labels in data["labels"]])
    assert round(float(mean), 1) == 2.9


def test_coco_images_stay_encoded_until_they_are_used(coco):
    raw = coco["train"].cast_column("image", coco["train"].features["image"].__class__(decode=False))[0]["image"]
    assert raw["bytes"][:2] == b"\xff\xd8"
    assert coco["train"][0]["image"].size == (128, 128)


def test_coco_halves_share_no_image(coco):
    paths = [
        {row["path"] for row in data.cast_column("image", data.features["image"].__class__(decode=False))["image"]}
        for data in (coco["validation"], coco["test"])
    ]
    assert len(paths[0]) == len(paths[1]) == 1500
    assert not paths[0] & paths[1]


def test_arxiv54_goes_through_the_aapd_builder(load, real_data):
    corpus = load("aapd", data_dir=real_data / "arxiv54")
    assert sizes(corpus) == {"train": 6000, "validation": 2000, "test": 4000}
    assert len(names(corpus)) == 54


def test_aapd_partial_goes_through_its_sgm_layout_and_says_that_train_is_missing(load, real_data):
    with pytest.warns(CorpusWarning, match="train: text_train(.|\n)*the study's split needs all"):
        corpus = load("aapd", data_dir=real_data / "aapd_partial")
    assert sizes(corpus) == {"validation": 1000, "test": 1000}
    assert all(text.strip() for data in corpus.values() for text in data["text"])
    assert len(names(corpus)) == 54


def test_aapd_in_its_sgm_layout_is_parted_as_in_the_study(load, real_data, tmp_path):
    """The labels of all papers are there, and the abstracts of validation and test; those of training stand in."""
    for file in (real_data / "aapd_partial").iterdir():
        (tmp_path / file.name).symlink_to(file)
    with open(real_data / "aapd_partial" / "label_train", "rb") as file:
        papers = sum(1 for _ in file)
    (tmp_path / "text_train").write_text("".join(f"abstract {number}\n" for number in range(papers)))
    corpus = load("aapd", data_dir=tmp_path)
    assert sizes(corpus) == {"train": 37_820, "validation": 6_710, "test": 11_310}  # 37.8k, 6.7k, 11.3k
    for data in corpus.values():
        assert len({label for labels in data["labels"] for label in labels}) == 54


def test_small_arxiv54_keeps_the_studys_proportions_and_every_label(load, real_data):
    corpus = load("aapd", size="small", data_dir=real_data / "arxiv54")
    assert sizes(corpus) == {"train": 935, "validation": 3514, "test": 7551}
    present = {label for labels in corpus["train"]["labels"] for label in labels}
    assert len(present) == 53  # cmp-lg never occurs
