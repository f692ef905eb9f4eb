"""What all contrastive losses share: checking a batch, arranging its rows, and calling the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from hf_mlcl.losses.engine import Contrast, PairCounts, Pairs, contrast, pairs
from hf_mlcl.losses.gathering import gather_rows, rank, sum_over_ranks, world_size
from hf_mlcl.losses.labels import LabelSets, check_dense, check_followed, check_multi_hot, check_zero_one, to_class_ids
from hf_mlcl.losses.loss import Loss, number
from hf_mlcl.losses.queue import MomentumQueue

Targets = Callable[[slice, Tensor], Tensor]
"""See `hf_mlcl.losses.engine.Contrast.targets`."""


@dataclass(frozen=True)
class Rows:
    """The rows of one contrast: queue, instances, prototypes (the last only in losses that use them)."""

    queued: range
    instances: range
    prototypes: range
    labels: Tensor
    """Of queue and instances: multi-hot in the embeddings' dtype, or class ids for `supcon`."""

    def label_sets(self) -> LabelSets:
        """The label sets of all rows."""
        return LabelSets(self.labels, with_prototypes=len(self.prototypes) > 0)


class LossParts(NamedTuple):
    """A contrastive loss before the division, so that the parts of several devices can be added."""

    total: Tensor
    """Sum over the anchors; differentiable."""
    divisor: Tensor
    """What the mean divides by (before it is kept from being 0)."""
    anchors: int
    valid_anchors: Tensor
    """Number of anchors that have a positive."""
    counts: PairCounts | None
    """Sums over pairs, where they were asked for."""

    def mean(self) -> Tensor:
        """The loss; 0 where no anchor has a positive."""
        return self.total / self.divisor.clamp(min=1.0)

    def statistics(self) -> dict[str, Tensor]:
        """What people look at while training, as scalar tensors on the batch's device.

        ``prr``: share of the positive pairs that the regulariser touches, or would touch in a loss without it;
        ``positive_similarity``, ``negative_similarity``: mean cosine; ``anchors_without_positives``: a share.
        """
        if self.counts is None:
            raise ValueError("These parts were computed without statistics; pass statistics=True to `parts`.")
        positives, raised, pairs, positive_similarity, similarity = self.counts
        negatives = pairs - positives
        return {
            "prr": raised / positives.clamp(min=1.0),
            "positive_similarity": positive_similarity / positives.clamp(min=1.0),
            "negative_similarity": (similarity - positive_similarity) / negatives.clamp(min=1.0),
            "anchors_without_positives": 1.0 - self.valid_anchors / max(self.anchors, 1),
        }


