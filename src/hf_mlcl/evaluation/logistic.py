"""L2-regularised logistic regression of every label and strength at once, to the optimum.

For each column c = (weight decay, label) it minimises the convex

    f_c(w, b) = mean_i [ log(1 + exp(z_i)) - y_i z_i ] + decay_c / 2 |w - w0_c|^2,        z = X w + b

by L-BFGS; w0 is where the weights are drawn to, 0 unless a prior is given. All columns share the two matrix products of
an iteration, X D^T for the directions and E^T X for the gradients; each has its own history, step and end. Logits are
linear along a direction, so the line search needs no product at all.

Neither rotation nor shift of the features changes the problem, so it is solved in the basis of their principal
components, where the curvature is nearly diagonal: about share (1 - share) variance_j + decay. With that as the first
guess of the inverse Hessian a column takes a dozen iterations instead of hundreds. scikit-learn's `LogisticRegression`
with C = 1 / (rows decay) has the same optimum, but takes one label and strength at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from hf_mlcl.evaluation.heads import GridHeads

TILE_CELLS = 2**23
"""Rows x columns solved together (64 MB of float64 a matrix)."""
HISTORY = 10
ARMIJO = 1e-4
MAX_ITERATIONS = 1000
NO_VARIANCE = 1e-12
"""Principal components with less of the largest variance than this are left out: they are rounding errors."""


def fit_logistic(
    passes: list[Tensor],
    labels: Tensor,
    weight_decays: Sequence[float],
    device: torch.device,
    tolerance: float = 1e-8,
    priors: Tensor | None = None,
) -> GridHeads:
    """The optimal heads: one grid point per prior and weight decay (which run fastest), one head each.

    Args:
        passes: Training features; several augmented passes count as so many more rows.
        labels: Boolean (rows, labels).
        weight_decays: One or more, above 0 where a prior is given.
        device: Where to compute; in float64, but float32 where the device has no other.
        tolerance: A column ends when no entry of its gradient is larger.
        priors: Weights (priors, labels, features) that the heads shrink towards, each in turn; zero if not given.

    Examples:
        >>> x, y = torch.tensor([[0.0], [1.0], [2.0], [3.0]]), torch.tensor([[0], [0], [1], [1]]).bool()
        >>> heads = fit_logistic([x], y, [10.0, 0.01], torch.device("cpu"))
        >>> [round(weight, 2) for weight in heads.weight.flatten().tolist()]  # a strong decay, a weak one
        [0.05, 3.7]
    """
    kind = torch.float32 if device.type == "mps" else torch.float64
    X = torch.cat([x.to(device, kind) for x in passes])
    Y = labels.to(device).repeat(len(passes), 1)
    mean, basis, variance = _principal_components(X)
    X = (X - mean) @ basis
    width = labels.shape[1]
    whole = X.new_zeros(1, width, len(mean)) if priors is None else priors.to(device, kind)
    decay = torch.tensor(list(weight_decays), dtype=kind, device=device).repeat_interleave(width).repeat(len(whole))
    label = torch.arange(width, device=device).repeat(len(whole) * len(weight_decays))
    point = torch.arange(len(whole), device=device).repeat_interleave(width * len(weight_decays))
    start = whole @ basis
    theta = torch.zeros(len(decay), X.shape[1] + 1, dtype=kind, device=device)  # the last entry is the bias
    step = max(TILE_CELLS // len(X), 1)
    for first in range(0, len(decay), step):
        tile = slice(first, first + step)
        target, prior = Y[:, label[tile]], start[point[tile], label[tile]]
        theta[tile] = _minimise(X, target, decay[tile], prior, variance, tolerance)
    # What the prior says of directions in which the rows do not differ is kept as it is.
    weight = theta[:, :-1] @ basis.T
    if priors is not None:
        weight += (whole - start @ basis.T)[point, label]
    bias = theta[:, -1] - weight @ mean
    shape = (len(whole) * len(weight_decays), 1, width)
    return GridHeads(weight.float().view(*shape, -1).contiguous(), bias.float().view(shape).contiguous())


def _principal_components(X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The rows' mean, an orthonormal basis (features, components) and the variance along each of its columns."""
    mean = X.mean(0)
    centred = X - mean
    wide = X.shape[1] > X.shape[0]
    values, vectors = torch.linalg.eigh((centred @ centred.T if wide else centred.T @ centred) / len(X))
    kept = values > NO_VARIANCE * values[-1:].clamp(min=torch.finfo(X.dtype).tiny)
    values, vectors = values[kept], vectors[:, kept]
    if wide:
        vectors = torch.linalg.qr(centred.T @ (vectors / (values * len(X)).sqrt())).Q  # exactly orthonormal again
        values = (centred @ vectors).square().mean(0)
    return mean, vectors, values


