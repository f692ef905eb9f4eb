"""`ContrastiveMultiLabelTrainer`: HF's Trainer with contrastive, logit and joined losses over the global batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler
from transformers import Trainer

from hf_mlcl.models import MLCLModel
from hf_mlcl.training.arguments import ContrastiveTrainingArguments
from hf_mlcl.training.global_batch import GlobalLoss, global_loss
from hf_mlcl.training.probe import probe
from hf_mlcl.training.sampler import LabelAwareSampler
from hf_mlcl.training.statistics import TrainingStatistics

REAL_ROWS = "_real_rows"


class ContrastiveMultiLabelTrainer(Trainer):
    """Trains an `MLCLModel` with any loss of the registry.

    Everything of HF's `Trainer` works as usual. Beyond it:

    - The contrastive batch is the union over all ranks; loss and gradients are those of one process with the same rows,
      and rows that the loader adds to fill the last batch never count.
    - ``args.embedding_chunk_size`` trains with batches of any size.
    - Beside the loss it logs PRR, mean similarities, anchors without positives and the embeddings' norm.

    Args:
        model: The encoder. A classifier is added where the loss needs logits; parts the loss does not use are frozen.
        args: The arguments.
        data_collator: Makes batches with multi-hot ``labels``.
        train_dataset: Rows with ``labels`` and the model's inputs.
        eval_dataset: The same.
        processing_class: Tokenizer or image processor; saved with the model.
        **kwargs: As for HF's `Trainer`.
    """

    loss_is_scaled_for_ga = False

    def __init__(
        self,
        model: MLCLModel | None = None,
        args: ContrastiveTrainingArguments | None = None,
        data_collator: Any = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        **kwargs: Any,
    ) -> None:
        if args is None:
            args = ContrastiveTrainingArguments("outputs")
        if not isinstance(args, ContrastiveTrainingArguments):
            raise ValueError(f"args must be ContrastiveTrainingArguments, which name the loss; got {type(args).__name__}.")
        self.loss = args.build_loss()
        self.statistics = TrainingStatistics()
        if model is not None:
            self._fit_model_to_loss(model, args)
        for name, dataset in (("train_dataset", train_dataset), ("eval_dataset", eval_dataset)):
            if dataset is not None and hasattr(dataset, "__len__") and len(dataset) == 0:
                raise ValueError(f"{name} is empty. Check how it was loaded and filtered.")
        if "compute_metrics" not in kwargs and self.uses_logits:
            from hf_mlcl.metrics import compute_metrics

            kwargs["compute_metrics"] = compute_metrics()
        super().__init__(
            model=model,
            args=args,
            data_collator=data_collator,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            **kwargs,
        )
