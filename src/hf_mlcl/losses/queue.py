"""A queue of past embeddings that gives every contrastive loss more candidates."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hf_mlcl.losses.labels import check_zero_one


class MomentumQueue(nn.Module):
    """First-in-first-out memory of embeddings and labels, as in MoCo.

    Pushed rows serve as further candidates, never as anchors, and receive no gradient. Fill it with the embeddings of
    a slowly moving copy of the encoder. It helps small batches with rare labels; the study trains without one.

    Args:
        size: Rows it remembers.
        dim: Length of an embedding.
        num_labels: Columns of the multi-hot labels; None for class ids (`supcon`).

    Examples:
        >>> from hf_mlcl import build_loss
        >>> queue = MomentumQueue(size=8, dim=4, num_labels=3).push(torch.randn(6, 4), torch.eye(3).repeat(2, 1))
        >>> value = build_loss("base")(torch.randn(2, 4), torch.eye(3)[:2], queue=queue)  # no positives in the batch
        >>> bool(value > 0)
        True
    """

    embeddings: Tensor
    labels: Tensor

    def __init__(self, size: int, dim: int, num_labels: int | None) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}. Leave the queue out to train without one.")
        self.size = size
        self.filled = 0
        self.next = 0
        label_shape = (size,) if num_labels is None else (size, num_labels)
        label_dtype = torch.long if num_labels is None else torch.bool
        self.register_buffer("embeddings", torch.zeros(size, dim))
        self.register_buffer("labels", torch.zeros(label_shape, dtype=label_dtype))

    @torch.no_grad()
    def push(self, embeddings: Tensor, labels: Tensor) -> MomentumQueue:
        """Remember these rows in place of the oldest ones."""
        if embeddings.ndim != 2 or embeddings.shape[1] != self.embeddings.shape[1]:
            raise ValueError(
                f"embeddings must have shape (rows, {self.embeddings.shape[1]}), got {tuple(embeddings.shape)}."
            )
        if labels.shape != (embeddings.shape[0], *self.labels.shape[1:]):
            expected = ("rows", *self.labels.shape[1:])
            raise ValueError(f"labels must have shape {expected} as the queue was made for, got {tuple(labels.shape)}.")
        if self.labels.ndim == 2 and labels.device.type == "cpu":
            check_zero_one(labels)
        rows = min(embeddings.shape[0], self.size)
        # Where the rows go depends on numbers that the host knows, so a GPU is never waited for.
        where = (torch.arange(rows, device=self.embeddings.device) + self.next) % self.size
        self.embeddings.index_copy_(0, where, embeddings[len(embeddings) - rows :].to(self.embeddings))
        self.labels.index_copy_(0, where, labels[len(labels) - rows :].to(self.labels))
        self.next = (self.next + rows) % self.size
        self.filled = min(self.filled + rows, self.size)
        return self

    def rows(self) -> tuple[Tensor, Tensor]:
        """Embeddings and labels of the rows it holds, in no particular order."""
        return self.embeddings[: self.filled], self.labels[: self.filled]

    def get_extra_state(self) -> Tensor:
        """How much of the buffers is in use and where the next row goes."""
        return torch.tensor([self.filled, self.next])

    def set_extra_state(self, state: Tensor) -> None:
        """Restore what `get_extra_state` gave."""
        self.filled, self.next = state.tolist()
