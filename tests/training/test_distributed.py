"""Two and three ranks against one process with the same rows: loss, gradients, statistics, evaluation, features."""

from __future__ import annotations

import pytest
import torch

from copies import all_went_well, run_ranks
from training import distributed_worker
from training.distributed_worker import CASES

GLOBAL_BATCH = 12


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What so many ranks recorded of a case."""
    folder = tmp_path_factory.mktemp("ranks")
    found = {}

    def recorded(ranks, case):
        cases = QUICK_OF_THREE if ranks == 3 and case in QUICK_OF_THREE else list(CASES)
        key = ranks, tuple(cases)
        if key not in found:
            output = str(folder / f"{len(found)}.pt")
            ended = run_ranks(distributed_worker.main, output, GLOBAL_BATCH, cases, ranks=ranks, folder=folder)
            assert all_went_well(ended)
            found[key] = torch.load(output)
        return found[key][case]

    return recorded


pytestmark = pytest.mark.distributed
QUICK_OF_THREE = ["reg", "reg+zlpr in chunks", "reg, dropout by row", "reg, accumulated", "reg, a stream"]
each_number_and_case = pytest.mark.parametrize(
    ("ranks", "case"),
    [
        pytest.param(ranks, case, marks=pytest.mark.slow if ranks == 3 and case not in QUICK_OF_THREE else [])
        for ranks in (2, 3)
        for case in CASES
    ],
)


def assert_same_gradients(got, expected):
    """Within 1e-5 of each parameter's largest entry.

    The gradient of an attention key's bias is 0 but for rounding, since softmax ignores it: entries below a
    millionth of the largest gradient of all parameters do not count.
    """
    floor = 1e-6 * max(gradient.abs().max() for gradient in expected.values())
    assert floor > 0
    for name, gradient in expected.items():
        error = (got[name] - gradient).abs().max() / gradient.abs().max().clamp(min=floor)
        assert error <= 1e-5, name


@each_number_and_case
def test_losses_of_every_step_equal_those_of_one_process(results, ranks, case):
    one, many = (results(n, case)["logs"] for n in (1, ranks))
    assert len(one) == len(many) == (2 if "accumulated" in case else 3)
    for a, b in zip(one, many, strict=True):
        assert b["loss"] == pytest.approx(a["loss"], rel=1e-6)


@each_number_and_case
def test_gradients_of_every_parameter_equal_those_of_one_process(results, ranks, case):
    one, many = (results(n, case)["gradients"] for n in (1, ranks))
    for step_of_one, step_of_many in zip(one, many, strict=True):
        assert step_of_one.keys() == step_of_many.keys()
        assert_same_gradients(step_of_many, step_of_one)


@each_number_and_case
def test_statistics_evaluation_and_features_equal_those_of_one_process(results, ranks, case):
    one, many = results(1, case), results(ranks, case)
    for a, b in zip(one["logs"], many["logs"], strict=True):
        assert a.keys() == b.keys()
        for name in a.keys() - {"grad_norm"}:
            assert b[name] == pytest.approx(a[name], rel=1e-4, abs=1e-6), name
    assert many["eval_loss"] == pytest.approx(one["eval_loss"], rel=1e-6)
    assert torch.allclose(many["features"], one["features"], atol=1e-6)


def test_chunks_do_not_change_what_one_process_computes(results):
    pairs = [("reg", "reg in chunks"), ("reg+zlpr", "reg+zlpr in chunks")]
    pairs.append(("reg, dropout by row", "reg, dropout by row, in chunks"))
    for whole, chunked in pairs:
        for a, b in zip(results(1, whole)["gradients"], results(1, chunked)["gradients"], strict=True):
            assert_same_gradients(b, a)
