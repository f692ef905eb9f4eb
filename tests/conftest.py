"""For all tests: threads, what Hypothesis may do, and trainers that outlive a test."""

from __future__ import annotations

import os

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Small tensors on many threads only wait. In the environment, so that processes which tests start do as this one.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from accelerate.state import AcceleratorState, PartialState
from hypothesis import HealthCheck, settings

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))

# A busy machine is slow, which is no fault of a test; and what failed must fail again when it is looked at.
# `pytest --hypothesis-profile=search` looks for new examples.
settings.register_profile("search", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", settings.get_profile("search"), derandomize=True)
settings.load_profile("repeatable")

LONG = ("cli", "docs", "experiments", "hub", "recipes", "study", "training")
"""Folders whose tests take long: they come first, so that no process is left with one of them in the end."""


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: (item.path.parent.name not in LONG, item.path.name != "test_end_to_end.py"))


_last_states: list[dict] = []


@pytest.fixture(autouse=True)
def accelerate_state_of_the_last_trainer():
    """New training arguments make accelerate forget its state, without which a trainer of a fixture cannot go on."""
    _recall()
    yield
    _recall()


def _recall() -> None:
    states = [shared._shared_state for shared in (AcceleratorState, PartialState)]
    if states[0]:
        _last_states[:] = [dict(state) for state in states]
    elif _last_states:
        for state, last in zip(states, _last_states, strict=True):
            state.update(last)
