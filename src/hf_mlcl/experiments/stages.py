"""Training that is usable from the first minute, and never ends below where it began.

0. **Frozen.** Training and validation rows are encoded once by the backbone as it is, and heads are fitted: a
   classifier exists, is scored and can be saved.
1. **Fine-tuning** starts there: the classifier from a part of those heads' logits, the prototypes from the labels'
   names or means. Now and then heads are fitted to the features of the moment and scored on validation; training stops
   once nothing gets better.
2. **The best** of all these on validation, stage 0 among them, is what remains; so may be a point on the way from stage
   0 to it, since weights between the two often do better on new rows than either (WiSE-FT, Wortsman et al. 2022).

Scores are compared by `ranking_score`, which needs no thresholds.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import TrainerCallback

from hf_mlcl.data.text import row_lengths
from hf_mlcl.evaluation import LinearEvaluationConfig, LinearEvaluationResult
from hf_mlcl.evaluation.best import BestHeads
from hf_mlcl.files import whole_file
from hf_mlcl.metrics import average_precision
from hf_mlcl.models import MLCLModel
from hf_mlcl.models.adapter_files import load_trained_state, trained_state
from hf_mlcl.training import ContrastiveMultiLabelTrainer
from hf_mlcl.training.batches import evenly
from hf_mlcl.training.divergence import TrainingDivergedError
from hf_mlcl.training.evaluation import Array, SplitFeatures, evaluate_features, split_features

LOOKS = (2, 5)
"""Fewest and most looks at validation while training; the last is at its end."""
LOOK_TIME = 0.25
"""Share of a training's time that looks may take, if there are more than the fewest."""
PASSES = 3
"""Time of a training step in forward passes."""
BLENDS = (0.75, 0.5, 0.25)
"""How far from the frozen weights to the trained ones the points are that are looked at in the end."""
LOOK_ROWS = 2000
"""Training rows that a look fits its heads to; the best gets heads fitted to all in the end."""
PATIENCE = 2
"""Looks without a better score after which a training stops."""
CONFIDENCE = 0.3
"""What a classifier starts with of the logits of its heads: these fit the training rows already, so that at their full
size next to nothing would be left for the backbone to learn from them."""
PACE_STEPS = 3
"""Steps that the pace of a machine is measured with."""


def ranking_score(labels: npt.ArrayLike, probabilities: npt.ArrayLike) -> float:
    """Mean of macro and micro average precision: how well true labels are ranked, of the rare ones and of all.

    Macro average precision alone swings with the few rows of rare labels; micro average precision hardly sees them.

    Examples:
        >>> ranking_score([[1, 0], [0, 1]], [[0.9, 0.2], [0.1, 0.8]])
        1.0
    """
    truth, p = np.asarray(labels, dtype=bool), np.asarray(probabilities)
    if not truth.any():
        return 0.0
    macro = float(np.nanmean(average_precision(truth, p, absent=float("nan"))))
    micro = float(average_precision(truth.reshape(-1, 1), p.reshape(-1, 1))[0])
    return (macro + micro) / 2


@dataclass(frozen=True)
class Stage:
    """A classifier on the way; of one before an interruption the result is not known, but its weights are."""

    step: int  # of training that its backbone has seen; 0 is the frozen one
    score: float  # `ranking_score` on validation
    rows: int  # of training that its heads were fitted to
    share: float = 1.0  # of the way from the frozen weights to those of the step
    result: LinearEvaluationResult = field(default=None, repr=False)  # type: ignore[assignment]


def take_heads(model: MLCLModel, heads: BestHeads, confidence: float = 1.0) -> None:
    """Give the model's own classifier, if it has one, the logits of heads, or a part of them."""
    if model.classifier is not None:
        with torch.no_grad():
            model.classifier.weight.copy_(confidence * heads.weight)
            model.classifier.bias.copy_(confidence * heads.bias)


