"""A loop of one's own under DDP: the loss and the gradients of each case, from a rank's share of the rows."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hf_mlcl.losses import MomentumQueue, build_loss

ROWS, SIZE, LABELS = 12, 6, 4
CASES = {
    "reg": {},
    "msc": {},
    "mulsupcon": {"chunk_size": 3},
    "supcon": {},
    "zlpr": {},
    "two_way": {},
    "cross_entropy": {},
    "reg+zlpr": {"weights": [1.0, 0.5]},
    "base": {"queue": True},
}


class Encoder(torch.nn.Module):
    """Embeddings, prototypes and logits; each loss uses what it needs of them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Linear(SIZE, 5)
        self.classify = torch.nn.Linear(SIZE, LABELS)
        self.prototypes = torch.nn.Parameter(torch.randn(LABELS, 5))

    def forward(self, rows):
        return self.embed(rows), self.classify(rows), self.prototypes.clone()


def step(name: str) -> dict:
    torch.manual_seed(0)
    ranks, rank = (dist.get_world_size(), dist.get_rank()) if dist.is_initialized() else (1, 0)
    encoder = Encoder().double()
    model = DistributedDataParallel(encoder, find_unused_parameters=True) if ranks > 1 else encoder
    rows, labels = torch.randn(ROWS, SIZE).double(), torch.rand(ROWS, LABELS) < 0.4
    if name in ("supcon", "cross_entropy"):
        labels = torch.randint(0, LABELS, (ROWS,))
    settings = dict(CASES[name])
    queued = {}
    if settings.pop("queue", False):
        queued["queue"] = MomentumQueue(4, 5, LABELS).push(torch.randn(4, 5), torch.rand(4, LABELS) < 0.4)
    loss = build_loss(name, gather_across_devices=True, **settings)
    own = slice(rank * ROWS // ranks, (rank + 1) * ROWS // ranks)
    embeddings, logits, prototypes = model(rows[own])
    if name in ("zlpr", "two_way", "cross_entropy"):
        value = loss(logits, labels[own])
    elif "+" in name:
        value = loss(embeddings, labels[own], prototypes, logits=logits)
    else:
        value = loss(embeddings, labels[own], prototypes, **queued)
    value.backward()
    mean = value.detach().clone()
    if ranks > 1:
        dist.all_reduce(mean)
    gradients = {name: p.grad for name, p in encoder.named_parameters() if p.grad is not None and p.grad.any()}
    return {"loss": mean / ranks, "gradients": gradients}


def main(output: str) -> None:
    if int(os.environ["WORLD_SIZE"]) > 1:
        dist.init_process_group("gloo")
    results = {name: step(name) for name in CASES}
    if not dist.is_initialized() or dist.get_rank() == 0:
        torch.save(results, output)
    if dist.is_initialized():
        dist.destroy_process_group()
