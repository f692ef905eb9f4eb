"""What people look at while training, collected on the device and read only when it is logged."""

from __future__ import annotations

import torch
from torch import Tensor

from hf_mlcl.losses.contrastive import LossParts
from hf_mlcl.losses.engine import PairCounts
from hf_mlcl.losses.gathering import sum_over_ranks, world_size
from hf_mlcl.training.global_batch import GlobalLoss


class TrainingStatistics:
    """Sums over the steps since the last log.

    Adding to them costs a few operations on scalars and never waits for the device. `flush` adds the ranks' sums, so
    every rank has to call it.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all steps."""
        self._sums: dict[str, Tensor] = {}
        self._anchors = 0
        self._steps = 0

    def add(self, loss: GlobalLoss) -> None:
        """Take in one step."""
        self._steps += 1
        if len(loss.parts) > 1:
            for name, value in loss.parts.items():
                self._add(f"part:{name}", value)
        if loss.contrastive is not None and loss.contrastive.counts is not None:
            self._anchors += loss.contrastive.anchors
            self._add("valid_anchors", loss.contrastive.valid_anchors)
            for name, value in loss.contrastive.counts._asdict().items():
                self._add(name, value)
        if loss.embedding_norms is not None:
            self._add("norm", loss.embedding_norms.sum())
            self._add("rows", loss.embedding_norms.new_full((), len(loss.embedding_norms)))

    def flush(self) -> dict[str, float]:
        """Means over the steps since the last call, over all ranks, as plain numbers."""
        if not self._steps:
            return {}
        names = sorted(self._sums)
        logs: dict[str, float] = {}
        if names:
            values = torch.stack([self._sums[name].float() for name in names])
            anchors = values.new_tensor([float(self._anchors)])
            *numbers, all_anchors = sum_over_ranks(torch.cat([values, anchors])).tolist()
            sums = dict(zip(names, numbers, strict=True))
            for name in names:
                if name.startswith("part:"):
                    logs[f"loss_{name.removeprefix('part:')}"] = sums[name] / (self._steps * world_size())
            if "positives" in sums:
                counts = PairCounts(*(torch.tensor(sums[name]) for name in PairCounts._fields))
                none = torch.zeros(())
                whole = LossParts(none, none, int(all_anchors), torch.tensor(sums["valid_anchors"]), counts)
                logs |= {name: value.item() for name, value in whole.statistics().items()}
                logs["embedding_norm"] = sums["norm"] / max(sums["rows"], 1.0)
        self.reset()
        return logs

    def _add(self, name: str, value: Tensor) -> None:
        value = value.detach()
        self._sums[name] = self._sums[name] + value if name in self._sums else value
