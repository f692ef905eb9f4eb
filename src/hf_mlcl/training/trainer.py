"""`ContrastiveMultiLabelTrainer`: HF's Trainer with contrastive, logit and joined losses over the global batch."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerBase

from hf_mlcl.data.collators import Collator, TextCollator
from hf_mlcl.evaluation import LinearEvaluationConfig, LinearEvaluationResult
from hf_mlcl.files import FullDiskError, naming_full_disk
from hf_mlcl.hub import SplitScores
from hf_mlcl.losses import ContrastiveLoss, CrossEntropyLoss, as_loss, loss_kinds, loss_terms
from hf_mlcl.metrics import compute_metrics, compute_single_label_metrics, multilabel_metrics
from hf_mlcl.models import FeatureBackbone, MLCLModel
from hf_mlcl.models.adapter_files import find_adapter, load_trained_state, read_adapter
from hf_mlcl.models.adapters import adopt, check_trainable, has_adapter
from hf_mlcl.training.arguments import ContrastiveTrainingArguments
from hf_mlcl.training.batches import NEEDS_LABELS, REAL_ROWS, check_not_empty, evenly, first_view
from hf_mlcl.training.card_facts import described_scores, training_report
from hf_mlcl.training.divergence import DivergenceWatch
from hf_mlcl.training.evaluation import evaluate_features, make_classifier, split_features
from hf_mlcl.training.features import FeatureTrainer, probe
from hf_mlcl.training.global_batch import TrainingStatistics, global_loss
from hf_mlcl.training.pushing import PushingTrainer
from hf_mlcl.training.sharding import name_layers

logger = logging.getLogger(__name__)


class ContrastiveMultiLabelTrainer(FeatureTrainer, PushingTrainer):
    """Trains an `MLCLModel` with any loss.

    Everything of HF's `Trainer` works as usual. The contrastive batch is the union over all ranks: loss and gradients
    are those of one process with the same rows, and copies with which the loader fills the last batch never count.

    Args:
        model: The encoder. A classifier is added where the loss needs one; what the loss does not use is frozen.
        args: The arguments; they may name the loss.
        data_collator: Makes batches of the model's inputs and multi-hot ``labels``, such as
            `hf_mlcl.data.TextCollator` (the default where `processing_class` is a tokenizer) or `ImageCollator`.
        train_dataset: Rows for the collator. Labels may be ids, or names of the model's labels: in lists, in one text
            (``"sport|music"``), or as columns of 0 and 1.
        eval_dataset: The same.
        processing_class: Tokenizer or image processor; saved with the model.
        eval_data_collator: The collator of evaluation, prediction and features where it differs: images are augmented
            for training only.
        loss: The loss, where `args` does not name one: a name, an instance of any class, or a function, which takes
            ``(embeddings, labels, prototypes=None)`` or ``(logits, labels)``, the rows of all ranks; the name of its
            first argument tells which. It has no weights of its own to train.
        **kwargs: As for HF's `Trainer`.

    Examples:
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
        loss: str | nn.Module | Callable[..., Tensor] | None = None,
        **kwargs: Any,
    ) -> None:
        args = ContrastiveTrainingArguments("outputs") if args is None else args
        if not isinstance(args, ContrastiveTrainingArguments):
            raise ValueError(f"args must be ContrastiveTrainingArguments; got {type(args).__name__}.")
        if kwargs.get("compute_loss_func") is not None:
            raise ValueError(
                "compute_loss_func is not used here, since a contrastive loss needs the rows of all ranks. Give the "
                "function as loss=; it takes (embeddings, labels, prototypes=None) or (logits, labels)."
            )
        check_not_empty(train_dataset=train_dataset, eval_dataset=eval_dataset)
        self._given_loss = None if loss is None or isinstance(loss, str) else as_loss(loss)
        args = args if loss is None else args.with_loss(self._given_loss or str(loss))
        self.loss = self._loss_of(args)
        self.statistics = TrainingStatistics()
        self.divergence = DivergenceWatch()
        self.latest: dict[str, Tensor] = {}
        """Loss and, of a contrastive one, the similarities of the last step on this rank, for those who watch."""
        self.eval_data_collator = eval_data_collator
        self.last_scores: tuple[SplitScores | None, str] = (None, "")  # and how they came about
        """What the last linear evaluation of these weights predicted, for the model card."""
        self.counted_labels: tuple[Any, npt.NDArray[np.int64]] | None = None
        """Training data, and how often each label occurs in it, once a linear evaluation has seen all of it."""
        if model is not None:
            model = self._fit_model_to_loss(model, args)
        for_logits = ("compute_metrics", "preprocess_logits_for_metrics")
        self._given_for_logits = {name: kwargs[name] for name in for_logits if kwargs.get(name) is not None}
        kwargs["compute_metrics"] = self._metrics_of_loss(args)
        self.processing_class = processing_class  # already needed where HF's makes the first model
        super().__init__(
            model=model,
            args=args,
            data_collator=data_collator,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            **kwargs,
        )
        self.add_callback(self.divergence)
        if data_collator is None and isinstance(processing_class, PreTrainedTokenizerBase):
            self.data_collator = TextCollator(processing_class, self.model.config.num_labels)
        self.data_collator = self._with_label_names(self.data_collator)
        self.eval_data_collator = self._with_label_names(self.eval_data_collator)
        self._align_tokens(self.model)

    def _with_label_names(self, collator: Any) -> Any:
        """One of our collators with the names of the model's labels, for rows that hold names or a column for each."""
        if not isinstance(collator, Collator) or not isinstance(collator.num_labels, int):
            return collator
        names = self.model.config.label_names
        return replace(collator, num_labels=names) if len(names) == collator.num_labels else collator

    def _align_tokens(self, model: MLCLModel) -> None:
        """What HF's trainer does with a warning, which is for models that generate."""
        if isinstance(self.processing_class, PreTrainedTokenizerBase):
            for token in ("pad_token_id", "bos_token_id", "eos_token_id"):
                setattr(model.config, token, getattr(self.processing_class, token))

    def _loss_of(self, args: ContrastiveTrainingArguments) -> Any:
        if self._given_loss is not None:
            args.with_loss(self._given_loss)  # raises where a search tries another
        loss = self._given_loss or args.build_loss()
        if next(loss.parameters(), None) is not None:
            raise ValueError(
                f"The loss {args.loss!r} has parameters, which would not be trained. Make them part of the model, or "
                "buffers of the loss."
            )
        return loss.to(args.device)

    def _uses(self, kind: str) -> bool:
        """Whether a loss of this kind takes part."""
        return kind in loss_kinds(self.loss)

    @property
    def uses_prototypes(self) -> bool:
        """Whether the loss has a part for the labels' prototypes; otherwise they stay as they were drawn."""
        return bool(self.loss.uses_prototypes)

    def _fit_model_to_loss(self, model: MLCLModel, args: ContrastiveTrainingArguments) -> MLCLModel:
        """Give the model what the loss needs, and keep still what it does not use."""
        model = adopt(model)
        if not isinstance(model, MLCLModel):
            raise ValueError(
                f"model must be an MLCLModel, got {type(model).__name__}. "
                "Wrap the encoder: MLCLModel.from_backbone(name, label_names)."
            )
        _forget_preparation(model)
        check_trainable(model)
        if self._uses("logit"):
            model.add_classifier()
        # DDP waits for a gradient of every parameter that wants one.
        model.projection.requires_grad_(self._uses("contrastive"))
        model.prototypes.requires_grad_(self.uses_prototypes)
        if model.classifier is not None:
            model.classifier.requires_grad_(self._uses("logit"))
        model.embedding_chunk_size = args.embedding_chunk_size
        attention = str(getattr(model.backbone.config, "_attn_implementation", ""))
        if args.dropout_by_row and attention not in ("", "None", "eager", "sdpa"):
            raise ValueError(
                f"dropout_by_row cannot see the dropout inside attn_implementation={attention!r}. "
                'Use attn_implementation="sdpa", or dropout_by_row=False.'
            )
        model.dropout_by_row = args.dropout_by_row
        model.freeze_batch_norm = args.freeze_batch_norm
        if args.freeze_embeddings:
            if model.main_input_name != "input_ids":
                raise ValueError("freeze_embeddings=True is for text encoders: this backbone has no token embeddings.")
            model.get_input_embeddings().requires_grad_(False)
        return model

    def _metrics_of_loss(self, args: ContrastiveTrainingArguments) -> Any:
        """What to compute from logits; an error where that is given, and the loss makes none."""
        if self._uses("logit"):
            single = any(isinstance(term.loss, CrossEntropyLoss) for term in loss_terms(self.loss))
            by_loss = compute_single_label_metrics if single else compute_metrics
            return self._given_for_logits.get("compute_metrics", by_loss)
        for name in self._given_for_logits:
            raise ValueError(
                f"{name} would never be called: the loss {args.loss!r} trains no logits. Join one that does "
                f'(loss="{args.loss}+zlpr"), or look at the features (eval_probe="knn").'
            )
        return None

    def call_model_init(self, trial: Any = None) -> MLCLModel:
        """A fresh model for each trial of a hyperparameter search, made to fit the loss."""
        if trial is not None:
            self._hp_search_setup(trial)  # HF does it after this: the model would be made for the last trial's loss
        self.loss = self._loss_of(self.args)
        self.args.follow_loss(self.loss)
        self.compute_metrics = self._metrics_of_loss(self.args)
        model = self._fit_model_to_loss(super().call_model_init(trial), self.args)
        self._align_tokens(model)
        return model

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """HF's optimizer; with ``head_learning_rate``, groups of their own for what is not backbone."""
        made_by_user = self.optimizer is not None
        optimizer = super().create_optimizer(model)
        if self.args.head_learning_rate is None or made_by_user:
            return optimizer
        backbone = set(self.model.backbone.parameters())
        for group in list(optimizer.param_groups):
            heads = [parameter for parameter in group["params"] if parameter not in backbone]
            if heads:
                group["params"] = [parameter for parameter in group["params"] if parameter in backbone]
                optimizer.add_param_group({**group, "params": heads, "lr": self.args.head_learning_rate})
        return optimizer

    def get_decay_parameter_names(self, model: torch.nn.Module) -> list[str]:
        """HF's choice, without the scales of batch and group normalisation, which it knows by name only."""
        norms = (nn.modules.batchnorm._BatchNorm, nn.GroupNorm)  # the only common base of torch's BatchNorms
        scales = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, norms)}
        return [name for name in super().get_decay_parameter_names(model) if name not in scales]

    def compute_loss(
        self,
        model: Any,
        inputs: Mapping[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The loss over the rows of all ranks; see `hf_mlcl.training.global_batch`."""
        inputs = dict(inputs)
        real_rows = inputs.pop(REAL_ROWS, None)
        labels = inputs.pop("labels", None)
        if labels is None:
            raise ValueError(f"The batch has no labels. {NEEDS_LABELS}")
        pixels = inputs.get("pixel_values")
        if pixels is not None and pixels.ndim == 5:  # (batch, views, channels, height, width)
            views = pixels.shape[1]
            inputs["pixel_values"] = pixels.flatten(0, 1)
            labels = labels.repeat_interleave(views, dim=0)
            real_rows = None if real_rows is None else real_rows * views
        outputs = model(**inputs)
        known = self.model.config.num_labels
        if labels.ndim == 2 and labels.shape[1] != known:
            raise ValueError(
                f"The batch has {labels.shape[1]} labels per row, but the model was made for {known}. "
                "Give from_backbone the label_names of this corpus."
            )
        if outputs.prototypes is not None:  # nn.DataParallel returns a copy of them for each device
            outputs.prototypes = outputs.prototypes[:known]
        result = global_loss(self.loss, outputs, labels, real_rows)
        if model.training:
            self.statistics.add(result)
            self.latest = result.summary()
            self.divergence.add(result.value, self.state.global_step + 1, self.optimizer)
        return (result.value, outputs) if return_outputs else result.value

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """HF's training. Scores and sums of earlier trainings are forgotten, so that no card and no log shows them."""
        self.last_scores = (None, "")
        self.statistics.reset()
        sharded = self.is_fsdp_enabled or self.is_deepspeed_enabled
        if self.model is not None and self.model_wrapped is self.model and not sharded:  # none between two trials
            _forget_preparation(self.model)
        if self.is_fsdp_enabled:
            name_layers(self)
        outcome = super().train(*args, **kwargs)
        self.divergence.check_weights(self)
        return outcome

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """HF's, of weights that are numbers; nothing of it is left where the disk is full."""
        self.divergence.check_weights(self)
        folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
        try:
            with naming_full_disk(folder):
                super()._save_checkpoint(model, trial)
        except FullDiskError:
            if self.args.should_save:
                shutil.rmtree(folder, ignore_errors=True)
            raise

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """HF's, or that of a model with an adapter; what does not fit is an error that names the checkpoint."""
        if self._load_adapter(resume_from_checkpoint):
            return
        try:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        except RuntimeError as error:
            if "size mismatch" not in str(error):
                raise
            raise ValueError(
                f"The weights in {resume_from_checkpoint} do not fit the model: {' '.join(str(error).split())[:400]}"
            ) from error

    def _load_best_model(self) -> None:
        """HF's, or that of a model with an adapter."""
        if not self._load_adapter(self.state.best_model_checkpoint):
            super()._load_best_model()

    def _load_adapter(self, checkpoint: str) -> bool:
        """Load a checkpoint of an adapter, and say whether it is one; HF's own knows only PEFT's."""
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:  # whose checkpoints have all weights
            return False
        is_stored = find_adapter(checkpoint)
        if is_stored != has_adapter(self.model):
            owner, other = ("checkpoint", "model") if is_stored else ("model", "checkpoint")
            raise ValueError(f"{checkpoint} does not fit the model: the {owner} has an adapter, the {other} has none.")
        if is_stored:
            load_trained_state(self.model, read_adapter(checkpoint).state, checkpoint)
        return is_stored

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """An error in place of HF's warnings: weights that a checkpoint lacks would stay as they were drawn."""
        own = self.model.state_dict()
        loaded = {weight.data_ptr() for name, weight in own.items() if name not in load_result.missing_keys}
        # Tied weights are saved under one of their names.
        missing = [name for name in load_result.missing_keys if name in own and own[name].data_ptr() not in loaded]
        if missing or load_result.unexpected_keys:
            found = {"missing": missing, "not of this model": list(load_result.unexpected_keys)}
            said = "; ".join(f"{', '.join(names[:5])} {what}" for what, names in found.items() if names)
            raise ValueError(
                f"The weights of the checkpoint do not fit the model: {said}. Go on with a checkpoint of the same "
                "model and loss, or start again."
            )

    def prediction_step(
        self, model: Any, inputs: dict[str, Any], prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> Any:
        """As HF's, without the copies in the last batch; only logits are predictions."""
        inputs = first_view(inputs)
        state = self.accelerator.gradient_state
        padded = self.args.world_size > 1 and state.end_of_dataloader and state.remainder > 0
        if padded and inputs.get("labels") is not None:
            inputs = {**inputs, REAL_ROWS: int(state.remainder)}
        return super().prediction_step(model, inputs, prediction_loss_only or not self._uses("logit"), ignore_keys)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """HF's log, with what the contrastive loss has to say."""
        if "loss" in logs:
            logs |= self.statistics.flush() | self.divergence.flush()
            for term in loss_terms(self.loss):
                if isinstance(term.loss, ContrastiveLoss):
                    logs.setdefault("temperature", term.loss.temperature)
        super().log(logs, *args, **kwargs)

    def evaluation_loop(self, dataloader: DataLoader[Any], *args: Any, **kwargs: Any) -> Any:
        """HF's evaluation; with ``eval_probe``, a quick score of the features as well."""
        output = super().evaluation_loop(dataloader, *args, **kwargs)
        description = kwargs.get("description", args[0] if args else "")
        if self.args.eval_probe != "none" and description == "Evaluation":
            if self.train_dataset is None:
                raise ValueError(
                    f"eval_probe={self.args.eval_probe!r} learns from train_dataset, which was not given. Give it, or "
                    'set eval_probe="none".'
                )
            prefix = kwargs.get("metric_key_prefix", "eval")
            sample = evenly(self.train_dataset, self.args.eval_probe_samples)
            learned, held_out = self.features_and_labels(sample), self.features_and_labels(dataloader.dataset)
            scores = probe(self.args.eval_probe, *map(torch.from_numpy, (*learned, held_out[0])))
            metrics = multilabel_metrics(held_out[1], scores.numpy())
            output.metrics.update({f"{prefix}_probe_{name}": value for name, value in metrics.items()})
        return output

    def linear_evaluate(
        self,
        train: Any,
        validation: Any,
        test: Any = None,
        *,
        config: LinearEvaluationConfig | None = None,
        protocol: Literal["study", "best"] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        augmented_passes: int = 0,
        trained_on_these: bool = True,
    ) -> LinearEvaluationResult:
        """The linear evaluation of the frozen features: the study's (three heads per grid point), or the one for users.

        Args:
            train: Rows that the heads learn from.
            validation: Rows on which each label chooses its grid point.
            test: Rows to report; may be left out.
            config: Grid and settings; the study's for AAPD and BGC if not given.
            protocol: ``"study"`` or ``"best"``, regularised heads for users; what `config` says if not given.
            cache_dir: Where to keep features for the next call with the same weights and the same `datasets.Dataset`.
            augmented_passes: Encode `train` so many times with the training collator, which augments images; each epoch
                of the heads takes the next pass. With 0 it is encoded once, plainly, as validation and test always are.
                A pass takes rows x hidden x 4 bytes: of memory, or of the disk where there is a `cache_dir`.
            trained_on_these: Whether the encoder has learned from the rows of `train`, now or before it was loaded. If
                not, as with a frozen one, ``protocol="best"`` judges its heads by cross-validation on them, which are
                more rows than those of validation; `False` for an encoder that knows them flatters it.

        Returns:
            The result, whose ``classifier`` predicts the same probabilities from texts or images. Of texts that were
            cut (`hf_mlcl.data.tokenize` cuts at its ``max_length``) it does if its tokenizer cuts them at the same
            place: set ``tokenizer.model_max_length`` before saving it, and call pipelines with ``truncation=True``.
        """
        config = config or LinearEvaluationConfig()
        config = replace(config, protocol=protocol or config.protocol)
        splits = {"train": train, "validation": validation, "test": test}
        features = split_features(self, splits, cache_dir, augmented_passes)
        result = evaluate_features(self, features, config, trained_on_these=trained_on_these)
        self.last_scores = described_scores(result)
        if train is self.train_dataset:
            self.counted_labels = train, (features["train"][1] > 0).sum(0)
        if isinstance(self.model.backbone, FeatureBackbone):
            return result
        classifier = make_classifier(self.model, result)
        try:
            classifier.report = training_report(self, evaluation=result, figures=False)  # for classifier.push_to_hub
        except Exception as error:  # the evaluation may have taken hours: no fact for a card is worth it
            logger.warning("The classifier's card will tell less, since facts could not be gathered: %s", error)
        classifier.processor = self.processing_class
        return replace(result, classifier=classifier)


def _forget_preparation(model: MLCLModel) -> None:
    """Let accelerate prepare a model again.

    An evaluation, or another trainer, has marked it as prepared; a training would then leave it as it is: without
    DDP on several ranks, or in another precision.
    """
    model.__dict__.pop("_is_accelerate_prepared", None)
    original = model.__dict__.pop("_original_forward", None)
    if original is not None:  # what accelerate has put its autocast around
        model.forward = original  # type: ignore[method-assign]
