"""For all tests: one thread, since small tensors on many threads only wait; trainers that outlive a test."""

from __future__ import annotations

import os

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch
from accelerate.state import AcceleratorState, PartialState

torch.set_num_threads(1)

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
