"""The estimate of a study's cost."""

from __future__ import annotations

import pytest

from hf_mlcl.study.cost import forward_operations, run_cost, split_sizes, study_cost
from study.made import run
from study.quick import make_study


def test_operations_of_a_forward_pass_are_those_of_the_literature():
    """Two operations a weight of the encoder and token; attention over 220 tokens adds a little."""
    weights = 12 * (4 * 768**2 + 2 * 768 * 3072)
    assert 1.0 < forward_operations("text", "roberta-base", 220) / (2 * weights * 220) < 1.1
    assert forward_operations("image", "resnet50", 224) == pytest.approx(2 * 4.09e9, rel=0.01)


def test_a_run_costs_three_passes_an_example_in_training_and_one_in_evaluation():
    settings = {"max_train_samples": 100, "max_eval_samples": 10, "num_train_epochs": 4, "max_length": 96}
    one_pass = forward_operations("text", "small", 96)
    contrastive = run_cost(run("toy_text", "reg", 0, **settings))
    assert contrastive.operations == pytest.approx(one_pass * (3 * 4 * 100 + 100 + 10 + 10))
    logit = run_cost(run("toy_text", "bce", 0, **settings))  # validation after each epoch, no features of training rows
    assert logit.operations == pytest.approx(one_pass * (3 * 4 * 100 + 4 * 10 + 10 + 10))
    steps = run_cost(run("toy_text", "reg", 0, **settings, max_steps=5, global_batch_size=20))
    assert steps.operations == pytest.approx(one_pass * (3 * 100 + 100 + 10 + 10))
    assert run_cost(run("toy_text", "reg", 0, **settings), {"text": 1e9}).hours == contrastive.operations / 1e9 / 3600


def test_the_total_is_the_sum_over_runs(tmp_path):
    study = make_study(tmp_path)
    costs = study_cost(study)
    assert costs["total"].runs == len(study.runs)
    assert costs["total"].operations == pytest.approx(sum(run_cost(each).operations for each in study.runs))


def test_rows_are_counted_or_as_the_paper_rounds_them():
    assert split_sizes("bgc").train == pytest.approx(58_715, abs=100)
    assert split_sizes("rcv1").test == pytest.approx(781_200, abs=100)
    assert split_sizes("aapd", "small").train == 4_350
    with pytest.raises(ValueError, match=r"semeval2018 \(small\) is not known"):
        split_sizes("semeval2018", "small")
