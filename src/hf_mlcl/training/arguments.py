"""Arguments of the trainer: HF's own, with the study's settings as defaults."""

from __future__ import annotations

import copy
import json
import os
import warnings
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import SchedulerType, TrainingArguments
from transformers.hf_argparser import HfArg

from hf_mlcl.losses import build_loss, hyperparameters, loss_name, on_logits_only, ranks_only


@dataclass(repr=False)  # HF's own repr leaves out tokens
class ContrastiveTrainingArguments(TrainingArguments):
    """`TrainingArguments` with a loss by name and the study's settings where nothing else is said.

    What differs from HF's defaults, for every value that is not given:

    - ``lr_scheduler_type``: ``cosine`` where a contrastive loss takes part, ``linear`` for losses on logits
    - ``warmup_steps`` 0.05, that is 5 % of the steps; ``weight_decay`` 0.01, none on biases and normalisation
    - ``load_best_model_at_end``: for losses on logits that these arguments name and that are evaluated while training,
      by micro-F1 (by mAP, if they only rank); contrastive training keeps the last checkpoint

    Args:
        loss: Name of a loss, or several joined with ``+``; ``"reg"`` if neither this nor the trainer's `loss` is given.
        loss_kwargs: Its hyperparameters; ``weights`` for the parts of a joined loss.
        temperature: tau of the contrastive losses.
        embedding_chunk_size: Rows that the encoder computes at a time: a batch of any size on a device of any size,
            with exact gradients. Not the same as gradient accumulation, whose contrastive batches stay small.
        dropout_by_row: Whether dropout masks belong to the rows of the global batch: the same seed then gives the same
            training whatever the chunks and the number of ranks. Costs the fused attention kernels.
        freeze_batch_norm: Whether batch normalisation keeps the statistics of a pre-trained backbone.
        freeze_embeddings: Whether the backbone's token embeddings stay as they are. Few rows teach them little, and in
            small encoders they are half of all that an optimizer step has to change.
        head_learning_rate: Learning rate of what starts from nothing (projection, prototypes, classifier), where it
            differs from the backbone's. With few steps, a larger one keeps random heads from bending good features.
        drop_last_train_batch: Whether the last incomplete training batch is left out; that of a stream, which has
            no length, is kept.
        label_aware_batches: Whether rare labels are given partners in their batch.
        eval_probe: Quick classifier on the features at each evaluation, so that contrastive training shows a score:
            ``"knn"``, ``"ridge"`` or ``"none"``.
        eval_probe_samples: Training rows that the probe learns from, spread over the data; the first ones of a stream.

    Examples:
        >>> args = ContrastiveTrainingArguments("outputs/example", loss="reg", report_to="none", use_cpu=True)
        >>> args.lr_scheduler_type.value, args.warmup_steps, args.weight_decay
        ('cosine', 0.05, 0.01)
        >>> ContrastiveTrainingArguments("outputs/example", loss="zlpr", report_to="none").lr_scheduler_type.value
        'linear'
    """

    _VALID_DICT_FIELDS = [*TrainingArguments._VALID_DICT_FIELDS, "loss_kwargs"]  # noqa: RUF012

    loss: str = HfArg(default=None, help="A loss by name, or several joined with +; reg if not set, as in the study.")
    # As HF writes it, for its argument parser.
    loss_kwargs: dict | str | None = HfArg(default=None, help="Its hyperparameters, as JSON.")  # type: ignore[type-arg] # noqa: RUF009
    temperature: float = HfArg(default=0.1, help="Temperature of the contrastive losses.")
    embedding_chunk_size: int | None = HfArg(
        default=None, help="Rows the encoder computes at a time, with exact gradients."
    )
    dropout_by_row: bool = HfArg(
        default=False, help="Dropout masks that neither chunks nor the number of ranks change."
    )
    freeze_batch_norm: bool = HfArg(default=False, help="Batch normalisation keeps the statistics that it has.")
    freeze_embeddings: bool = HfArg(default=False, help="Token embeddings stay as they are.")
    head_learning_rate: float | None = HfArg(
        default=None, help="Learning rate of projection, prototypes and classifier, if another."
    )
    drop_last_train_batch: bool = HfArg(default=True, help="Leave out the last incomplete training batch.")
    label_aware_batches: bool = HfArg(default=False, help="Give rare labels partners in their batch.")
    eval_probe: str = HfArg(default="none", help="Quick score of the features: knn, ridge or none.")
    eval_probe_samples: int = HfArg(default=2000, help="Training rows that the probe learns from.")

    lr_scheduler_type: str | None = HfArg(default=None, help="cosine (contrastive) or linear (logits) if not set.")
    warmup_steps: float = HfArg(default=0.05, help="Steps of warm-up, or their share if below 1.")
    weight_decay: float = HfArg(default=0.01, help="Not on biases and normalisation.")
    metric_for_best_model: str | None = HfArg(default=None, help="micro_f1 or mAP for logits if not set.")
    label_names: list[str] | None = HfArg(default=None, help="Key of the labels in a batch: `labels`.")  # noqa: RUF009
    load_best_model_at_end: bool | None = HfArg(default=None, help="By that metric for logits if not set.")

    def __post_init__(self) -> None:
        """Fill in what was not given, then let HF check everything."""
        given = json.loads(self.loss_kwargs) if isinstance(self.loss_kwargs, str) else self.loss_kwargs
        self.loss_kwargs = dict(given or {})
        self._loss_is_given = self.loss is not None
        self.loss = self.loss or "reg"
        if self.label_smoothing_factor:
            raise ValueError(
                f"label_smoothing_factor={self.label_smoothing_factor} smooths the cross entropy of HF's own loss, "
                "which is not used here. Leave it at 0, or register a loss that smooths its targets."
            )
        for name in ("embedding_chunk_size", "eval_probe_samples"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        for name in ("torch_compile", "gradient_checkpointing"):
            if self.dropout_by_row and getattr(self, name):
                raise ValueError(
                    f"dropout_by_row and {name} do not go together: masks would be drawn where it cannot see them. "
                    f"Unset one of them; embedding_chunk_size saves memory with dropout_by_row too."
                )
        if self.eval_probe not in ("none", "knn", "ridge"):
            raise ValueError(f"eval_probe must be 'none', 'knn' or 'ridge'; got {self.eval_probe!r}.")
        self.build_loss()  # raises for a wrong name or hyperparameter, before any work
        if self.label_aware_batches and self.train_sampling_strategy != "random":
            raise ValueError(
                f"label_aware_batches and train_sampling_strategy={self.train_sampling_strategy!r} both decide the "
                "order of the examples. Unset one of them."
            )
        self._schedule_follows_loss = self.lr_scheduler_type is None
        if self.label_names not in (None, ["labels"]):
            raise ValueError(
                f"label_names is {self.label_names}, but batches have their labels under `labels`. A dataset's column "
                "of another name is named to the collator: TextCollator(tokenizer, num_labels, label_column=...)."
            )
        self.label_names = ["labels"]
        self._choose_best_checkpoint()
        self.follow_loss(self.loss)
        super().__post_init__()
        self._check_launch()

    def _check_launch(self) -> None:
        """Tell of processes and shards that a user wants and a launcher does not give."""
        is_sharded = self.fsdp or os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"  # by accelerate launch
        if self.world_size > 1:
            if is_sharded and self.device.type == "cpu":
                raise ValueError(
                    "FSDP is not possible on CPUs: accelerate would train in DDP without a word. Leave out fsdp=, or "
                    "the configuration of `accelerate launch`."
                )
            return
        # What accelerate sets for several processes, which on CPUs it leaves to MPI, and starts one.
        if {"ACCELERATE_MIXED_PRECISION", "MASTER_ADDR"} <= os.environ.keys() and "WORLD_SIZE" not in os.environ:
            warnings.warn(
                "accelerate launch was told to start several processes, but on CPUs it starts one: this training runs "
                "in a single process. Use torchrun --nproc_per_node N, with use_cpu=True.",
                stacklevel=4,
            )

    def _choose_best_checkpoint(self) -> None:
        """For losses on logits: keep the best checkpoint, where the user's own settings let it be told."""
        logits = on_logits_only(self.loss)
        strategies = (getattr(self, name) for name in ("eval_strategy", "save_strategy"))
        evaluation, saving = (str(getattr(one, "value", one)) for one in strategies)  # still words, or HF's enumeration
        if self.load_best_model_at_end is None:
            self.load_best_model_at_end = logits and "no" not in (evaluation, saving)
            not_chosen = saving == "steps" and self.save_steps == TrainingArguments.save_steps  # type: ignore[has-type]
            if self.load_best_model_at_end and not_chosen:
                self.save_strategy = self.eval_strategy  # so that every score has its checkpoint
                self.save_steps = self.eval_steps or self.logging_steps
            elif self.load_best_model_at_end and not self._saves_what_it_scores(evaluation, saving):
                self.load_best_model_at_end = False
                warnings.warn(
                    f"The last checkpoint is kept and not the best: with save_strategy={saving!r}, "
                    f"save_steps={self.save_steps}, eval_strategy={evaluation!r} and eval_steps={self.eval_steps} not "
                    "every checkpoint has a score. Leave out the settings of saving to have the best one.",
                    stacklevel=4,
                )
        self._metric_follows_loss = bool(self.load_best_model_at_end and self.metric_for_best_model is None and logits)

    def _saves_what_it_scores(self, evaluation: str, saving: str) -> bool:
        """What HF asks for where the best checkpoint is to be kept."""
        if evaluation != saving or saving != "steps":
            return saving in (evaluation, "best")
        between = self.eval_steps or self.logging_steps
        # Of shares of all steps the number is not known yet: only equal ones are sure to meet.
        return self.save_steps == between if min(self.save_steps, between) < 1 else self.save_steps % between == 0

    def get_warmup_steps(self, num_training_steps: int) -> int:
        """HF's number; none where the share is less than a step, since a single step at rate 0 would teach nothing."""
        none = self.warmup_steps < 1 and self.warmup_steps * num_training_steps < 1
        return 0 if none else int(super().get_warmup_steps(num_training_steps))

    def follow_loss(self, loss: str | nn.Module) -> None:
        """Take schedule and metric of this kind of loss, unless the user has chosen; a search may change the loss."""
        if self._schedule_follows_loss:
            self.lr_scheduler_type = SchedulerType("linear" if on_logits_only(loss) else "cosine")
        if self._metric_follows_loss:
            self.metric_for_best_model = "mAP" if ranks_only(loss) else "micro_f1"

    def with_loss(self, loss: str | nn.Module) -> ContrastiveTrainingArguments:
        """A copy that names a loss which the trainer was given; an error where these arguments say something else."""
        name = loss if isinstance(loss, str) else loss_name(loss)
        said = {"loss": self._loss_is_given and self.loss != name}
        if not isinstance(loss, str):  # which has its hyperparameters already
            said |= {"loss_kwargs": bool(self.loss_kwargs), "temperature": self.temperature != type(self).temperature}
        for argument in (argument for argument, is_said in said.items() if is_said):
            raise ValueError(
                f"The trainer was given the loss {name!r}, but {argument}={getattr(self, argument)!r} in args is "
                "another choice. Leave one of them out."
            )
        named = copy.copy(self)
        named.hub_token = self.hub_token  # left out of copies, such as those beside checkpoints
        named.loss, named._loss_is_given = name, True
        named.follow_loss(loss)
        return named

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the user's token, since the trainer pickles its arguments beside every checkpoint."""
        return {**self.__dict__, "hub_token": None}

    def build_loss(self) -> nn.Module:
        """The loss that these arguments name."""
        settings: dict[str, Any] = dict(self.loss_kwargs) if isinstance(self.loss_kwargs, dict) else {}
        if "temperature" in hyperparameters(self.loss):
            settings.setdefault("temperature", self.temperature)
        return build_loss(self.loss, **settings)
