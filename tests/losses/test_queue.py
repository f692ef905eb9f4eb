"""The momentum queue."""

from __future__ import annotations

import pytest
import torch

from hf_mlcl.losses import MomentumQueue


def rows(first: int, count: int):
    ids = torch.arange(first, first + count)
    return ids.float().unsqueeze(1).repeat(1, 3), torch.nn.functional.one_hot(ids % 2, 2)


def held(queue):
    return sorted(queue.rows()[0][:, 0].tolist())


def test_it_holds_the_newest_rows():
    queue = MomentumQueue(size=5, dim=3, num_labels=2)
    assert held(queue) == []
    queue.push(*rows(0, 3))
    assert held(queue) == [0, 1, 2]
    queue.push(*rows(3, 4))
    assert held(queue) == [2, 3, 4, 5, 6]
    queue.push(*rows(7, 12))
    assert held(queue) == [14, 15, 16, 17, 18]


def test_labels_stay_with_their_rows():
    queue = MomentumQueue(size=4, dim=3, num_labels=2).push(*rows(0, 7))
    embeddings, labels = queue.rows()
    assert (labels.long().argmax(1) == embeddings[:, 0] % 2).all()


def test_it_carries_no_gradient():
    z = torch.randn(2, 3, requires_grad=True)
    assert not MomentumQueue(4, 3, 2).push(z, torch.zeros(2, 2)).rows()[0].requires_grad


def test_saved_and_loaded_it_goes_on_as_before():
    queue = MomentumQueue(5, 3, 2).push(*rows(0, 3))
    copy = MomentumQueue(5, 3, 2)
    copy.load_state_dict(queue.state_dict())
    assert held(copy) == [0, 1, 2]
    assert held(copy.push(*rows(3, 3))) == held(queue.push(*rows(3, 3))) == [1, 2, 3, 4, 5]


def test_a_queue_is_saved_by_safetensors(tmp_path):
    from safetensors.torch import load_model, save_model

    queue, copy = MomentumQueue(5, 3, 2).push(*rows(0, 3)), MomentumQueue(5, 3, 2)
    save_model(queue, str(tmp_path / "queue.safetensors"))
    load_model(copy, str(tmp_path / "queue.safetensors"))
    assert held(copy) == [0, 1, 2]


def test_labels_that_are_not_zero_or_one_are_named():
    with pytest.raises(ValueError, match="labels must be 0 or 1"):
        MomentumQueue(4, 3, 2).push(torch.zeros(2, 3), torch.full((2, 2), 0.5))


def test_an_empty_push_changes_nothing():
    queue = MomentumQueue(5, 3, 2).push(*rows(0, 3))
    assert held(queue.push(*rows(0, 0))) == [0, 1, 2]


@pytest.mark.parametrize(
    ("embeddings", "labels", "message"),
    [
        (torch.zeros(2, 4), torch.zeros(2, 2), r"embeddings must have shape \(rows, 3\)"),
        (torch.zeros(2, 3), torch.zeros(2, 5), "labels must have shape"),
        (torch.zeros(2, 3), torch.zeros(3, 2), "labels must have shape"),
    ],
)
def test_wrong_shapes_are_named(embeddings, labels, message):
    with pytest.raises(ValueError, match=message):
        MomentumQueue(5, 3, 2).push(embeddings, labels)


def test_a_size_below_one_is_named():
    with pytest.raises(ValueError, match="size must be at least 1"):
        MomentumQueue(0, 3, 2)
