"""A training that is killed and resumed ends with the weights of one that was not."""

from __future__ import annotations

import random
import signal

import pytest
import torch

from copies import Copy, all_went_well, run_ranks
from training import resume_worker

SAME = 1e-6
"""Of weights: no bit is promised, since the order in which a processor adds depends on where numbers lie in memory."""


def train(kind, folder, die_at):
    folder.mkdir(exist_ok=True)
    if kind == "ranks":
        return run_ranks(resume_worker.main, kind, str(folder), die_at, ranks=2, folder=folder)
    return [Copy(resume_worker.main, kind, str(folder), die_at, output=folder / "printed.txt")]


@pytest.mark.parametrize("kind", ["text", "vision", pytest.param("ranks", marks=pytest.mark.distributed)])
def test_killed_at_a_random_step_and_resumed_it_ends_with_the_same_weights(kind, tmp_path):
    assert all_went_well(train(kind, tmp_path / "whole", -1))
    step = random.randint(5, 14)  # after the first checkpoint, within 15 steps
    assert -signal.SIGKILL in [copy.end() for copy in train(kind, tmp_path / "killed", step)]
    assert not (tmp_path / "killed" / "final.pt").exists()
    assert all_went_well(train(kind, tmp_path / "killed", -1))
    expected, got = (torch.load(tmp_path / name / "final.pt") for name in ("whole", "killed"))
    assert expected.keys() == got.keys()
    begun = torch.load(tmp_path / "whole" / "first.pt")
    moved = max(
        (expected[name] - weights).abs().max() for name, weights in begun.items() if weights.is_floating_point()
    )
    assert moved > 1000 * SAME, "or the test would show nothing"
    for name, weights in expected.items():
        torch.testing.assert_close(
            got[name], weights, rtol=SAME, atol=SAME, msg=lambda found, name=name: f"{name}, killed at {step}: {found}"
        )
