"""L2-regularised logistic regression of every label and weight decay at once, to the optimum.

For each column c = (weight decay, label) it minimises the convex

    f_c(w, b) = mean_i [ log(1 + exp(z_i)) - y_i z_i ] + decay_c / 2 |w|^2,        z = X w + b

by L-BFGS. All columns share the two matrix products of an iteration, X D^T for the directions and E^T X for the
gradients; each has its own history, step and end. Logits are linear along a direction, so the line search needs no
product at all. scikit-learn's `LogisticRegression` with C = 1 / (rows decay) has the same optimum.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm.auto import tqdm

from hf_mlcl.evaluation.heads import GridHeads

TILE_CELLS = 2**23
"""Rows x columns solved together (64 MB of float64 a matrix)."""
HISTORY = 10
ARMIJO = 1e-4


def fit_logistic(
    passes: list[Tensor],
    labels: Tensor,
    weight_decays: Sequence[float],
    device: torch.device,
    progress: bool = False,
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
) -> GridHeads:
    """The optimal heads: one grid point a weight decay, one head each.

    Args:
        passes: Training features; several augmented passes count as so many more rows.
        labels: Boolean (rows, labels).
        weight_decays: One or more.
        device: Where to compute; in float64, but float32 where the device has no other.
        progress: Whether to show a progress bar.
        tolerance: A column ends when no entry of its gradient is larger.
        max_iterations: At which a column ends anyway.
    """
    kind = torch.float32 if device.type == "mps" else torch.float64
    X = torch.cat([x.to(device, kind) for x in passes])
    Y = labels.to(device).repeat(len(passes), 1)
    width = labels.shape[1]
    decay = torch.tensor(list(weight_decays), dtype=kind, device=device).repeat_interleave(width)
    label = torch.arange(width, device=device).repeat(len(weight_decays))
    theta = torch.zeros(len(decay), X.shape[1] + 1, dtype=kind, device=device)  # the last entry is the bias
    step = max(TILE_CELLS // len(X), 1)
    for start in tqdm(range(0, len(decay), step), desc="Logistic regression", unit="tile", disable=not progress):
        tile = slice(start, start + step)
        theta[tile] = _minimise(X, Y[:, label[tile]], decay[tile], tolerance, max_iterations)
    theta = theta.float().view(len(weight_decays), 1, width, -1)
    return GridHeads(theta[..., :-1].contiguous(), theta[..., -1].contiguous())


def _minimise(X: Tensor, Y: Tensor, decay: Tensor, tolerance: float, max_iterations: int) -> Tensor:
    Y = Y.to(X)
    solution = X.new_zeros(Y.shape[1], X.shape[1] + 1)
    share = Y.mean(0).clamp(1 / (2 * len(X)), 1 - 1 / (2 * len(X)))
    solution[:, -1] = share.logit()  # the optimum without features: a good start for rare labels
    active = torch.arange(Y.shape[1], device=X.device)  # columns that have not ended; all state below is theirs alone
    theta = solution.clone()
    Z = theta[:, -1].expand(len(X), -1).clone()
    penalty = torch.cat([decay.unsqueeze(1).expand(-1, X.shape[1]), torch.zeros_like(decay).unsqueeze(1)], dim=1)
    gradient = _gradient(X, Y, Z, theta, penalty)
    moves: list[tuple[Tensor, Tensor]] = []
    for iteration in range(max_iterations):
        going = gradient.abs().amax(1) > tolerance
        if not going.all():
            solution[active[~going]] = theta[~going]
            active, theta, penalty, gradient = active[going], theta[going], penalty[going], gradient[going]
            Y, Z = Y[:, going], Z[:, going]
            moves = [(s[going], y[going]) for s, y in moves]
            if len(active) == 0:
                return solution
        direction = _direction(gradient, moves)
        slope = torch.linalg.vecdot(gradient, direction)
        along = torch.addmm(direction[:, -1], X, direction[:, :-1].T)
        first = 1 / gradient.norm(dim=1).clamp(min=1) if iteration == 0 else torch.ones_like(slope)
        length = _line_search(Y, Z, along, theta, direction, penalty, slope, first)
        change = direction.mul_(length.unsqueeze(1))
        theta = theta + change
        Z.addcmul_(along, length)
        new_gradient = _gradient(X, Y, Z, theta, penalty)
        moves = [*moves[-HISTORY + 1 :], (change, new_gradient - gradient)]
        gradient = new_gradient
    solution[active] = theta
    return solution


def _gradient(X: Tensor, Y: Tensor, Z: Tensor, theta: Tensor, penalty: Tensor) -> Tensor:
    error = Z.sigmoid().sub_(Y).div_(len(X))
    return torch.cat([error.T @ X, error.sum(0).unsqueeze(1)], dim=1).addcmul_(penalty, theta)


def _direction(gradient: Tensor, moves: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The two-loop recursion, each row with its own history; a move without curvature counts for nothing."""
    d = -gradient
    saved = []
    for s, y in reversed(moves):
        curvature = torch.linalg.vecdot(s, y)
        rho = torch.where(curvature > 0, 1 / curvature, 0.0)
        a = rho * torch.linalg.vecdot(s, d)
        d.sub_(a.unsqueeze(1) * y)
        saved.append((s, y, rho, a))
    if moves:
        s, y = moves[-1]
        scale = torch.linalg.vecdot(s, y) / torch.linalg.vecdot(y, y)
        d.mul_(torch.where(scale > 0, scale, 1.0).unsqueeze(1))  # False for 0 / 0 too
    for s, y, rho, a in reversed(saved):
        d.add_((a - rho * torch.linalg.vecdot(y, d)).unsqueeze(1) * s)
    return d


def _line_search(
    Y: Tensor,
    Z: Tensor,
    along: Tensor,
    theta: Tensor,
    direction: Tensor,
    penalty: Tensor,
    slope: Tensor,
    length: Tensor,
) -> Tensor:
    """For each column the first of length, length / 2, length / 4, ... that lowers the loss enough (Armijo)."""
    linear = (penalty * theta * direction).sum(1)
    square = (penalty * direction * direction).sum(1)
    base = F.softplus(Z).mean(0)
    tilt = (Y * along).mean(0)
    open_ = torch.arange(len(length), device=length.device)
    length = length.clone()
    for _ in range(40):
        t = length[open_]
        rise = F.softplus(Z[:, open_] + t * along[:, open_]).mean(0) - base[open_] - t * tilt[open_]
        rise = rise + t * linear[open_] + t * t * square[open_] / 2
        failed = rise > ARMIJO * t * slope[open_] + 1e-15  # rounding near the optimum must not stop a column
        open_ = open_[failed]
        if len(open_) == 0:
            break
        length[open_] /= 2
    return length
