"""Losses that gather the rows of all ranks by themselves."""

from __future__ import annotations

import pytest
import torch

from copies import all_went_well, run_ranks
from losses import gathering_worker
from losses.gathering_worker import CASES


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    found = {}
    for ranks in (1, 2):
        output = str(folder / f"{ranks}.pt")
        assert all_went_well(run_ranks(gathering_worker.main, output, ranks=ranks, folder=folder))
        found[ranks] = torch.load(output)
    return found


@pytest.mark.distributed
@pytest.mark.parametrize("case", CASES)
def test_two_ranks_of_a_loop_of_ones_own_have_loss_and_gradients_of_one_process(results, case):
    one, two = results[1][case], results[2][case]
    assert two["loss"].item() == pytest.approx(one["loss"].item(), rel=1e-9)
    assert one["gradients"].keys() == two["gradients"].keys() != set()
    for name, gradient in one["gradients"].items():
        assert torch.allclose(two["gradients"][name], gradient, rtol=1e-5, atol=1e-12), name
