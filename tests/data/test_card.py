"""The corpus card counts what naive loops count."""

from __future__ import annotations

import io

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value
from PIL import Image

from hf_mlcl.data import corpus_card


def corpus_of(**splits):
    features = Features({"text": Value("string"), "labels": List(ClassLabel(names=["a", "b", "c", "never"]))})
    return DatasetDict(
        {
            split: Dataset.from_dict({"text": ["x"] * len(rows), "labels": rows}, features=features)
            for split, rows in splits.items()
        }
    )


@pytest.fixture
def card():
    return corpus_card(corpus_of(train=[[0, 1], [0], [], [0, 1, 2]], test=[[0, 1], [2]]))


def test_counts_are_those_of_naive_loops(card):
    assert card.split_sizes == {"train": 4, "test": 2}
    assert card.unlabelled == {"train": 1, "test": 0}
    assert card.counts["train"].tolist() == [3, 2, 1, 0]
    assert card.frequencies.tolist() == [4, 3, 2, 0]
    assert card.set_sizes.tolist() == [1, 2, 2, 1]
    assert card.co_occurrence.tolist() == [[4, 3, 1, 0], [3, 3, 1, 0], [1, 1, 2, 0], [0, 0, 0, 0]]
    assert card.cardinality == 9 / 6
    assert card.imbalance_ratios.tolist() == [1, 4 / 3, 2, np.inf]
    assert card.mean_imbalance == pytest.approx((1 + 4 / 3 + 2) / 3)
    assert card.conditional()[1].tolist() == [1, 1, 1 / 3, 0]


def test_counts_do_not_depend_on_chunks_and_selections():
    corpus = corpus_of(train=[[0], [1], [0, 2], [2], []])
    picked = DatasetDict(train=corpus["train"].select([4, 2, 0]))
    assert corpus_card(picked).frequencies.tolist() == [2, 0, 1, 0]
    assert corpus_card(corpus_of(train=[[]], test=[])).cardinality == 0


def test_the_card_prints_its_numbers(load):
    card = corpus_card(load("toy_text"))
    text = str(card)
    assert text.startswith("toy_text: 28 labels, ")
    assert "train 3,000 (0 without a label)" in text
    assert "(lift " in text


def test_a_label_that_never_occurs_is_counted_and_not_divided_by(card):
    assert "1 never occur" in str(card)
    card.figure()


@pytest.mark.parametrize("labels", [3, 60])
def test_the_figure_draws_few_and_many_labels(labels):
    rng = np.random.default_rng(0)
    names = [f"label {number}" for number in range(labels)]
    rows = [sorted(set(rng.integers(0, labels, 3).tolist())) for _ in range(200)]
    features = Features({"text": Value("string"), "labels": List(ClassLabel(names=names))})
    corpus = DatasetDict(train=Dataset.from_dict({"text": [""] * 200, "labels": rows}, features=features))
    file = io.BytesIO()
    corpus_card(corpus).figure().savefig(file, dpi=60)
    assert Image.open(file).size == (750, 432)


def test_a_corpus_without_label_names_says_how_to_give_them():
    with pytest.raises(ValueError, match="no column 'labels' with lists of ClassLabel ids"):
        corpus_card(DatasetDict(train=Dataset.from_dict({"labels": [[0]]})))
