"""Cleaning, and tokenised corpora that are computed once."""

from __future__ import annotations

import errno
import re

import datasets
import pytest
from datasets import Dataset, DatasetDict
from hypothesis import given
from hypothesis import strategies as st
from transformers import TrainingArguments

from data.test_labels_and_collators import tokenizer  # noqa: F401  (a fixture)
from hf_mlcl.data import CorpusFileError, clean_text, text, tokenize, word_tokenizer


@given(st.text())
def test_cleaned_text_has_only_the_studys_characters_and_is_clean(raw):
    cleaned = clean_text(raw)
    assert re.fullmatch(r"[a-z0-9(),!?'`. ]*", cleaned)
    assert "  " not in cleaned
    assert clean_text(cleaned) == cleaned


@pytest.fixture
def corpus(tmp_path):
    rows = {"text": ["one two three", "", "Two!"], "labels": [[0], [], [1]]}
    Dataset.from_dict(rows).save_to_disk(tmp_path / "corpus")
    return Dataset.load_from_disk(tmp_path / "corpus")


def test_tokens_are_truncated_measured_and_keep_the_labels(corpus, tokenizer):  # noqa: F811
    tokens = tokenize(corpus, tokenizer, max_length=2)
    assert tokens["input_ids"][:] == [[2, 3], [], [1, 1]]
    assert tokens["length"][:] == [2, 0, 2]
    assert tokens["labels"][:] == [[0], [], [1]]
    assert "text" not in tokens.column_names


def test_cleaning_happens_before_tokenising(corpus, tokenizer):  # noqa: F811
    assert tokenize(corpus, tokenizer, clean=True)["input_ids"][2] == [3, 1]


@pytest.mark.parametrize("num_proc", [None, 2])
def test_the_second_call_opens_the_cache_although_the_tokenizer_was_used(corpus, tokenizer, monkeypatch, num_proc):  # noqa: F811
    first = tokenize(corpus, tokenizer, max_length=2, num_proc=num_proc)
    tokenizer(["one two three"], padding="max_length", truncation=True, max_length=1)  # changes its state

    def fail(*args, **kwargs):
        raise AssertionError("tokenised again")

    with monkeypatch.context() as patch:
        patch.setattr(text, "_encode", fail)
        again = tokenize(corpus, tokenizer, max_length=2, num_proc=num_proc)
    assert again[:] == first[:]
    assert tokenize(corpus, tokenizer, max_length=3)["length"][:] == [3, 0, 2]


def test_all_splits_of_a_corpus_are_tokenised(corpus, tokenizer):  # noqa: F811
    both = tokenize(DatasetDict(train=corpus, test=corpus.select([0])), tokenizer)
    assert [len(split) for split in both.values()] == [3, 1]


def test_a_missing_column_is_named(corpus, tokenizer):  # noqa: F811
    with pytest.raises(ValueError, match="text_column='abstract' is not a column of the corpus: it has text, labels"):
        tokenize(corpus, tokenizer, text_column="abstract")


def test_the_trainer_groups_by_the_length_column_that_tokenize_makes(corpus, tokenizer, tmp_path):  # noqa: F811
    arguments = TrainingArguments(str(tmp_path), train_sampling_strategy="group_by_length", use_cpu=True)
    assert arguments.length_column_name in tokenize(corpus, tokenizer).column_names


def test_a_full_disk_is_named_when_tokens_are_written(tmp_path, monkeypatch):
    Dataset.from_dict({"text": ["a cat", "a dog"] * 10}).save_to_disk(tmp_path)
    corpus = Dataset.load_from_disk(tmp_path)

    def fails(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    words = word_tokenizer(corpus["text"][:5])
    with monkeypatch.context() as patch:
        patch.setattr(datasets.arrow_writer.ArrowWriter, "finalize", fails)
        with pytest.raises(CorpusFileError, match=rf"The disk of {tmp_path}\S* is full"):
            tokenize(corpus, words)
    assert len(tokenize(corpus, words)) == len(corpus)
