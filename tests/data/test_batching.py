"""Batches of like length."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from datasets import Dataset, concatenate_datasets

from hf_mlcl.data import length_grouped_sampler
from hf_mlcl.data.text import row_lengths


@pytest.fixture(scope="module")
def tokens():
    rng = np.random.default_rng(0)
    return Dataset.from_dict(
        {"input_ids": [[1] * length for length in rng.integers(0, 200, 2000)], "labels": [[0]] * 2000}
    )


def padded_tokens(order, lengths, batch):
    return sum(batch * max(lengths[i] for i in order[start : start + batch]) for start in range(0, len(order), batch))


def test_lengths_are_those_of_the_rows_also_after_selecting_and_concatenating(tokens):
    assert row_lengths(tokens) == [len(ids) for ids in tokens["input_ids"]]
    mixed = concatenate_datasets([tokens.select([7, 3]), tokens.select(range(5))])
    assert row_lengths(mixed) == [len(ids) for ids in mixed["input_ids"]]
    assert row_lengths(tokens.select([])) == []


def test_every_row_comes_once_and_padding_falls_by_a_third(tokens):
    lengths = row_lengths(tokens)
    order = list(length_grouped_sampler(tokens, 20, torch.Generator().manual_seed(0)))
    assert sorted(order) == list(range(len(tokens)))
    assert padded_tokens(order, lengths, 20) < 0.66 * padded_tokens(range(len(tokens)), lengths, 20)


def test_the_generator_decides_the_order(tokens):
    orders = [list(length_grouped_sampler(tokens, 20, torch.Generator().manual_seed(seed))) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]


def test_texts_that_are_not_tokenised_say_how_to():
    with pytest.raises(ValueError, match=r"column='input_ids' is not a column of the dataset: it has text\. Tokenise"):
        row_lengths(Dataset.from_dict({"text": ["a"]}))