@dataclass
class Stages:
    """Goes through the stages with a trainer.

    Attributes:
        trainer: With a model as it came.
        train: Rows that heads are fitted to.
        validation: Rows that decide.
        config: How heads are fitted and what thresholds are tuned for.
        priors: Gives the priors of heads for the model of the moment; see `fit_best_heads`.
        on_better: Called on every rank with each stage that is better than those before, while the model is that
            stage's.
        cache_dir: Keeps the features of the frozen encoder for the next training.
        history: Step and score of every look.
        best: The best stage so far.
        features: Of the best stage, of all training rows and of validation, once they were computed.
    """

    trainer: ContrastiveMultiLabelTrainer
    train: Any
    validation: Any
    config: LinearEvaluationConfig = field(
        default_factory=lambda: LinearEvaluationConfig(protocol="best", thresholds="macro_f1")
    )
    priors: Callable[[], Mapping[str, Tensor]] = dict
    on_better: Callable[[Stage], None] = lambda stage: None
    cache_dir: str | None = None
    history: list[tuple[int, float]] = field(default_factory=list)
    best: Stage | None = None
    features: SplitFeatures = field(default_factory=dict, repr=False)
    _weights: dict[str, Tensor] = field(default_factory=dict, repr=False)
    _frozen: dict[str, Tensor] = field(default_factory=dict, repr=False)
    _first: Stage | None = field(default=None, repr=False)

    def begin(self, prototypes: Literal["random", "names", "means"] = "random") -> Stage:
        """Stage 0, from which the model's classifier, at `CONFIDENCE`, and its prototypes then start.

        Args:
            prototypes: Where they start: as they were drawn, at the encoded names of the labels, or at the means of
                their rows, which also stand in for names where there are none.
        """
        priors = dict(self.priors())
        stage, features = self._look(self.train, priors, self.cache_dir)
        model, heads = self.trainer.model, stage.result.best
        assert heads is not None  # of protocol="best"
        take_heads(model, heads, CONFIDENCE)
        with torch.no_grad():
            if prototypes != "random":
                names = priors if prototypes == "names" else {}
                (rows, *_), labels = features["train"]
                chosen = names.get(heads.prior, next(iter(names.values()), _means(rows, labels)))
                model.prototypes.weight.copy_(model.projection(chosen.to(model.device, model.dtype)))
        self._frozen, self._first = self._model_state(), stage
        if self.best is stage:
            self._weights = self._frozen
        return stage

    def look(self, rows: int = LOOK_ROWS, **where: Any) -> Stage:
        """Fit heads to the features of some rows, score them, and remember them if they are the best."""
        return self._look(evenly(self.train, rows), self.priors(), **where)[0]

    def blend(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Go back from the trained backbone towards the frozen one, as long as that makes it better.

        From the best trained one; from that of the moment, where none was better than the frozen one.

        Args:
            stopped: Whether somebody wants an end before the next look.
        """
        if self.best is None or self.best.share < 1 or len(self.history) < 2:
            return
        trained, (step, before) = self._model_state(), self.history[-1]
        if self.best.step > 0:
            trained, step, before = self._weights, self.best.step, self.best.score
        blended = {name for name, weight in trained.items() if _is_blended(name) and weight.is_floating_point()}
        for share in BLENDS if blended else ():
            if self._first_says(stopped()):
                return
            between = {
                name: torch.lerp(self._frozen[name], weight, share) if name in blended else weight
                for name, weight in trained.items()
            }
            load_trained_state(self.trainer.model, between)
            stage = self.look(step=step, share=share)
            if self._first_says(stage.score < before):
                return
            before = stage.score

    def _look(
        self,
        train: Any,
        priors: Mapping[str, Tensor],
        cache_dir: str | None = None,
        step: int | None = None,
        share: float = 1.0,
    ) -> tuple[Stage, SplitFeatures]:
        trainer = self.trainer
        step = int(trainer.state.global_step) if step is None else step
        features = split_features(trainer, {"train": train, "validation": self.validation}, cache_dir)
        if not all(np.isfinite(x).all() for x in (features["train"][0][0], features["validation"][0])):
            raise TrainingDivergedError(f"The features are not finite at step {step}.")  # the same on every rank
        stage = self._fit(step, features, priors, share)
        if stage.rows > LOOK_ROWS:  # like is compared with like: looks see fewer rows
            stage = dataclasses.replace(stage, score=self._fit(step, _some(features), priors, share).score)
        known = self.best is not None and self.best.result is None and self.best.step == step == 0  # met again
        if step not in dict(self.history):  # a training that goes on has seen some of them
            self.history.append((step, stage.score))
        if self._first_says(self.best is None or known or stage.score > self.best.score):
            weights = self._model_state()
            whole = features if stage.rows == len(self.train) else {}
            self.best, self._weights, self.features = stage, weights, whole  # no interruption may come in between
            self.on_better(stage)
        return stage, features

    def _first_says(self, answer: bool) -> bool:
        """The answer of the first rank: all have fitted the same heads, but for rounding."""
        return bool(first_says(self.trainer, answer)[0])

    def _fit(self, step: int, features: SplitFeatures, priors: Mapping[str, Tensor], share: float) -> Stage:
        result = evaluate_features(self.trainer, features, self.config, priors, trained_on_these=step > 0)
        return Stage(step, _score(result), len(features["train"][1]), share, result)

    def _model_state(self) -> dict[str, Tensor]:
        state = trained_state(self.trainer.model)  # of a model with an adapter, all but the backbone
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in state.items()}

    def callback(self, steps: int, hurried: bool = False, late: Callable[[], bool] = lambda: False) -> TrainerCallback:
        """For a training of so many steps: looks now and then, and stops it when nothing gets better.

        A `hurried` training has one look, at its end and at all rows, so that nothing is left to be fitted. Once it is
        `late`, the next look is the last: a machine may become slower than its pace was measured.
        """
        looks, rows = (1, len(self.train)) if hurried else (self.looks(steps), LOOK_ROWS)
        at = sorted({max(steps * number // looks, 1) for number in range(1, looks + 1)})
        return _Looks(self, at, rows, late)

    def looks(self, steps: int) -> int:
        """How many looks a training of so many steps affords."""
        rows, args = min(len(self.train), LOOK_ROWS) + len(self.validation), self.trainer.args
        batch = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        return int(np.clip(LOOK_TIME * steps * PASSES * batch / rows, *LOOKS))

    def restore_best(self) -> Stage:
        """Give the model the weights of the best stage; its heads are fitted to all rows where that is better."""
        best = self.best
        if best is None:
            raise RuntimeError("There is no stage yet: call begin() or look() first.")
        load_trained_state(self.trainer.model, self._weights)
        if best.result is None or best.rows < len(self.train):
            features = split_features(self.trainer, {"train": self.train, "validation": self.validation})
            refitted = self._fit(best.step, features, self.priors(), best.share)
            self.features = features
            best = refitted if best.result is None or refitted.score > best.score else best
        first = self._first
        if best.step > 0 and first is not None and self._first_says(_score(first.result) > _score(best.result)):
            best = first  # with heads on all rows, nothing was gained
            load_trained_state(self.trainer.model, self._frozen)
            self.features = split_features(self.trainer, {"train": self.train, "validation": self.validation})
        self.best = best
        return best

    def save(self, path: Path) -> None:
        """Write the best stage and its weights, so that a training that goes on knows them."""
        if self.best is not None:
            known = {name: getattr(self.best, name) for name in ("step", "score", "rows", "share")}
            with whole_file(path) as draft:
                torch.save({"stage": known, "history": self.history, "weights": self._weights}, draft)

    def load(self, path: Path) -> bool:
        """Take up what `save` wrote; False where there is nothing that can be read."""
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
            stage, weights, history = Stage(**content["stage"]), dict(content["weights"]), list(content["history"])
        except Exception:  # not there, damaged, or of another version: the training begins without it
            return False
        self.best, self._weights, self.history = stage, weights, history
        return True


class _Looks(TrainerCallback):  # type: ignore[misc]
    """Looks at some steps of a training."""

    def __init__(self, stages: Stages, steps: list[int], rows: int, late: Callable[[], bool]) -> None:
        self.stages, self.steps, self.rows, self.late = stages, steps, rows, late
        self.vain = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step > 0:  # resumed: what was reached before the interruption counts
            self.stages.look(self.rows)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        late = self.late()
        if state.global_step not in self.steps and not late:
            return
        before = self.stages.best
        self.stages.look(self.rows)
        again = before is not None and state.global_step <= before.step  # on the way to what was known already
        self.vain = 0 if again or self.stages.best is not before else self.vain + 1
        if self.vain >= PATIENCE or late:
            control.should_training_stop = True


def first_says(trainer: ContrastiveMultiLabelTrainer, *numbers: int) -> list[int]:
    """The first rank's numbers, on every rank: one decides for all."""
    told = torch.tensor(numbers, dtype=torch.long, device=trainer.args.device)
    return [int(number) for number in trainer.accelerator.gather(told)[: len(numbers)]]


def step_seconds(trainer: ContrastiveMultiLabelTrainer, longest: int | None = None) -> float:
    """How long a training step takes on this machine: forward and backward passes whose gradients are thrown away.

    Texts are cut at `longest` tokens by the trainer's collator.
    """
    model = trainer.model.to(trainer.args.device)
    was_training = model.training
    model.train()
    times: list[float] = []
    sizes: list[int] = []
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())), _kept_statistics(model):
        for batch in islice(trainer.get_train_dataloader(), PACE_STEPS):
            inputs = trainer._prepare_inputs(batch)
            sizes.append(inputs[trainer.model.main_input_name].numel())
            start = time.perf_counter()
            with trainer.accelerator.autocast():
                loss = trainer.compute_loss(model, inputs)
            loss.backward()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
            model.zero_grad()
    model.train(was_training)
    trainer.statistics.reset()
    usual = float(np.mean(sizes))
    if trainer.args.train_sampling_strategy == "group_by_length":  # the longest come first, and none is filled up
        lengths = np.minimum(row_lengths(trainer.train_dataset), longest or np.inf)
        usual = trainer.args.per_device_train_batch_size * float(lengths.mean())
    return usual * min(spent / size for spent, size in list(zip(times, sizes, strict=True))[-2:])  # the first warms up


@contextmanager
def _kept_statistics(model: torch.nn.Module) -> Iterator[None]:
    """What a model has counted, as batch normalisation does, is afterwards as it was."""
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        yield
    finally:
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])


def _score(result: LinearEvaluationResult) -> float:
    return ranking_score(result.validation_labels, result.validation_probabilities)


def _some(features: SplitFeatures) -> SplitFeatures:
    """The features of the rows that a look sees."""
    passes, labels = features["train"]
    rows = list(evenly(range(len(labels)), LOOK_ROWS))
    return {**features, "train": ([each[rows] for each in passes], labels[rows])}


def _is_blended(name: str) -> bool:
    """Whether a weight leads from the frozen backbone to the trained one: of LoRA, the factor that began at 0."""
    return name.startswith("backbone.") or ".lora_B." in name


def _means(features: Array, labels: Array) -> Tensor:
    """The mean features of each label's rows; of all rows for a label that has none."""
    counts = labels.sum(axis=0)[:, None]
    means = np.where(counts > 0, labels.T @ features / np.maximum(counts, 1), features.mean(axis=0))
    return torch.from_numpy(means.astype(np.float32))
