"""Features of every row of a dataset, computed on all ranks, and kept on the disk where that is asked for."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import torch
import torch.nn.functional as F
from datasets import Dataset, Image
from datasets.fingerprint import Hasher
from torch import Tensor
from transformers import set_seed

from hf_mlcl.data.text import row_lengths, tokenizer_key
from hf_mlcl.evaluation.feature_cache import FeatureCache, feature_key
from hf_mlcl.training.batches import BatchTrainer, check_not_empty, first_view


class FeatureTrainer(BatchTrainer):
    """HF's `Trainer` with the features of its model's backbone."""

    def extract_features(self, dataset: Any) -> npt.NDArray[np.float32]:
        """The backbone's features (rows, hidden) of every row of a dataset in order, the same on every rank."""
        return self.features_and_labels(dataset)[0]

    def _cached_features(
        self, dataset: Any, cache_dir: str | os.PathLike[str] | None, augmented_pass: int | None = None
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """`features_and_labels` from a folder, where it has them of the same weights, data and collator."""
        if cache_dir is None or not isinstance(dataset, Dataset):
            return self.features_and_labels(dataset, augmented_pass)
        collator = self.data_collator if augmented_pass else self.eval_data_collator or self.data_collator
        processing = {
            "backbone": self.model.backbone.config.to_dict(),
            "pooling": [self.model.config.pooling, self.model.config.normalize_features],
            "precision": self.accelerator.mixed_precision,
            # The same in the next process, which an address would not be.
            "collator": Hasher.hash(collator) if " at 0x" in repr(collator) else repr(collator),
            "tokenizer": hasattr(collator, "tokenizer") and tokenizer_key(collator.tokenizer),  # shows no prompt
            "files": _files(dataset),
            "augmentation": augmented_pass and [self.args.seed, augmented_pass],
        }
        key = feature_key(self.model.backbone.state_dict(), dataset._fingerprint, processing)
        cache = FeatureCache(cache_dir)
        stored = cache.load(key)
        # All ranks compute together or not at all: a rank that has found its file would be waited for forever.
        present = torch.tensor([stored is not None], dtype=torch.long, device=self.args.device)
        present_everywhere = bool(self.accelerator.gather(present).all())
        if stored is None or not present_everywhere:
            features, labels = self.features_and_labels(dataset, augmented_pass)
            if self.accelerator.is_local_main_process:
                cache.save(key, {"features": torch.from_numpy(features), "labels": torch.from_numpy(labels)})
            self.accelerator.wait_for_everyone()
            stored = cache.load(key)  # mapped from the disk: what was computed can go
            if stored is None:
                return features, labels
        return stored["features"].numpy(), stored["labels"].numpy()

    @torch.no_grad()
    def features_and_labels(
        self, dataset: Any, augmented_pass: int | None = None
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """`extract_features`, and the multi-hot labels of the same rows; no columns of labels where there are none.

        Batches are made as for evaluation; those of an `augmented_pass` with the training collator and random numbers
        of the pass's own, the same in every call.
        """
        check_not_empty(dataset=dataset)
        was_training = self.model.training
        model = self.model
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            model = self.accelerator.prepare_model(model, evaluation_mode=True)
        model.eval()
        features, labels = [], []
        seed = augmented_pass and [self.args.seed, augmented_pass, self.args.process_index]
        before = self.args.dataloader_drop_last, self.args.dataloader_persistent_workers
        dataset, order = _by_length(dataset)
        try:
            self.args.dataloader_drop_last = False  # meant for training: no row is left out here
            self.args.dataloader_persistent_workers = False  # the loader is used once: its workers would stay forever
            size = self.args.eval_batch_size  # and no sampler: rows come in their order
            loader = self._get_dataloader(dataset, "features", size, augmented=augmented_pass is not None)
            with _random_numbers(seed) if seed else nullcontext(), self.accelerator.autocast():
                self.callback_handler.eval_dataloader = loader  # for those who show how far it is
                for batch in loader:
                    batch = first_view(self._prepare_inputs(batch))
                    label = batch.pop("labels", None)
                    rows = model(**batch).features.float()
                    features.append(self.accelerator.gather_for_metrics(rows.contiguous()).cpu())
                    if label is not None:
                        labels.append(self.accelerator.gather_for_metrics(label.float().contiguous()).cpu())
                    self.callback_handler.on_prediction_step(self.args, self.state, self.control)
                self.callback_handler.on_predict(self.args, self.state, self.control, metrics={})
        finally:
            self.args.dataloader_drop_last, self.args.dataloader_persistent_workers = before
            self.model.train(was_training)
        found = [torch.cat(features), torch.cat(labels) if labels else torch.zeros(0, self.model.config.num_labels)]
        if order is not None:  # back to the order of the rows
            found = [part[order.argsort()] if len(part) else part for part in found]
        return found[0].numpy(), found[1].numpy()


@contextmanager
def _random_numbers(seed: list[int]) -> Iterator[None]:
    """Python, numpy and torch draw from `seed`, as do the workers of a loader, and afterwards go on as before."""
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        set_seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])  # noqa: NPY002


def _files(dataset: Dataset) -> str:
    """A digest of the image files that rows name: one that was changed in its place is another one."""
    images = [name for name, feature in dataset.features.items() if isinstance(feature, Image)]
    cells = dataset.select_columns(images).with_format("arrow")
    named = [
        path
        for batch in (cells.iter(1000) if images else ())
        for column in batch.columns
        for path in pc.struct_field(column.filter(pc.is_null(pc.struct_field(column, "bytes"))), "path").to_pylist()
    ]
    stamps = [(path, os.stat(path)) for path in named if path and os.path.isfile(path)]
    return str(Hasher.hash([(path, stamp.st_size, stamp.st_mtime_ns) for path, stamp in stamps]))


def _by_length(dataset: Any) -> tuple[Any, Tensor | None]:
    """Texts with as many tokens side by side, so that little is filled up; and the order that they are in then."""
    if not isinstance(dataset, Dataset) or "input_ids" not in dataset.column_names:
        return dataset, None
    order = torch.tensor(row_lengths(dataset)).argsort(stable=True)
    return dataset.select(order.tolist()), order


def probe(kind: str, train: Tensor, train_labels: Tensor, features: Tensor) -> Tensor:
    """Probabilities (rows, L) of the labels of `features` from a classifier that takes no training.

    ``"knn"``: the share of the 15 nearest training rows (cosine) that carry the label; ``"ridge"``: ridge regression on
    the standardised features, cut to [0, 1].
    """
    train, features, train_labels = train.float(), features.float(), train_labels.float()
    if kind == "knn":
        near = (F.normalize(features, dim=1) @ F.normalize(train, dim=1).T).topk(min(15, len(train)), dim=1).indices
        return train_labels[near].mean(1)
    mean, deviation = train.mean(0), train.std(0, unbiased=False).clamp(min=1e-6)
    x, z = (train - mean) / deviation, (features - mean) / deviation
    gram = x.T @ x + 0.1 * len(x) * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    weights = torch.linalg.solve(gram, x.T @ (train_labels - train_labels.mean(0)))
    return (z @ weights + train_labels.mean(0)).clamp(0.0, 1.0)