class ContrastiveLoss(Loss):
    """Base of the contrastive losses.

    A subclass states its targets and, where they differ from the defaults, its anchors, candidates, denominator
    weights and divisor. `losses/engine.py` has the formula that they enter.

    Args:
        temperature: tau > 0.
        chunk_size: Anchor rows computed at a time. The result does not change, memory does: it grows with
            ``chunk_size * batch``. None computes small batches whole and large ones in tiles of a few megabytes.

    Inputs:
        - **embeddings** (B, d): raw, in any floating dtype; the computation is in float32 (float64 stays float64).
        - **labels** (B, L): multi-hot, as bool, integers or floats.
        - **prototypes** (L, d): raw; needed where `uses_prototypes`, ignored elsewhere.
        - **queue**: a `MomentumQueue` of further candidates.
    """

    kind = "contrastive"
    regularised: ClassVar[bool] = False

    def __init__(self, temperature: float = 0.1, chunk_size: int | None = None) -> None:
        super().__init__()
        self.temperature = number("temperature", temperature, above=True, hint="The study uses 0.1.")
        if chunk_size is not None and not (isinstance(chunk_size, int) and chunk_size >= 1):
            raise ValueError(
                f"chunk_size must be a whole number of rows, or None to choose it automatically; got {chunk_size!r}."
            )
        self.chunk_size = chunk_size

    def targets(self, rows: Rows) -> Targets:
        """How strongly each pair should attract."""
        raise NotImplementedError("A subclass of ContrastiveLoss states its targets.")

    def anchors(self, rows: Rows) -> range:
        """The rows that are anchors: the instances."""
        return rows.instances

    def candidates(self, rows: Rows) -> range:
        """The rows that anchors are compared with: all."""
        return range(rows.queued.start, rows.prototypes.stop)

    def weights(self, rows: Rows) -> Tensor | None:
        """Weights of the candidates in the denominator; None stands for 1."""
        return None

    def divisor(self, rows: Rows, anchors: range, valid_anchors: Tensor) -> Tensor:
        """What the mean over these anchors divides by: those of them that have a positive."""
        return valid_anchors

    def check_labels(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Raise for wrong labels; return them as `targets` wants them."""
        check_multi_hot(labels, embeddings, rows_name="embeddings")
        if self.may_look_at_values(labels):
            check_zero_one(labels)
        return labels

    def forward(
        self, embeddings: Tensor, labels: Tensor, prototypes: Tensor | None = None, *, queue: Any = None
    ) -> Tensor:
        """The mean over the anchors."""
        if not self.gather_across_devices:
            return self.parts(embeddings, labels, prototypes, queue=queue).mean()
        check_dense(embeddings=embeddings, labels=labels)
        return self.of_gathered(gather_rows(embeddings), gather_rows(labels), prototypes, queue=queue)[0]

    def of_gathered(
        self, embeddings: Tensor, labels: Tensor, prototypes: Tensor | None = None, **settings: Any
    ) -> tuple[Tensor, LossParts]:
        """The loss of rows that were gathered from all ranks, and this rank's share of it; see `gathering`.

        Without gradients to share, every rank knows the value itself. The settings are those of `parts`.
        """
        share = self.parts(embeddings, labels, prototypes, shard=(rank(), world_size()), **settings)
        divisor = sum_over_ranks(share.divisor).clamp(min=1.0)
        total = world_size() * share.total if torch.is_grad_enabled() else sum_over_ranks(share.total)
        return total / divisor, share

    def parts(
        self,
        embeddings: Tensor,
        labels: Tensor,
        prototypes: Tensor | None = None,
        *,
        queue: MomentumQueue | None = None,
        statistics: bool = False,
        shard: tuple[int, int] = (0, 1),
    ) -> LossParts:
        """Sum and divisor apart; with `statistics`, the counts that `LossParts.statistics` needs as well.

        With `shard` (k, n), k from 0, of the k-th of n equal shares of the anchors: totals, divisors and counts of all
        shares add up to those of the whole.
        """
        check_dense(embeddings=embeddings, labels=labels, prototypes=prototypes)
        check_followed(embeddings)
        with torch.autocast(embeddings.device.type, enabled=False):
            x, rows = self._arrange(embeddings, labels, prototypes, queue)
            anchors = _share(self.anchors(rows), *shard)
            total, valid, counts = contrast(x, self._contrast(rows, anchors, statistics))
            return LossParts(total, self.divisor(rows, anchors, valid), len(anchors), valid, counts)

    def pairs(self, embeddings: Tensor, labels: Tensor, prototypes: Tensor | None = None) -> Pairs:
        """Target and pull of every pair of a small batch, to look at; see `hf_mlcl.losses.engine.Pairs`.

        Rows are the anchors, columns the candidates: instances first, then prototypes where the loss has them.

        Examples:
            >>> from hf_mlcl import build_loss
            >>> found = build_loss("base").pairs(torch.eye(3), torch.tensor([[1, 1], [1, 0], [0, 0]]))
            >>> found.target.tolist()[0], found.attraction.tolist()[0]
            ([0.0, 1.0, 0.0], [0.0, 0.5, -0.5])
        """
        check_dense(embeddings=embeddings, labels=labels, prototypes=prototypes)
        check_followed(embeddings)
        with torch.autocast(embeddings.device.type, enabled=False):
            x, rows = self._arrange(embeddings, labels, prototypes, None)
            return pairs(x, self._contrast(rows, self.anchors(rows)))

    def _contrast(self, rows: Rows, anchors: range, statistics: bool = False) -> Contrast:
        return Contrast(
            anchors=anchors,
            candidates=self.candidates(rows),
            targets=self.targets(rows),
            temperature=self.temperature,
            weights=self.weights(rows),
            regularised=self.regularised,
            chunk_size=self.chunk_size,
            statistics=statistics,
        )

    def _arrange(
        self, embeddings: Tensor, labels: Tensor, prototypes: Tensor | None, queue: MomentumQueue | None
    ) -> tuple[Tensor, Rows]:
        if embeddings.ndim != 2 or not embeddings.is_floating_point():
            raise ValueError(
                "embeddings must be a floating-point matrix of shape (batch, dim), but came as "
                f"{embeddings.dtype} of shape {tuple(embeddings.shape)}."
            )
        dtype = torch.float64 if embeddings.dtype == torch.float64 else torch.float32
        labels = self.check_labels(labels, embeddings)
        self.labels_are_right()
        labels = labels if labels.ndim == 1 else labels.to(dtype)
        parts = [embeddings.to(dtype)]
        if queue is not None:
            queued, queued_labels = _check_queue(queue, embeddings, labels)
            parts.insert(0, queued.to(dtype))
            labels = torch.cat([queued_labels.to(labels), labels])
        if self.uses_prototypes:
            parts.append(_check_prototypes(prototypes, embeddings, labels, self).to(dtype))
        end = len(labels)
        rows = Rows(
            queued=range(end - len(embeddings)),
            instances=range(end - len(embeddings), end),
            prototypes=range(end, end + (len(parts[-1]) if self.uses_prototypes else 0)),
            labels=labels,
        )
        return torch.cat(parts), rows


def _check_queue(queue: MomentumQueue, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Embeddings and labels of the queue's rows."""
    past, past_labels = queue.rows()
    if labels.ndim == 1 and past_labels.ndim == 2:  # a single-label loss with a queue of one-hot rows
        past_labels = to_class_ids(past_labels, past, rows_name="the queue's embeddings", check_values=False)
    if past.device != embeddings.device:
        raise ValueError(f"queue is on {past.device} but embeddings on {embeddings.device}; move them together.")
    if past.shape[1] != embeddings.shape[1] or past_labels.shape[1:] != labels.shape[1:]:
        raise ValueError(
            f"queue holds embeddings of length {past.shape[1]} and labels of shape {tuple(past_labels.shape[1:])}, "
            f"but the batch has length {embeddings.shape[1]} and shape {tuple(labels.shape[1:])}. "
            "Make the queue with the batch's dim and num_labels."
        )
    return past, past_labels


def _check_prototypes(prototypes: Tensor | None, embeddings: Tensor, labels: Tensor, loss: Loss) -> Tensor:
    expected = (labels.shape[1], embeddings.shape[1])
    if prototypes is None:
        raise ValueError(
            f"prototypes are missing: {type(loss).__name__} compares with one per label, a tensor of shape {expected}."
        )
    if tuple(prototypes.shape) != expected:
        raise ValueError(
            f"prototypes must have shape (num_labels, dim) = {expected}, but came with shape {tuple(prototypes.shape)}."
        )
    if prototypes.device != embeddings.device:
        raise ValueError(f"prototypes are on {prototypes.device} but embeddings on {embeddings.device}.")
    return prototypes


def _share(whole: range, index: int, of: int) -> range:
    """The `index`-th of `of` nearly equal consecutive parts, counted from 0."""
    if not 0 <= index < of:
        raise ValueError(f"shard must be (k, n) with 0 <= k < n, got {(index, of)}.")
    return range(whole.start + len(whole) * index // of, whole.start + len(whole) * (index + 1) // of)
