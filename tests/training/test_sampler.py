"""Batches in which rare labels have partners."""

from __future__ import annotations

import hypothesis.strategies as st
import torch
from hypothesis import given

from hf_mlcl.training import LabelAwareSampler


@given(st.lists(st.lists(st.integers(0, 5), max_size=3), max_size=40), st.integers(0, 5))
def test_every_example_comes_once_an_epoch(labels, seed):
    assert sorted(LabelAwareSampler(labels, seed=seed)) == list(range(len(labels)))


def test_a_rare_label_meets_its_partner_in_the_batch():
    labels = [[0]] * 400 + [[1], [1]]

    def met(order):
        return any({400, 401} <= set(order[i : i + 16]) for i in range(0, len(order), 16))

    aware = [met(list(LabelAwareSampler(labels, seed=seed))) for seed in range(40)]
    random = [met(torch.randperm(402, generator=torch.Generator().manual_seed(seed)).tolist()) for seed in range(40)]
    assert sum(aware) >= 35
    assert sum(random) <= 10


def test_epochs_differ_and_repeat_from_the_seed():
    labels = [[i % 3] for i in range(30)]
    first, again, second = (list(LabelAwareSampler(labels, seed=1, epoch=lambda n=n: n)) for n in (0, 0, 1))
    assert first == again
    assert first != second
