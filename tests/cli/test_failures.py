"""Trainings that fail: one line that says why and what to do."""

from __future__ import annotations

import errno

import pytest

import hf_mlcl.experiments.running as running
from hf_mlcl.training.divergence import DivergenceWatch

TRAIN = ["train", "toy_text", "--backbone", "small", "--max_train_samples", 48, "--max_eval_samples", 24]
TRAIN += ["--max_steps", 8, "--batch_size", 12, "--linear_epochs", 1, "--use_cpu"]


def no_space(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_training_that_diverges_says_so_in_one_line(hf_mlcl, tmp_path, monkeypatch):
    add = DivergenceWatch.add
    monkeypatch.setattr(DivergenceWatch, "add", lambda self, loss, *rest: add(self, loss * float("nan"), *rest))
    (line,) = hf_mlcl(*TRAIN, "--output_dir", tmp_path, code=1).stderr.splitlines()
    assert line.startswith("hf-mlcl: The training has diverged and was stopped: the loss is not a number since step 1")


@pytest.mark.parametrize("what", ["save_decisions", "write_model_card"])
def test_a_full_disk_is_told_with_the_path_in_one_line(what, hf_mlcl, tmp_path, monkeypatch):
    monkeypatch.setattr(running, what, no_space)
    failed = what == "save_decisions"
    lines = hf_mlcl(*TRAIN, "--output_dir", tmp_path, code=int(failed)).stderr.splitlines()
    if failed:
        assert len(lines) == 1
        assert "No space left to write this" in lines[0]
        assert str(tmp_path) in lines[0]
    assert (tmp_path / "metrics.json").exists() != failed
    assert not list(tmp_path.rglob("*.part"))
