"""Many linear heads as one tensor: all grid points x heads x labels score in one matrix product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

SCORE_ROWS = 1024
"""Rows scored at a time: their probabilities under every head have to fit in memory."""


@dataclass(frozen=True)
class GridHeads:
    """Linear heads of every grid point: weight (grid points, heads, labels, features), bias (.., .., labels)."""

    weight: Tensor
    bias: Tensor

    def probabilities(self, features: Tensor) -> Tensor:
        """Mean of the heads' sigmoids under each grid point, shape (rows, grid points, labels)."""
        x = features.to(self.weight)
        logits = torch.addmm(self.bias.flatten(), x, self.weight.flatten(0, 2).T)
        logits.clamp_(min=-80)  # or sigmoids become denormal numbers, which are slow
        return logits.sigmoid_().view(len(x), *self.bias.shape).mean(2)

    def select(self, choice: Tensor) -> GridHeads:
        """The heads in which each label has the rows of its own grid point, as a grid of one point."""
        label = torch.arange(len(choice), device=self.bias.device)
        weight = self.weight[choice, :, label].transpose(0, 1)  # (labels, heads, h) -> (heads, labels, h)
        bias = self.bias[choice, :, label].T
        return GridHeads(weight.unsqueeze(0).contiguous(), bias.unsqueeze(0).contiguous())


@dataclass(frozen=True)
class GridScores:
    """F1 at threshold 0.5 and mean cross-entropy of each grid point and label; micro-F1 of each grid point."""

    f1: Tensor
    loss: Tensor
    micro_f1: Tensor

    def best(self) -> Tensor:
        """For each label its best grid point: highest F1, among equals lowest loss, among those the first."""
        # Rare labels have F1 0 under many grid points; the loss then still tells better from worse.
        order = np.lexsort((self.loss.cpu().numpy(), -self.f1.cpu().numpy()), axis=0)
        return torch.as_tensor(order[0], device=self.f1.device)


def score(heads: GridHeads, features: Tensor, labels: Tensor) -> GridScores:
    """Score every grid point on `features` against multi-hot `labels`."""
    precise = torch.float32 if heads.bias.device.type == "mps" else torch.float64  # which Apple's GPUs do not have
    counts = heads.bias.new_zeros(2, heads.bias.shape[0], heads.bias.shape[2], dtype=precise)
    loss = torch.zeros_like(counts[0])
    for start in range(0, len(features), SCORE_ROWS):
        p = heads.probabilities(features[start : start + SCORE_ROWS])
        y = labels[start : start + SCORE_ROWS].to(p).unsqueeze(1)
        predicted = (p >= 0.5).to(p)
        counts[0] += (predicted * y).sum(0)
        counts[1] += predicted.sum(0) + y.sum(0)
        wrong = p.sub_(y).abs_()  # the probability of the wrong answer; its loss ends at 100, as torch's does
        loss -= wrong.neg_().log1p_().clamp_(min=-100).sum(0)
    f1, micro = (2 * counts[0] / counts[1].clamp(min=1), 2 * counts[0].sum(1) / counts[1].sum(1).clamp(min=1))
    return GridScores(f1, loss / max(len(features), 1), micro)


def predict(heads: GridHeads, features: Tensor) -> npt.NDArray[np.float32]:
    """Probabilities (rows, labels) of heads that have one grid point."""
    parts = [
        heads.probabilities(features[start : start + SCORE_ROWS])[:, 0].cpu()
        for start in range(0, max(len(features), 1), SCORE_ROWS)  # no rows are one part without rows
    ]
    result: npt.NDArray[Any] = torch.cat(parts).numpy()
    return result
