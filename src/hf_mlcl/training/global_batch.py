"""The loss of a step over the rows of all ranks, exact as `hf_mlcl.losses.gathering` says, and its statistics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from hf_mlcl.losses import ContrastiveLoss, LogitLoss, LossParts, gather_rows, loss_terms
from hf_mlcl.losses.engine import PairCounts
from hf_mlcl.losses.gathering import sum_over_ranks


@dataclass
class GlobalLoss:
    """The loss of a step and what there is to say about it.

    Attributes:
        value: What to call ``backward`` on.
        parts: Value of each part of a joined loss on this rank, detached.
        contrastive: Sums and counts of this rank's share of the contrastive loss, if there is one.
        embedding_norms: Lengths of all ranks' embeddings, detached, if there is a contrastive loss.
    """

    value: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
    contrastive: LossParts | None = None
    embedding_norms: Tensor | None = None

    def summary(self) -> dict[str, Tensor]:
        """The loss, and what this rank's share of a contrastive one has to say; detached, on the device."""
        counted = self.contrastive is not None and self.contrastive.counts is not None
        said = self.contrastive.statistics() if self.contrastive is not None and counted else {}
        return {"loss": self.value.detach(), **{name: value.detach() for name, value in said.items()}}


def global_loss(loss: nn.Module, outputs: Any, labels: Tensor, real_rows: int | None = None) -> GlobalLoss:
    """Compute `loss` over the rows of all ranks.

    Args:
        loss: A loss of the registry, or what `hf_mlcl.losses.as_loss` made of another.
        outputs: What `MLCLModel` returned on this rank.
        labels: This rank's labels.
        real_rows: How many of all gathered rows are examples, where the loader filled up the rest with copies.
    """
    rows = slice(0, real_rows)
    labels = gather_rows(labels)[rows]
    result = GlobalLoss(value=labels.new_zeros((), dtype=torch.float32))
    for name, weight, part in loss_terms(loss):
        if part.kind == "logit":
            compute = part.of_rows if isinstance(part, LogitLoss) else part
            value = compute(gather_rows(outputs.logits)[rows], labels)
        elif isinstance(part, ContrastiveLoss):
            embeddings = gather_rows(outputs.embeddings)[rows]
            value, result.contrastive = part.of_gathered(embeddings, labels, outputs.prototypes, statistics=True)
            result.embedding_norms = torch.linalg.vector_norm(embeddings.detach().float(), dim=1)
        else:
            value = part(gather_rows(outputs.embeddings)[rows], labels, outputs.prototypes)
        result.parts[name] = value.detach()
        result.value = result.value + weight * value
    return result


class TrainingStatistics:
    """Sums over the steps since the last log, on the device, which is waited for only when they are logged."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all steps."""
        self._sums: dict[str, Tensor] = {}

    def add(self, loss: GlobalLoss) -> None:
        """Take in one step."""
        found = {f"part:{name}": value for name, value in loss.parts.items()} if len(loss.parts) > 1 else {}
        if loss.contrastive is not None and loss.contrastive.counts is not None and loss.embedding_norms is not None:
            norms = loss.embedding_norms
            counted = {"anchors": loss.contrastive.anchors, "rows": len(norms), "steps": 1}
            found |= {"valid_anchors": loss.contrastive.valid_anchors, "norm": norms.sum()}
            found |= loss.contrastive.counts._asdict()
            found |= {name: norms.new_full((), count) for name, count in counted.items()}
        elif found:
            found["steps"] = loss.value.new_ones(())
        for name, value in found.items():
            self._sums[name] = self._sums[name] + value.detach() if name in self._sums else value.detach()

    def flush(self) -> dict[str, float]:
        """Means over the steps since the last call and over all ranks, which all call it, as plain numbers."""
        if not self._sums:
            return {}
        numbers = sum_over_ranks(torch.stack([value.float() for value in self._sums.values()])).tolist()
        sums = dict(zip(self._sums, numbers, strict=True))
        self.reset()
        logs = {
            f"loss_{name.removeprefix('part:')}": value / sums["steps"]
            for name, value in sums.items()
            if name.startswith("part:")
        }
        if "positives" in sums:
            counts = PairCounts(*(torch.tensor(sums[name]) for name in PairCounts._fields))
            none, valid = torch.zeros(()), torch.tensor(sums["valid_anchors"])
            whole = LossParts(none, none, int(sums["anchors"]), valid, counts)
            logs |= {name: value.item() for name, value in whole.statistics().items()}
            logs["embedding_norm"] = sums["norm"] / max(sums["rows"], 1.0)
        return logs
