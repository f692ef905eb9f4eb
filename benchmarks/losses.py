"""Speed and memory of the contrastive losses: `python benchmarks/losses.py`.

Beside our own code stand the paper's Algorithm 2 as it is printed and bare InfoNCE, the least that any contrastive loss
over the same rows has to compute.
"""

from __future__ import annotations

import time

import torch
import torch.nn.functional as F
from torch import Tensor

from hf_mlcl import build_loss
from hf_mlcl.losses.engine import TILE_PAIRS
from measure import in_own_process, interleaved, matmul_rate, peak_megabytes, reset_peak, table

SIZES = [(64, 20, 256), (256, 54, 256), (256, 146, 256), (1024, 146, 256)]


def make_batch(batch: int, num_labels: int, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Embeddings, labels (three a row on average) and prototypes."""
    torch.manual_seed(0)
    z = torch.randn(batch, dim, requires_grad=True)
    c = torch.randn(num_labels, dim, requires_grad=True)
    return z, (torch.rand(batch, num_labels) < 3 / num_labels).float(), c


def algorithm_2(z: Tensor, y: Tensor, c: Tensor, tau: float = 0.1) -> Tensor:
    """The paper's Algorithms 1 and 2 with their three-dimensional products, prototypes as rows of the batch."""
    features = F.normalize(torch.cat([z, c]), dim=1)
    labels = torch.cat([y, torch.eye(len(c))])
    total = len(features)
    mask_d = 1.0 - torch.eye(total)
    sim = features @ features.T
    mask_and = torch.einsum("ac,bc->abc", labels, labels)
    mask_and_d = mask_d.unsqueeze(2) * mask_and
    norm = mask_and_d.sum(dim=1)
    lam = (mask_and_d / (norm.unsqueeze(1) + 1e-12)).sum(dim=2)
    target = lam / labels.sum(dim=1, keepdim=True).clamp(min=1)
    logits = sim / tau
    exp_logits = torch.exp(logits)
    denominator = (exp_logits * mask_d).sum(dim=1, keepdim=True)
    log_p = logits - torch.log(denominator)
    sigma = (exp_logits / denominator).detach()
    reg = torch.clamp(sigma - target, min=0) * (target != 0).float() * logits
    return -(log_p * target + reg).sum(dim=1).sum() / total


def infonce(x: Tensor, tau: float = 0.1) -> Tensor:
    """One positive a row, everything else negative."""
    u = F.normalize(x, dim=1)
    s = (u @ u.T / tau).masked_fill(torch.eye(len(x), dtype=torch.bool), float("-inf"))
    return F.cross_entropy(s, (torch.arange(len(x)) + 1) % len(x))


def speed() -> None:
    rows = []
    for size in SIZES:
        z, y, c = make_batch(*size)
        x = torch.randn(len(z) + len(c), size[2], requires_grad=True)
        reg = build_loss("reg")
        seconds = interleaved(
            {
                "reg": lambda: reg(z, y, c).backward(),  # noqa: B023
                "infonce": lambda: infonce(x).backward(),  # noqa: B023
                "printed": lambda: algorithm_2(z, y, c).backward(),  # noqa: B023
            },
            rounds=8,
        )
        rows.append(
            [
                size,
                f"{seconds['reg'] * 1e3:.2f} ms",
                f"{seconds['printed'] / seconds['reg']:.0f}x",
                f"{seconds['reg'] / seconds['infonce']:.2f}x",
            ]
        )
    table(
        "`reg`, forward and backward",
        ["(B, L, d)", "time", "faster than Algorithm 2 as printed", "time relative to bare InfoNCE on B + L rows"],
        rows,
    )


def _scaling(batch: int, num_labels: int, dim: int, chunk_size: int | None) -> tuple[float, float]:
    """(seconds, megabytes above the inputs) of one forward and backward pass."""
    small = make_batch(256, num_labels, dim)
    build_loss("reg")(small[0], small[1], small[2]).backward()  # loads the libraries' own memory
    z, y, c = make_batch(batch, num_labels, dim)
    loss = build_loss("reg", chunk_size=chunk_size)
    reset_peak()
    before = peak_megabytes()
    start = time.perf_counter()
    loss(z, y, c).backward()
    return time.perf_counter() - start, peak_megabytes() - before


def scaling() -> None:
    num_labels, dim = 103, 256
    rows = []
    for batch in (1024, 4096, 8192, 16384, 32768):
        n = batch + num_labels
        # A single tile needs one product less: its attractions are added to their transpose first.
        products = 2 if n * n <= TILE_PAIRS else 3
        operations = 2 * n * n * products * dim + 2 * n * batch * num_labels
        rate = in_own_process(matmul_rate)
        seconds, megabytes = in_own_process(_scaling, batch, num_labels, dim, None)
        dense = ["needs more than 20 GB", "-"]
        if batch <= 16384:
            dense_seconds, dense_megabytes = in_own_process(_scaling, batch, num_labels, dim, n)
            dense = [f"{dense_megabytes:.0f} MB", f"{dense_seconds:.2f} s"]
        rows.append([batch, *dense, f"{megabytes:.0f} MB", f"{seconds:.2f} s", f"{operations / seconds / rate:.0%}"])
    table(
        f"`reg`, forward and backward, L = {num_labels}, d = {dim}: memory above the inputs",
        ["B", "dense memory", "dense time", "tiled memory", "tiled time", "tiled: share of the matmul rate"],
        rows,
    )


def many_labels() -> None:
    rows = []
    for num_labels in (1000, 10_000):
        seconds, megabytes = in_own_process(_scaling, 256, num_labels, 256, None)
        rows.append([256, num_labels, f"{seconds:.2f} s", f"{megabytes:.0f} MB"])
    table("`reg` with very many labels", ["B", "L", "time", "memory above the inputs"], rows)


def main() -> None:
    """Print all tables."""
    speed()
    scaling()
    many_labels()


if __name__ == "__main__":
    main()
