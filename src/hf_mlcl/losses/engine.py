"""The one computation behind every contrastive loss of the family.

All rows that take part stand in one matrix ``x``, in the order *prototypes, instances, queue*. A loss picks two
contiguous ranges of it, its anchors and its candidates, and says how strongly each pair should attract: the targets
T. The rest is the same for every loss (`docs/paper_index.md` maps it to the paper's equations):

    u_i    = x_i / |x_i|                              normalised rows
    s_ij   = <u_i, u_j> / tau                         similarities; a row never meets itself
    p_ij   = w_j exp(s_ij) / Z_i                      softmax over the candidates, Z_i its denominator
    m_i    = sum_j T_ij                               1 for most losses; 0 for an anchor without positives
    loss   = 1/D sum_i [ -sum_j T_ij log p_ij  -  sum_j max(0, m_i p_ij - T_ij) s_ij ]
                                                      the second sum, the regulariser, runs over positive pairs only
                                                      and its weight max(0, ...) is a constant to the gradient

The regulariser only ever raises the target of a positive pair to the probability it already has. With

    H_ij   = max(T_ij, m_i p_ij) on positive pairs of a regularised loss, T_ij elsewhere

both the value and the gradient become one line each:

    D loss        = sum_i [ m_i log Z_i - sum_j H_ij s_ij - sum_j T_ij log w_j ]
    -D dloss/ds_ij = H_ij - m_i p_ij =: A_ij          the attraction of pair (i, j); never negative on a positive pair
                                                      of a regularised loss

So the forward pass computes the gradient too, one tile of anchors after another, and the backward pass only scales it.
Nothing of size anchors x candidates outlives a tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

TILE_ELEMENTS = 2**22
"""Pairs in a tile when no `chunk_size` is given (16 MB of float32): fewer starve the matrix product, more the cache."""


@dataclass(frozen=True)
class Contrast:
    """What a loss states about one batch. The names are those of the formulas above.

    Attributes:
        anchors: Range of the rows of ``x`` that are anchors.
        candidates: Range of the rows of ``x`` that anchors are compared with.
        targets: Maps a range of anchors to their T, a fresh tensor of shape (anchors in the range, candidates). What
            it says of a row and itself is ignored.
        temperature: tau.
        log_weights: log w, shape (candidates,); None means w = 1.
        regularised: Whether the regulariser takes part.
        divisor: D, a scalar tensor; None counts the anchors that have a positive.
        chunk_size: Anchors a tile; None fits the tile to `TILE_ELEMENTS`.
    """

    anchors: range
    candidates: range
    targets: Callable[[slice, Tensor], Tensor]
    temperature: float
    log_weights: Tensor | None = None
    regularised: bool = False
    divisor: Tensor | None = None
    chunk_size: int | None = None

    def tiles(self) -> list[slice]:
        """Consecutive ranges of anchors, `chunk_size` long, that cover them all."""
        step = self.chunk_size or max(TILE_ELEMENTS // max(len(self.candidates), 1), 1)
        return [slice(i, min(i + step, self.anchors.stop)) for i in range(self.anchors.start, self.anchors.stop, step)]


@dataclass(frozen=True)
class PairStatistics:
    """Sums over all pairs of a batch, as scalar tensors on its device: nothing here waits for a GPU.

    Attributes:
        anchors: Number of anchors.
        valid_anchors: Those that have at least one positive.
        positives: Number of positive pairs.
        raised: Positive pairs whose target the regulariser raised.
        pairs: Number of pairs.
        positive_similarity: Sum of the cosine similarities of positive pairs.
        similarity: Sum of the cosine similarities of all pairs.
    """

    anchors: Tensor
    valid_anchors: Tensor
    positives: Tensor
    raised: Tensor
    pairs: Tensor
    positive_similarity: Tensor
    similarity: Tensor


def contrast(x: Tensor, spec: Contrast) -> Tensor:
    """The loss that `spec` states over the rows of `x`, with its closed-form gradient.

    Args:
        x: Raw embeddings (rows, d) in float32 or float64. A zero row has similarity 0 to every other.
        spec: What to compare and how.
    """
    return _Contrast.apply(x, spec, torch.is_grad_enabled() and x.requires_grad)


class _Contrast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, spec: Contrast, needs_grad: bool) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=1, keepdim=True)
        norm = norm.masked_fill(norm == 0, 1.0)  # keeps u and its gradient finite at a zero row
        u = x / norm
        candidates = slice(spec.candidates.start, spec.candidates.stop)
        keys = u[candidates]
        queries = u / spec.temperature
        lowest = torch.finfo(x.dtype).min  # finite, so that 0 * lowest is 0 where a row meets itself

        total, valid = x.new_zeros(()), x.new_zeros(())
        grad = torch.zeros_like(u)
        tiles = spec.tiles()
        # Memory for the tiles is taken once: giving back and asking anew for each costs more than the softmax.
        buffers = x.new_empty((4, tiles[0].stop - tiles[0].start, len(spec.candidates)))
        for rows in tiles:
            s_out, p_out, t_out, h_out = buffers[:, : rows.stop - rows.start]
            own = rows.start - candidates.start  # the diagonal on which anchors meet themselves
            s = torch.mm(queries[rows], keys.T, out=s_out)
            s.diagonal(own).fill_(lowest)
            target = spec.targets(rows, t_out)
            target.diagonal(own).zero_()
            mass = target.sum(1, keepdim=True)

            logits = s if spec.log_weights is None else s + spec.log_weights
            p = torch.softmax(logits, dim=1, out=p_out)
            log_z = logits.amax(1) - p.amax(1).log()
            expected = p.mul_(mass)
            if spec.regularised:
                pull = torch.clamp(expected, target, torch.mul(target, 1e30, out=h_out), out=target)
            else:
                pull = target
            total = total + torch.dot(mass.flatten(), log_z) - torch.dot(pull.flatten(), s.flatten())
            if spec.log_weights is not None:
                total = total - (target @ spec.log_weights).sum()
            valid = valid + (mass > 0).sum()

            if needs_grad:
                attraction = pull.sub_(expected)
                if len(tiles) == 1 and spec.anchors == spec.candidates:
                    grad[rows].addmm_(attraction + attraction.T, keys)
                else:
                    grad[rows].addmm_(attraction, keys)
                    grad[candidates].addmm_(attraction.T, u[rows])

        divisor = (valid if spec.divisor is None else spec.divisor).clamp(min=1.0)
        grad = u * torch.linalg.vecdot(grad, u).unsqueeze(1) - grad  # through the normalisation
        ctx.save_for_backward(grad / (norm * (divisor * spec.temperature)))
        return total / divisor

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        (grad,) = ctx.saved_tensors
        return upstream * grad, None, None
