"""Batches in which rare labels have partners."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch.utils.data import Sampler


class LabelAwareSampler(Sampler[int]):
    """A random order in which an example is followed, if possible, by another with its rarest label.

    Contrastive losses learn nothing from a label that is alone in its batch. Here each epoch still visits every example
    once, but a drawn example brings a partner: an unvisited one that carries the rarest of its labels.

    Args:
        labels: The label ids of each example.
        seed: Each epoch's order follows from it and the number of the epoch.
        epoch: Tells the number of the epoch that begins. Not by ``set_epoch``: accelerate does not pass it on where
            training resumes in the middle of an epoch on several ranks.

    Examples:
        >>> order = list(LabelAwareSampler([[0], [1], [0], [1], [2]], seed=0))
        >>> sorted(order), [pair in (0, 2) for pair in order].count(True)
        ([0, 1, 2, 3, 4], 2)
    """

    def __init__(self, labels: Sequence[Sequence[int]], seed: int = 0, epoch: Callable[[], int] = lambda: 0) -> None:
        self.labels = [list(ids) for ids in labels]
        self.seed = seed
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch())
        order = torch.randperm(len(self.labels), generator=generator).tolist()
        carriers: dict[int, list[int]] = {}
        for index in order:
            for label in self.labels[index]:
                carriers.setdefault(label, []).append(index)
        frequency = {label: len(rows) for label, rows in carriers.items()}
        visited = [False] * len(order)
        for index in order:
            if visited[index]:
                continue
            visited[index] = True
            yield index
            if not self.labels[index]:
                continue
            rows = carriers[min(self.labels[index], key=lambda label: (frequency[label], label))]
            while rows and visited[rows[-1]]:
                rows.pop()
            if rows:
                partner = rows.pop()
                visited[partner] = True
                yield partner
