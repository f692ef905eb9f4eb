"""Batches: training ones without an incomplete last one, those of evaluation, and those in which rare labels meet."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Sampler, Subset
from transformers import Trainer

from hf_mlcl.data.collators import Collator
from hf_mlcl.data.labels import label_ids

logger = logging.getLogger(__name__)

MOST_DROPPED = 0.2
"""Share of the training rows that may be left out of an epoch without a word."""
NEEDS_LABELS = (
    "The dataset needs a column `labels`, and the collator must make multi-hot vectors of it: use "
    "hf_mlcl.data.TextCollator or ImageCollator."
)
REAL_ROWS = "_real_rows"
"""Key under which a batch carries how many of all ranks' rows are examples and not copies that fill it up."""


class BatchTrainer(Trainer):
    """HF's `Trainer` with our choice of batches."""

    eval_data_collator: Any = None
    _rows_of_last_train_batch = 0

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The training batches, the last incomplete one left out if so asked and if another is left."""
        rows = len(self.train_dataset) if hasattr(self.train_dataset, "__len__") else None
        whole_batch = self.args.train_batch_size * self.args.world_size
        before = self.args.dataloader_drop_last
        if self.args.drop_last_train_batch and (rows is None or rows >= whole_batch):
            self.args.dataloader_drop_last = True
            if rows is not None and rows % whole_batch > MOST_DROPPED * rows:
                logger.warning(
                    "%d of %d training rows are left out in every epoch, since they do not fill a batch of %d. Use "
                    "smaller batches, or drop_last_train_batch=False.",
                    *(rows % whole_batch, rows, whole_batch),
                )
        padded = self.args.world_size > 1 and rows is not None and not self.args.dataloader_drop_last
        # Counted here, since accelerate forgets it when an epoch is resumed in the middle.
        self._rows_of_last_train_batch = rows % whole_batch if padded and rows else 0
        try:
            return super().get_train_dataloader()
        finally:
            self.args.dataloader_drop_last = before

    def _get_dataloader(self, *args: Any, augmented: bool = False, **kwargs: Any) -> DataLoader[Any]:
        """HF's, with `eval_data_collator`, if there is one, for what is neither training nor to be augmented."""
        training_collator = getattr(self, "data_collator")  # noqa: B009
        if self.eval_data_collator is not None and not augmented and not kwargs.get("is_training"):
            self.data_collator = self.eval_data_collator
        try:
            return super()._get_dataloader(*args, **kwargs)
        finally:
            self.data_collator = training_collator

    def _set_signature_columns_if_needed(self) -> None:
        """HF's, and the columns that a collator of ours reads."""
        super()._set_signature_columns_if_needed()
        for collator in (self.data_collator, self.eval_data_collator):
            read = collator.columns if isinstance(collator, Collator) else []
            self._signature_columns += [column for column in read if column not in self._signature_columns]

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        dataset = self.train_dataset if train_dataset is None else train_dataset
        if not self.args.label_aware_batches:
            return super()._get_train_sampler(train_dataset)
        seed = self.args.data_seed if self.args.data_seed is not None else self.args.seed
        labels = label_ids(dataset, self.model.config.label_names)
        return LabelAwareSampler(labels, seed=seed, epoch=lambda: int(self.state.epoch or 0))

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> Any:
        """Mark the last batch of an epoch where the loader filled it up with copies."""
        batches, num_items = super().get_batch_samples(epoch_iterator, num_batches, device)
        state = self.accelerator.gradient_state
        if batches and state.end_of_dataloader:
            is_stream = not hasattr(self.train_dataset, "__len__") and self.args.world_size > 1
            real_rows = max(int(state.remainder), 0) if is_stream else self._rows_of_last_train_batch
            if real_rows:
                batches[-1][REAL_ROWS] = real_rows
        return batches, num_items


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


def first_view(inputs: dict[str, Any]) -> dict[str, Any]:
    """Where images come in several views (batch, views, 3, height, width), only the first."""
    pixels = inputs.get("pixel_values")
    return {**inputs, "pixel_values": pixels[:, 0]} if pixels is not None and pixels.ndim == 5 else dict(inputs)


def evenly(dataset: Any, most: int) -> Any:
    """At most `most` rows, spread evenly over the dataset; of a stream, the first ones."""
    if not hasattr(dataset, "__len__"):
        return list(islice(dataset, most))
    if len(dataset) <= most:
        return dataset
    chosen = np.linspace(0, len(dataset) - 1, most).astype(int).tolist()
    return dataset.select(chosen) if hasattr(dataset, "select") else Subset(dataset, chosen)


def check_not_empty(**datasets: Any) -> None:
    """Raise for a dataset without rows, by its name."""
    for name, dataset in datasets.items():
        if dataset is not None and hasattr(dataset, "__len__") and len(dataset) == 0:
            raise ValueError(f"{name} has no rows. Check how it was loaded, split and filtered.")
