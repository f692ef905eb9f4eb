"""The built-in corpora: quick, the same everywhere, and neither trivial nor hopeless."""

from __future__ import annotations

import hashlib
from dataclasses import astuple

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.multiclass import OneVsRestClassifier

from hf_mlcl.data import corpus_facts, encode_labels
from hf_mlcl.data.corpora import toy_images, toy_text

TOYS = ("toy_text", "toy_images")


def targets(data):
    return encode_labels(data["labels"][:], len(data.features["labels"].feature.names))


@pytest.mark.parametrize("name", TOYS)
def test_it_builds_with_its_stated_sizes(load, name):
    corpus = load(name)
    assert [len(data) for data in corpus.values()] == list(astuple(corpus_facts(name).sizes))


@pytest.mark.parametrize("name", TOYS)
def test_the_small_version_has_a_fifth_of_train_every_label_and_the_same_test(load, name):
    full, small = load(name), load(name, size="small")
    assert len(small["train"]) == len(full["train"]) // 5
    assert targets(small["train"]).sum(axis=0).min() >= 1
    assert small["test"]["labels"][:] == full["test"]["labels"][:]


def test_generation_is_pinned():
    text = toy_text.make_document(np.random.default_rng([toy_text.SEED, 0]))
    picture = toy_images.make_picture(np.random.default_rng([toy_images.SEED, 0]))
    again = toy_images.make_picture(np.random.default_rng([toy_images.SEED, 0]))
    assert text.labels == ("bread", "spices", "wine")
    assert hashlib.sha256(text.content.encode()).hexdigest()[:8] == "cfe16ec3"
    assert picture == again


@pytest.mark.parametrize(("name", "labels"), [("toy_text", 24), ("toy_images", 12)])
def test_labels_are_many_long_tailed_correlated_and_in_every_split(load, name, labels):
    corpus = load(name)
    for data in corpus.values():
        assert targets(data).sum(axis=0).min() >= 5
    train = targets(corpus["train"])
    counts = np.sort(train.sum(axis=0))[::-1]
    assert len(counts) >= labels
    assert counts[0] >= 8 * counts[-1]
    assert counts[: len(counts) // 5].sum() > 0.35 * counts.sum()
    together = train.T @ train / len(train)
    own = np.diag(together)
    lift = together / np.outer(own, own)
    assert (lift[np.triu_indices(len(own), 1)] > 2).sum() >= len(own) // 2
    assert 1.5 < train.sum(axis=1).mean() < 3


def macro_f1(model, train, test, train_targets, test_targets):
    predictions = OneVsRestClassifier(model).fit(train, train_targets).predict(test)
    return f1_score(test_targets, predictions, average="macro", zero_division=0)


def test_a_bag_of_words_neither_solves_nor_fails_toy_text(load):
    corpus = load("toy_text")
    vectorizer = CountVectorizer()
    train, test = vectorizer.fit_transform(corpus["train"]["text"]), vectorizer.transform(corpus["test"]["text"])
    score = macro_f1(
        LogisticRegression(solver="liblinear"), train, test, targets(corpus["train"]), targets(corpus["test"])
    )
    assert 0.2 < score < 0.9
    assert 400 < len(vectorizer.vocabulary_) < 2000


def test_pairs_of_words_tell_more_about_toy_text_than_words(load):
    corpus = load("toy_text")
    scores = []
    for ngrams in ((1, 1), (1, 2)):
        vectorizer = CountVectorizer(ngram_range=ngrams, min_df=3)
        train, test = vectorizer.fit_transform(corpus["train"]["text"]), vectorizer.transform(corpus["test"]["text"])
        model = LogisticRegression(solver="liblinear")  # quick on thousands of sparse columns
        scores.append(macro_f1(model, train, test, targets(corpus["train"]), targets(corpus["test"])))
    assert scores[1] > scores[0] + 0.1


def test_raw_pixels_neither_solve_nor_fail_toy_images(load):
    corpus = load("toy_images")
    pixels = {split: np.stack([np.asarray(image) for image in corpus[split]["image"]]) for split in ("train", "test")}
    train, test = (values.reshape(len(values), -1) / 255 - 0.5 for values in pixels.values())
    model = LogisticRegression(max_iter=30, tol=1e-2)
    score = macro_f1(model, train, test, targets(corpus["train"]), targets(corpus["test"]))
    assert 0.2 < score < 0.9
