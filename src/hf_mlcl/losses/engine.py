"""The one computation behind every contrastive loss.

All rows that take part stand in one matrix ``x``, in the order *queue, instances, prototypes*. A loss picks two
contiguous ranges of it, its anchors and its candidates, and says how strongly each pair should attract: the targets
T >= 0. A pair with T > 0 is positive. The rest is the same for every loss:

    u_i   = x_i / |x_i|                      normalised rows
    s_ij  = <u_i, u_j> / tau                 similarities; a row never meets itself
    Z_i   = sum_j w_j exp(s_ij)              over the candidates; w is 1 but in `msc`
    p_ij  = w_j exp(s_ij) / Z_i              the candidate's share of the denominator
    m_i   = sum_j T_ij                       1 in most losses, 0 for an anchor without positives
    sum   = sum_i [ - sum_j T_ij (s_ij - log Z_i)
                    - sum_(j positive) max(0, m_i p_ij - T_ij) s_ij ]

The last line is the regulariser of `reg` and `supcon_reg`; its weight max(0, ...) is a constant to the gradient. All
it does is raise the target of a positive pair to the probability that the pair already has. With

    H_ij  = max(T_ij, m_i p_ij) on the positive pairs of a regularised loss, T_ij elsewhere

value and gradient are one line each:

    sum           = sum_i [ m_i log Z_i - sum_j H_ij s_ij ]
    -dsum/ds_ij   = H_ij - m_i p_ij          the attraction of the pair: never negative on a positive pair of a
                                             regularised loss

So the forward pass computes the gradient as well, one tile of anchors after another, and the backward pass only scales
it. Nothing of size anchors x candidates outlives its tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

TILE_PAIRS = 2**22
"""Pairs in a tile where no `chunk_size` is given. 16 MB of float32 a matrix: larger tiles fall out of the cache."""

TILE_ROWS = 128
"""Tiles have a multiple of this many rows where no `chunk_size` is given: it keeps the matrix products efficient."""


MIN_SAFE_TEMPERATURE = 0.025
"""From here on exp(s) neither overflows nor loses anything in float32, since |s| <= 1 / tau: no maximum is needed."""


@dataclass(frozen=True)
class Contrast:
    """What a loss states about one batch, in the names of the formulas above.

    Attributes:
        anchors: The rows of ``x`` that are anchors.
        candidates: The rows of ``x`` that anchors are compared with.
        targets: Called as ``targets(rows, out)`` with a slice of anchor rows and an uninitialised tensor of shape
            (rows, candidates); returns their T, in `out` or in another tensor, which is copied. What it says of a row
            and itself is ignored.
        temperature: tau.
        weights: w, of shape (candidates,); None stands for 1.
        regularised: Whether the regulariser takes part.
        chunk_size: Rows a tile; None lets the engine choose.
        statistics: Whether to count the `PairCounts`, a few passes over each tile more.
    """

    anchors: range
    candidates: range
    targets: Callable[[slice, Tensor], Tensor]
    temperature: float
    weights: Tensor | None = None
    regularised: bool = False
    chunk_size: int | None = None
    statistics: bool = False

    def tiles(self) -> list[slice]:
        """Consecutive slices of anchor rows that cover them all."""
        columns = max(len(self.candidates), 1)
        fitting = len(self.anchors) if len(self.anchors) * columns <= TILE_PAIRS else TILE_PAIRS // columns
        if fitting < len(self.anchors):
            fitting = max(fitting // TILE_ROWS, 1) * TILE_ROWS
        step = max(self.chunk_size or fitting, 1)
        return [slice(i, min(i + step, self.anchors.stop)) for i in range(self.anchors.start, self.anchors.stop, step)]


class PairCounts(NamedTuple):
    """Sums over the pairs of a batch, as scalar tensors on its device.

    Sums, not ratios, so that those of several devices can be added; `ContrastiveLoss` makes the ratios.
    """

    positives: Tensor
    """Number of positive pairs."""
    raised: Tensor
    """Those more probable than their target: the ones the regulariser raises, or would raise."""
    pairs: Tensor
    """Number of pairs."""
    positive_similarity: Tensor
    """Sum of the cosine similarities over positive pairs."""
    similarity: Tensor
    """Sum of the cosine similarities over all pairs."""


class ContrastSum(NamedTuple):
    """What `contrast` returns."""

    total: Tensor
    """``sum`` of the formulas above; differentiable once."""
    valid_anchors: Tensor
    """Number of anchors that have a positive."""
    counts: PairCounts | None
    """Only where they were asked for."""


def contrast(x: Tensor, spec: Contrast) -> ContrastSum:
    """The sum over all anchors that `spec` states for the rows `x`, with its closed-form gradient.

    Args:
        x: Raw embeddings (rows, d), float32 or float64. A zero row has similarity 0 to all others.
        spec: What is compared, and how.
    """
    total, valid, *counts = _Contrast.apply(x, spec, torch.is_grad_enabled() and x.requires_grad)
    return ContrastSum(total, valid, PairCounts(*counts) if spec.statistics else None)


class Pairs(NamedTuple):
    """Every pair of a contrast, each of shape (anchors, candidates)."""

    target: Tensor
    """T of the formulas above; a pair is positive where it is above 0."""
    attraction: Tensor
    """H - m p, minus the gradient of the sum by the similarity: how strongly the loss pulls the pair together."""


@torch.no_grad()
def pairs(x: Tensor, spec: Contrast) -> Pairs:
    """What `contrast` computes tile by tile and forgets, for all pairs at once: to look at, for batches that fit.

    Args:
        x: As for `contrast`.
        spec: As for `contrast`.
    """
    u, _ = _normalise(x)
    rows = slice(spec.anchors.start, spec.anchors.stop)
    s, p, target = x.new_empty((3, len(spec.anchors), len(spec.candidates)))
    target, expected, *_ = _tile(u, rows, spec, s, p, target)
    raised = _raise(target, expected, s, torch.empty_like(s)) if spec.regularised else target
    return Pairs(target, raised - expected)


class _Contrast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, spec: Contrast, needs_grad: bool) -> tuple[Tensor, ...]:
        u, norm = _normalise(x)
        candidates = slice(spec.candidates.start, spec.candidates.stop)
        keys = u[candidates]
        total, valid = x.new_zeros(()), x.new_zeros(())
        counts = x.new_zeros(5).unbind() if spec.statistics else ()
        grad = torch.zeros_like(u)  # of the sum by the normalised rows, times -tau
        tiles = spec.tiles()
        # The tiles' memory is asked for once: asking again for each costs as much as the softmax.
        rows_a_tile = tiles[0].stop - tiles[0].start if tiles else 0
        buffers = x.new_empty((4 if spec.regularised else 3, rows_a_tile, len(spec.candidates)))
        for rows in tiles:
            s, p, target, *spare = buffers[:, : rows.stop - rows.start]
            target, expected, mass, log_z = _tile(u, rows, spec, s, p, target)
            valid = valid + (mass > 0).sum()
            total = total + (mass * log_z).sum()
            if spec.statistics:
                counts = _add_counts(counts, s, target, expected, rows.start - candidates.start, spec)
            raised = _raise(target, expected, spare[0], target) if spec.regularised else target
            total = total - torch.dot(raised.flatten(), s.flatten())

            if needs_grad:
                attraction = raised.sub_(expected)
                if len(tiles) == 1 and spec.anchors == spec.candidates:
                    grad[rows].addmm_(attraction + attraction.T, keys)
                else:
                    grad[rows].addmm_(attraction, keys)
                    grad[candidates].addmm_(attraction.T, u[rows])

        if needs_grad:
            grad.addcmul_(u, torch.linalg.vecdot(grad, u).unsqueeze(1), value=-1)  # through the normalisation
            grad.div_(norm * -spec.temperature)
        ctx.save_for_backward(grad)
        ctx.mark_non_differentiable(valid, *counts)
        return total, valid, *counts

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, *_: Tensor) -> tuple[Tensor, None, None]:
        # The gradient is a constant here: its own derivative would silently be 0.
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError(
                "Contrastive losses have first derivatives only; call backward without create_graph=True."
            )
        (grad,) = ctx.saved_tensors
        return upstream * grad, None, None


def _normalise(x: Tensor) -> tuple[Tensor, Tensor]:
    """u, and the norms that it was divided by."""
    largest = x.abs().amax(1, keepdim=True)  # taken out first: the squares of 1e20 overflow in float32
    is_zero = largest < torch.finfo(x.dtype).tiny ** 0.5  # a row so short is a zero row: its gradient would overflow
    largest = largest.masked_fill(is_zero, 1.0)
    u = x / largest
    length = torch.linalg.vector_norm(u, dim=1, keepdim=True).masked_fill(is_zero, 1.0)
    return u.div_(length), largest * length


def _tile(
    u: Tensor, rows: slice, spec: Contrast, s: Tensor, p: Tensor, target: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """T, m p, m and log Z of the anchors `rows`; the last two are columns. Writes into the three buffers."""
    info = torch.finfo(u.dtype)
    itself = rows.start - spec.candidates.start  # the diagonal on which a row meets itself
    keys = u[spec.candidates.start : spec.candidates.stop]

    s.addmm_(u[rows], keys.T, beta=0.0, alpha=1 / spec.temperature)
    s.diagonal(itself).fill_(info.min)  # finite, so that no product with 0 is NaN
    given = spec.targets(rows, target)
    if given.shape != target.shape:
        raise ValueError(
            f"targets must return one number per pair, of shape {tuple(target.shape)}; got {tuple(given.shape)}."
        )
    if given is not target:  # somebody else's tensor, perhaps the caller's own labels: never written to
        target.copy_(given)
    target.diagonal(itself).zero_()
    mass = target.sum(1, keepdim=True)

    if spec.temperature >= MIN_SAFE_TEMPERATURE:
        highest: Tensor | float = 0.0
        torch.exp(s, out=p)
    else:
        highest = s.amax(1, keepdim=True)
        torch.sub(s, highest, out=p).exp_()
    if spec.weights is not None:
        p.mul_(spec.weights)
    z = p.sum(1, keepdim=True).clamp_(min=info.tiny)  # 0 for a row that has no candidate but itself
    return target, p.mul_(mass / z), mass, z.log() + highest


def _raise(target: Tensor, expected: Tensor, spare: Tensor, out: Tensor) -> Tensor:
    """H in `out`: the targets of positive pairs, raised to what is expected of them."""
    # No target above 0 is so small that the ceiling would cut what it may be raised to.
    ceiling = torch.mul(target, 1 / torch.finfo(target.dtype).tiny, out=spare)
    return torch.clamp(expected, min=target, max=ceiling, out=out)


def _add_counts(
    counts: tuple[Tensor, ...], s: Tensor, target: Tensor, expected: Tensor, itself: int, spec: Contrast
) -> tuple[Tensor, ...]:
    """Add what one tile has to the `PairCounts`."""
    before = PairCounts(*counts)
    positive = target > 0
    similarity = s.clone()
    similarity.diagonal(itself).zero_()
    similarity *= spec.temperature
    return PairCounts(
        before.positives + positive.sum(),
        before.raised + (positive & (expected > target)).sum(),
        before.pairs + (s.numel() - s.diagonal(itself).numel()),
        before.positive_similarity + (similarity * positive).sum(),
        before.similarity + similarity.sum(),
    )
