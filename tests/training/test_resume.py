"""A training that is killed and resumed ends with the weights of one that was not."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

TESTS = Path(__file__).parents[1]


def train(kind, folder, die_at):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    torchrun = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone"]
    command = [sys.executable, *(torchrun if kind == "ranks" else [])]
    command += ["-m", "training.resume_worker", kind, str(folder), str(die_at)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)


@pytest.mark.parametrize("kind", ["text", "vision", pytest.param("ranks", marks=pytest.mark.distributed)])
def test_killed_at_a_random_step_and_resumed_it_ends_with_the_same_weights(kind, tmp_path):
    whole = train(kind, tmp_path / "whole", -1)
    assert whole.returncode == 0, whole.stderr[-9000:]
    step = random.randint(5, 14)  # after the first checkpoint, within 15 steps
    killed = train(kind, tmp_path / "killed", step)
    assert killed.returncode == (1 if kind == "ranks" else -signal.SIGKILL)  # torchrun tells of it by exiting with 1
    assert not (tmp_path / "killed" / "final.pt").exists()
    resumed = train(kind, tmp_path / "killed", -1)
    assert resumed.returncode == 0, resumed.stderr[-9000:]
    expected, got = (torch.load(tmp_path / name / "final.pt") for name in ("whole", "killed"))
    assert expected.keys() == got.keys()
    for name, weights in expected.items():
        assert torch.equal(got[name], weights), f"{name} after dying at step {step}"
