"""Dropout whose masks belong to the rows of a batch, so that chunks and ranks change nothing.

Torch draws masks in the order of computation: the same seed gives other masks when a batch is encoded in chunks or on
several ranks. Here the mask of a row follows from a seed of the step, the number of the dropout within the encoder, and
the place of the row in the global batch, and from nothing else.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


def batch_dropout(rows: int, device: torch.device) -> Callable[[int, int], RowDropout]:
    """The masks of a batch with `rows` rows on each rank: of any `count` rows of this rank from `start` on."""
    seed, first = int(torch.randint(2**62, ())), 0
    if dist.is_available() and dist.is_initialized():
        # Ranks may have drawn different amounts of random numbers for their data: the first one's seed counts.
        seeds = [seed]
        dist.broadcast_object_list(seeds, device=device)
        seed, first = seeds[0], rows * dist.get_rank()
    return lambda start, count: RowDropout(seed, range(first + start, first + start + count))


class RowDropout(TorchFunctionMode):
    """While active, dropout, attention dropout and stochastic depth draw the masks of each row by themselves.

    Attention is then computed in the open, without the fused kernels, which draw masks of their own. `rows` are the
    places in the global batch of the rows that are being encoded.
    """

    def __init__(self, seed: int, rows: Sequence[int]) -> None:
        super().__init__()
        self.seed, self.rows, self.calls = seed, rows, 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Put ours in the place of the three functions that draw masks."""
        ours: dict[Callable[..., Any], Callable[..., Any]] = {
            F.dropout: self._dropout,
            F.scaled_dot_product_attention: self._attention,
            Tensor.bernoulli_: self._bernoulli_,
            F.multi_head_attention_forward: self._refuse,
        }
        return ours.get(func, func)(*args, **(kwargs or {}))

    def _dropout(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0.0:
            return input
        if p == 1.0:
            return input * 0.0
        mask = self._bernoulli_(torch.empty_like(input), 1.0 - p).div_(1.0 - p)
        return input.mul_(mask) if inplace else input * mask

    def _bernoulli_(self, mask: Tensor, p: float = 0.5, *, generator: torch.Generator | None = None) -> Tensor:
        if mask.ndim == 0 or mask.shape[0] != len(self.rows):
            raise ValueError(
                f"dropout_by_row needs masks of one row for each of the {len(self.rows)} examples, but this backbone "
                f"masks a tensor of shape {tuple(mask.shape)}. Train it with dropout_by_row=False."
            )
        generator = torch.Generator(mask.device)
        for row, place in zip(mask, self.rows, strict=True):
            # 64 bits of a hash: neighbours get unrelated ones.
            digest = hashlib.blake2b(repr((self.seed, self.calls, place)).encode(), digest_size=8).digest()
            generator.manual_seed(int.from_bytes(digest, "little"))
            row.bernoulli_(p, generator=generator)
        self.calls += 1
        return mask

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **further: Any,
    ) -> Tensor:
        if dropout_p == 0.0:
            return F.scaled_dot_product_attention(query, key, value, attn_mask, 0.0, is_causal, **further)
        scale = further.get("scale")
        if further.get("enable_gqa"):
            groups = query.shape[-3] // key.shape[-3]
            key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
        scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if attn_mask is not None:
            hidden = attn_mask.dtype == torch.bool
            scores = scores.masked_fill(~attn_mask, -math.inf) if hidden else scores + attn_mask
        return self._dropout(scores.softmax(-1).to(value.dtype), dropout_p) @ value

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise ValueError(
            "dropout_by_row cannot reach the dropout inside torch.nn.MultiheadAttention, which this backbone uses. "
            "Train it with dropout_by_row=False."
        )
