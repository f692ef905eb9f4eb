"""Losses where torch computes with shapes alone, or follows a function through torch.func."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses import FakeTensorMode

from hf_mlcl import build_loss, list_losses
from hf_mlcl.losses import loss_kinds

ROWS, LABELS = 8, 3
SINGLE = ("supcon", "supcon_reg", "cross_entropy")
CONTRASTIVE = [name for name in list_losses() if loss_kinds(name) == {"contrastive"}]
LOGIT = [name for name in list_losses() if loss_kinds(name) == {"logit"}]


def inputs(name):
    random = torch.Generator().manual_seed(0)
    labels = (torch.rand(ROWS, LABELS, generator=random) < 0.5).float()
    if name in SINGLE:
        labels = torch.nn.functional.one_hot(torch.arange(ROWS) % LABELS, LABELS).float()
    rows = torch.randn(ROWS, LABELS, generator=random)
    return [rows, labels] + ([torch.randn(LABELS, LABELS, generator=random)] if name in CONTRASTIVE else [])


@pytest.mark.parametrize("name", list_losses())
def test_under_fake_tensors_a_loss_has_the_shape_of_a_number(name):
    with FakeTensorMode() as mode:
        value = build_loss(name)(*map(mode.from_tensor, inputs(name)))
    assert value.shape == ()


@pytest.mark.parametrize("name", LOGIT)
def test_losses_on_logits_can_be_followed_by_torch_func_and_on_the_meta_device(name):
    logits, labels = inputs(name)
    loss = build_loss(name)
    expected = logits.clone().requires_grad_(True)
    loss(expected, labels).backward()
    torch.testing.assert_close(torch.func.grad(lambda z: loss(z, labels))(logits), expected.grad)
    torch.testing.assert_close(
        torch.func.vmap(loss)(logits.expand(2, -1, -1), labels.expand(2, -1, -1)), loss(logits, labels).expand(2)
    )
    assert build_loss(name)(logits.to("meta"), labels.to("meta")).is_meta


@pytest.mark.parametrize("name", CONTRASTIVE)
def test_contrastive_losses_say_that_they_cannot_be_followed(name):
    embeddings, labels, prototypes = inputs(name)
    loss = build_loss(name)
    for transformed in (torch.func.grad, torch.func.jacrev, torch.func.hessian):
        with pytest.raises(NotImplementedError, match=r"torch\.func .* cannot follow\. Call backward"):
            transformed(lambda z: loss(z, labels, prototypes))(embeddings)
    with pytest.raises(NotImplementedError, match=r"torch\.func"):
        torch.func.vmap(loss)(*(value.expand(2, -1, -1) for value in (embeddings, labels, prototypes)))
    with pytest.raises(ValueError, match="embeddings are on the meta device"):
        build_loss(name)(*(value.to("meta") for value in (embeddings, labels, prototypes)))
