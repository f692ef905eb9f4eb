"""Padding that nobody computes: a batch of texts as smaller ones, each of texts of about one length.

A batch is padded to its longest text: tweets have 27 tokens, and the longest of 64 has 47. What a CPU computes for the
padding it computes in vain. A GPU does better with one large batch than with four smaller ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

GROUP_ROWS = 16
"""Rows a group: matrix products of fewer are slower by the token."""
WORTH_IT = 0.9
"""Share of the padded batch that groups may take, at most: each of them costs calls."""
HEEDS_PADDING = ("big_bird", "canine", "convbert", "fnet", "funnel", "mobilebert", "nystromformer", "reformer", "yoso")
"""Encoders whose mask does not hold everything back: how far a text is padded changes what they make of it."""
TEXT = {"input_ids", "attention_mask", "token_type_ids"}


def groups_by_length(inputs: Mapping[str, Tensor]) -> tuple[list[dict[str, Tensor]], Tensor] | None:
    """The groups, and where each row of the batch is among their rows; None for the batch as it is.

    It stays whole on other devices, where several processes must make the same calls, under a compiler, which would
    compile for every length, and where groups would save too little.

    Examples:
        >>> mask = torch.ones(32, 10, dtype=torch.long)
        >>> mask[::2, 4:] = 0  # every other text has four tokens
        >>> parts, places = groups_by_length({"input_ids": torch.arange(320).view(32, 10), "attention_mask": mask})
        >>> [list(part["input_ids"].shape) for part in parts]
        [[16, 4], [16, 10]]
        >>> torch.cat([part["input_ids"][:, 0] for part in parts])[places][:3].tolist()
        [0, 10, 20]
    """
    mask = inputs.get("attention_mask")
    if mask is None or mask.device.type != "cpu" or len(mask) < 2 * GROUP_ROWS or not inputs.keys() <= TEXT:
        return None
    together = torch.distributed.is_available() and torch.distributed.is_initialized()
    if together or torch.compiler.is_compiling() or any(value.shape != mask.shape for value in inputs.values()):
        return None
    mask = (mask != 0).long()
    if (mask[:, 1:] > mask[:, :-1]).any():  # padded on the left, where columns cannot go without moving positions
        return None
    tokens = mask.sum(1)
    order = tokens.argsort(stable=True)
    rows = torch.split(order, GROUP_ROWS)
    lengths = [max(int(tokens[part[-1]]), 1) for part in rows]
    if sum(len(part) * length for part, length in zip(rows, lengths, strict=True)) > WORTH_IT * mask.numel():
        return None
    parts = [
        {name: value[part, :length] for name, value in inputs.items()}
        for part, length in zip(rows, lengths, strict=True)
    ]
    return parts, order.argsort()


@contextmanager
def one_lookup(embedding: nn.Module, groups: Sequence[Mapping[str, Tensor]]) -> Iterator[None]:
    """Look up the tokens of all groups at once, so that they share one gradient of the embeddings.

    That gradient is as large as the vocabulary: one per group would be most of what a step of a small encoder writes.

    Examples:
        >>> words = nn.Embedding(100, 4)
        >>> groups = [{"input_ids": torch.tensor([[1, 2]])}, {"input_ids": torch.tensor([[3], [4]])}]
        >>> with one_lookup(words, groups):
        ...     vectors = [words(group["input_ids"]) for group in groups]
        >>> [list(one.shape) for one in vectors]
        [[1, 2, 4], [2, 1, 4]]
    """
    learns = isinstance(embedding, nn.Embedding) and embedding.weight.requires_grad and torch.is_grad_enabled()
    if not learns or embedding._forward_hooks or embedding._forward_pre_hooks:  # such as noise, which is for rows
        yield
        return
    ids = [group["input_ids"] for group in groups]
    found = embedding(torch.cat([part.flatten() for part in ids])).split([part.numel() for part in ids])
    vectors = {id(part): rows.view(*part.shape, -1) for part, rows in zip(ids, found, strict=True)}

    def take(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        return vectors.get(id(args[0]), output) if args else output  # of these very tokens, not of others

    hook = embedding.register_forward_hook(take)
    try:
        yield
    finally:
        hook.remove()
