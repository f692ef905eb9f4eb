"""`ContrastiveMultiLabelTrainer`: HF's Trainer with contrastive, logit and joined losses over the global batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import Trainer
from transformers.utils import logging

from hf_mlcl.losses import CrossEntropyLoss, JoinedLoss
from hf_mlcl.metrics import compute_metrics, compute_single_label_metrics, multilabel_metrics
from hf_mlcl.models import MLCLModel
from hf_mlcl.training.arguments import ContrastiveTrainingArguments
from hf_mlcl.training.global_batch import global_loss
from hf_mlcl.training.probe import probe
from hf_mlcl.training.sampler import LabelAwareSampler
from hf_mlcl.training.statistics import TrainingStatistics

logger = logging.get_logger(__name__)

_REAL_ROWS = "_real_rows"
"""Key under which a batch carries how many of all ranks' rows are examples and not copies that fill it up."""


class ContrastiveMultiLabelTrainer(Trainer):
    """Trains an `MLCLModel` with any loss of the registry.

    Everything of HF's `Trainer` works as usual. Beyond it:

    - The contrastive batch is the union over all ranks. Loss and gradients are those of one process with the same rows,
      and copies with which the loader fills the last batch never count.
    - ``args.embedding_chunk_size`` trains with batches of any size.
    - It logs PRR, mean similarities, anchors without positives, the embeddings' norm and the parts of a joined loss.

    Args:
        model: The encoder. A classifier is added where the loss needs logits; parts that the loss does not use are
            frozen.
        args: The arguments, which name the loss.
        data_collator: Makes batches of the model's inputs and multi-hot ``labels``, such as
            `hf_mlcl.data.TextCollator`.
        train_dataset: Rows for the collator.
        eval_dataset: The same.
        processing_class: Tokenizer or image processor; saved with the model.
        eval_data_collator: The collator of evaluation, prediction and features where it differs: images are augmented
            for training only.
        **kwargs: As for HF's `Trainer`.

    Example:
        >>> import torch
        >>> from hf_mlcl import MLCLModel
        >>> rows = [{"feature_values": torch.randn(8), "labels": (torch.rand(3) < 0.5).float()} for _ in range(32)]
        >>> trainer = ContrastiveMultiLabelTrainer(
        ...     MLCLModel.from_features(8, ["a", "b", "c"]),
        ...     ContrastiveTrainingArguments("outputs", max_steps=2, report_to="none", disable_tqdm=True, use_cpu=True),
        ...     train_dataset=rows,
        ... )
        >>> trainer.extract_features(rows).shape
        (32, 8)
    """

    # Our losses are means over a batch: the Trainer divides them by the steps of gradient accumulation.
    loss_is_scaled_for_ga = False

    def __init__(
        self,
        model: MLCLModel | None = None,
        args: ContrastiveTrainingArguments | None = None,
        data_collator: Any = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        eval_data_collator: Any = None,
        **kwargs: Any,
    ) -> None:
        args = ContrastiveTrainingArguments("outputs") if args is None else args
        if not isinstance(args, ContrastiveTrainingArguments):
            raise ValueError(
                f"args must be ContrastiveTrainingArguments, which name the loss; got {type(args).__name__}."
            )
        _check_not_empty(train_dataset=train_dataset, eval_dataset=eval_dataset)
        self.loss = args.build_loss()
        self.statistics = TrainingStatistics()
        self.eval_data_collator = eval_data_collator
        if model is not None:
            self._fit_model_to_loss(model, args)
        if self._uses("logit"):
            single = isinstance(self.loss, CrossEntropyLoss)
            kwargs.setdefault("compute_metrics", compute_single_label_metrics if single else compute_metrics)
        super().__init__(
            model=model,
            args=args,
            data_collator=data_collator,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            **kwargs,
        )

    # The model and the loss -------------------------------------------------------------------------------------------

    def _uses(self, kind: str) -> bool:
        """Whether a loss of this kind takes part."""
        losses = self.loss.losses.values() if isinstance(self.loss, JoinedLoss) else [self.loss]
        return any(loss.kind == kind for loss in losses)

    def _fit_model_to_loss(self, model: MLCLModel, args: ContrastiveTrainingArguments) -> MLCLModel:
        """Give the model what the loss needs, and keep still what it does not use."""
        if not isinstance(model, MLCLModel):
            raise ValueError(
                f"model must be an MLCLModel, got {type(model).__name__}. "
                "Wrap the encoder: MLCLModel.from_backbone(name, label_names)."
            )
        if self._uses("logit"):
            model.add_classifier()
        # DDP waits for a gradient of every parameter that wants one.
        model.projection.requires_grad_(self._uses("contrastive"))
        model.prototypes.requires_grad_(bool(getattr(self.loss, "uses_prototypes", self._uses("contrastive"))))
        if model.classifier is not None:
            model.classifier.requires_grad_(self._uses("logit"))
        model.embedding_chunk_size = args.embedding_chunk_size
        return model

    def call_model_init(self, trial: Any = None) -> MLCLModel:
        """A fresh model for each trial of a hyperparameter search, made to fit the loss."""
        self.loss = self.args.build_loss()
        return self._fit_model_to_loss(super().call_model_init(trial), self.args)

    def compute_loss(
        self,
        model: Any,
        inputs: Mapping[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The loss over the rows of all ranks; see `hf_mlcl.training.global_batch`."""
        inputs = dict(inputs)
        real_rows = inputs.pop(_REAL_ROWS, None)
        labels = inputs.pop("labels", None)
        if labels is None:
            raise ValueError(
                "The batch has no labels. The dataset needs a column `labels`, and the collator must make multi-hot "
                "vectors of it: use hf_mlcl.data.TextCollator or ImageCollator."
            )
        pixels = inputs.get("pixel_values")
        if pixels is not None and pixels.ndim == 5:  # (batch, views, channels, height, width)
            views = pixels.shape[1]
            inputs["pixel_values"] = pixels.flatten(0, 1)
            labels = labels.repeat_interleave(views, dim=0)
            real_rows = None if real_rows is None else real_rows * views
        outputs = model(**inputs)
        self._check_num_labels(labels)
        result = global_loss(self.loss, outputs, labels, real_rows)
        if model.training:
            self.statistics.add(result)
        return (result.value, outputs) if return_outputs else result.value

    def _check_num_labels(self, labels: Tensor) -> None:
        known = self.model.config.num_labels
        if labels.ndim == 2 and labels.shape[1] != known:
            raise ValueError(
                f"The batch has {labels.shape[1]} labels a row, but the model was made for {known}. "
                "Give from_backbone the label_names of this corpus."
            )

    # Batches -------------------------------------------------------------------------------------------------------

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The training batches, the last incomplete one left out if so asked and if another is left."""
        rows = len(self.train_dataset) if hasattr(self.train_dataset, "__len__") else None
        whole_batch = self.args.train_batch_size * self.args.world_size
        before = self.args.dataloader_drop_last
        if self.args.drop_last_train_batch and (rows is None or rows >= whole_batch):
            self.args.dataloader_drop_last = True
        try:
            return super().get_train_dataloader()
        finally:
            self.args.dataloader_drop_last = before

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        """The batches of evaluation, made by `eval_data_collator` if there is one."""
        with self._eval_collator():
            return super().get_eval_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader[Any]:
        """The batches of prediction, made by `eval_data_collator` if there is one."""
        with self._eval_collator():
            return super().get_test_dataloader(test_dataset)

    @contextmanager
    def _eval_collator(self) -> Iterator[None]:
        before = self.data_collator
        self.data_collator = self.eval_data_collator or before
        try:
            yield
        finally:
            self.data_collator = before

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        dataset = self.train_dataset if train_dataset is None else train_dataset
        if not self.args.label_aware_batches:
            return super()._get_train_sampler(train_dataset)
        seed = self.args.data_seed if self.args.data_seed is not None else self.args.seed
        return LabelAwareSampler(_label_ids(dataset), seed=seed)

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> Any:
        """Mark the last batch of an epoch where the loader filled it up with copies."""
        batches, num_items = super().get_batch_samples(epoch_iterator, num_batches, device)
        if batches and (real := self._real_rows()) is not None:
            batches[-1][_REAL_ROWS] = real
        return batches, num_items

    def prediction_step(
        self, model: Any, inputs: dict[str, Any], prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> Any:
        """As HF's, without the copies in the last batch; only logits are predictions."""
        if (real := self._real_rows()) is not None:
            inputs = {**inputs, _REAL_ROWS: real}
        return super().prediction_step(model, inputs, prediction_loss_only or not self._uses("logit"), ignore_keys)

    def _real_rows(self) -> int | None:
        """Rows of all ranks' last batch that are examples, where some are not."""
        state = self.accelerator.gradient_state
        padded = self.args.world_size > 1 and state.end_of_dataloader and state.remainder > 0
        return int(state.remainder) if padded else None

    # Looking at it --------------------------------------------------------------------------------------------------

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """HF's log, with what the contrastive loss has to say."""
        if "loss" in logs:
            logs |= self.statistics.flush()
            if self._uses("contrastive"):
                logs["temperature"] = self.args.temperature
        super().log(logs, *args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """HF's evaluation; with ``eval_probe``, a quick score of the features as well."""
        metrics: dict[str, float] = super().evaluate(*args, **kwargs)
        if self.args.eval_probe == "none" or self.train_dataset is None:
            return metrics
        dataset = kwargs.get("eval_dataset") or (args[0] if args else None) or self.eval_dataset
        prefix = kwargs.get("metric_key_prefix", "eval")
        if isinstance(dataset, dict):
            return metrics
        sample = _evenly(self.train_dataset, self.args.eval_probe_samples)
        learned, held_out = self.features_and_labels(sample), self.features_and_labels(dataset)
        scores = probe(self.args.eval_probe, *map(torch.from_numpy, (*learned, held_out[0])))
        probed = {
            f"{prefix}_probe_{name}": value for name, value in multilabel_metrics(held_out[1], scores.numpy()).items()
        }
        self.log(probed)
        return metrics | probed

    def extract_features(self, dataset: Any) -> npt.NDArray[np.float32]:
        """The backbone's features of every row, in order, computed on all ranks.

        Args:
            dataset: Rows for the collator.

        Returns:
            An array (rows, hidden) in float32, the same on every rank.
        """
        return self.features_and_labels(dataset)[0]

    @torch.no_grad()
    def features_and_labels(self, dataset: Any) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """`extract_features`, and the multi-hot labels of the same rows; no columns of labels where there are none.

        Args:
            dataset: Rows for the collator.
        """
        _check_not_empty(dataset=dataset)
        was_training = self.model.training
        model = self.accelerator.prepare_model(self.model, evaluation_mode=True)
        model.eval()
        features, labels = [], []
        try:
            for batch in self.get_eval_dataloader(dataset):
                batch = self._prepare_inputs(batch)
                label = batch.pop("labels", None)
                pixels = batch.get("pixel_values")
                if pixels is not None and pixels.ndim == 5:
                    batch["pixel_values"] = pixels[:, 0]
                rows = model(**batch).features.float()
                features.append(self.accelerator.gather_for_metrics(rows.contiguous()).cpu())
                if label is not None:
                    labels.append(self.accelerator.gather_for_metrics(label.float().contiguous()).cpu())
        finally:
            self.model.train(was_training)
        empty = torch.zeros(0, self.model.config.num_labels)
        return torch.cat(features).numpy(), (torch.cat(labels) if labels else empty).numpy()


def _check_not_empty(**datasets: Any) -> None:
    for name, dataset in datasets.items():
        if dataset is not None and hasattr(dataset, "__len__") and len(dataset) == 0:
            raise ValueError(f"{name} has no rows. Check how it was loaded, split and filtered.")


def _label_ids(dataset: Any) -> list[list[int]]:
    """Label ids of each row, from lists of ids or multi-hot vectors."""
    column = dataset["labels"] if hasattr(dataset, "column_names") else [row["labels"] for row in dataset]
    rows = []
    for labels in column:
        values = np.asarray(labels)
        multi_hot = values.dtype.kind in "fb"
        rows.append((np.flatnonzero(values) if multi_hot else values).astype(int).tolist())
    return rows


def _evenly(dataset: Any, most: int) -> Any:
    """At most `most` rows, spread evenly over the dataset."""
    if len(dataset) <= most:
        return dataset
    chosen = np.linspace(0, len(dataset) - 1, most).astype(int).tolist()
    return dataset.select(chosen) if hasattr(dataset, "select") else torch.utils.data.Subset(dataset, chosen)