def _minimise(X: Tensor, Y: Tensor, decay: Tensor, prior: Tensor, variance: Tensor, tolerance: float) -> Tensor:
    Y = Y.to(X)
    share = Y.mean(0).clamp(1 / (2 * len(X)), 1 - 1 / (2 * len(X)))
    # A label that no row carries, or every one, has no optimum: its bias would grow without end. As if half a row did.
    Y = torch.where((Y[:1] == Y).all(0), share, Y)
    # The optimum without features: a good start for rare labels. It is near that of weak labels with their prior, too.
    solution = torch.cat([prior, share.logit().unsqueeze(1)], dim=1)
    spread = (share * (1 - share)).unsqueeze(1)
    penalty = torch.cat([decay.unsqueeze(1).expand(-1, X.shape[1]), torch.zeros_like(spread)], dim=1)
    inverse = 1 / (torch.cat([spread * variance, spread], dim=1) + penalty)
    active = torch.arange(Y.shape[1], device=X.device)  # columns that have not ended; all state below is theirs alone
    theta, target = solution.clone(), solution.clone()
    Z = torch.addmm(theta[:, -1], X, theta[:, :-1].T)
    gradient = _gradient(X, Y, Z, theta - target, penalty)
    moves: list[tuple[Tensor, Tensor]] = []
    for _ in range(MAX_ITERATIONS):
        going = gradient.abs().amax(1) > tolerance
        if not going.all():
            solution[active[~going]] = theta[~going]
            active, theta, target, gradient = active[going], theta[going], target[going], gradient[going]
            penalty, inverse, Y, Z = penalty[going], inverse[going], Y[:, going], Z[:, going]
            moves = [(s[going], y[going]) for s, y in moves]
            if len(active) == 0:
                return solution
        direction = _direction(gradient, moves, inverse)
        along = torch.addmm(direction[:, -1], X, direction[:, :-1].T)
        length = _line_search(Y, Z, along, theta - target, direction, penalty, gradient)
        change = direction.mul_(length.unsqueeze(1))
        theta = theta + change
        Z.addcmul_(along, length)
        new_gradient = _gradient(X, Y, Z, theta - target, penalty)
        moves = [*moves[-HISTORY + 1 :], (change, new_gradient - gradient)]
        gradient = new_gradient
    solution[active] = theta
    return solution


def _gradient(X: Tensor, Y: Tensor, Z: Tensor, away: Tensor, penalty: Tensor) -> Tensor:
    error = Z.sigmoid().sub_(Y).div_(len(X))
    return torch.cat([error.T @ X, error.sum(0).unsqueeze(1)], dim=1).addcmul_(penalty, away)


def _direction(gradient: Tensor, moves: list[tuple[Tensor, Tensor]], inverse: Tensor) -> Tensor:
    """The two-loop recursion, each row with its own history; a move without curvature counts for nothing."""
    d = -gradient
    saved = []
    for s, y in reversed(moves):
        curvature = torch.linalg.vecdot(s, y)
        rho = torch.where(curvature > 0, 1 / curvature, 0.0)
        a = rho * torch.linalg.vecdot(s, d)
        d.sub_(a.unsqueeze(1) * y)
        saved.append((s, y, rho, a))
    d.mul_(inverse)
    if moves:  # the first guess's shape, with the size that the last move has shown
        s, y = moves[-1]
        scale = torch.linalg.vecdot(s, y) / torch.linalg.vecdot(y * inverse, y)
        d.mul_(torch.where(scale > 0, scale, 1.0).unsqueeze(1))  # False for 0 / 0 too
    for s, y, rho, a in reversed(saved):
        d.add_((a - rho * torch.linalg.vecdot(y, d)).unsqueeze(1) * s)
    return d


def _line_search(
    Y: Tensor, Z: Tensor, along: Tensor, away: Tensor, direction: Tensor, penalty: Tensor, gradient: Tensor
) -> Tensor:
    """For each column the first of 1, 1/2, 1/4, ... that lowers the loss enough (Armijo)."""
    slope = torch.linalg.vecdot(gradient, direction)
    linear = (penalty * away * direction).sum(1)
    square = (penalty * direction * direction).sum(1)
    base = F.softplus(Z).mean(0)
    tilt = (Y * along).mean(0)
    open_ = torch.arange(len(slope), device=slope.device)
    length = torch.ones_like(slope)
    for _ in range(40):
        t = length[open_]
        every = len(open_) == len(length)  # no copies of the columns in the usual case
        z, a = (Z, along) if every else (Z[:, open_], along[:, open_])
        rise = F.softplus(torch.addcmul(z, a, t)).mean(0) - base[open_] - t * tilt[open_]
        rise = rise + t * linear[open_] + t * t * square[open_] / 2
        failed = rise > ARMIJO * t * slope[open_] + 1e-15  # rounding near the optimum must not stop a column
        open_ = open_[failed]
        if len(open_) == 0:
            break
        length[open_] /= 2
    return length
