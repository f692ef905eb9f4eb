"""Training that is usable from the first minute, and never ends below where it began.

0. **Frozen.** Training and validation rows are encoded once by the backbone as it is, and heads are fitted: a
   classifier exists, is scored and can be saved.
1. **Fine-tuning** starts there: the classifier from those heads, the prototypes from the labels' names or means. Now
   and then heads are fitted to the features of the moment and scored on validation; training stops once nothing gets
   better.
2. **The best** of all these on validation, stage 0 among them, is what remains.

Scores are compared by `ranking_score`, which needs no thresholds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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

from hf_mlcl.evaluation import BestHeads, ThresholdChoice, choose_thresholds, fit_best_heads
from hf_mlcl.files import whole_file
from hf_mlcl.metrics import DecisionRule, average_precision, sigmoid
from hf_mlcl.training import ContrastiveMultiLabelTrainer
from hf_mlcl.training.divergence import TrainingDivergedError
from hf_mlcl.training.rows import evenly

Array = npt.NDArray[np.float32]
FeaturesAndLabels = tuple[Array, Array]

LOOKS = 4
"""Looks at validation while training; the last is the end of the training."""
LOOK_ROWS = 3000
"""Training rows that a look fits its heads to; the last one takes all."""
PATIENCE = 2
"""Looks without a better score after which a training stops."""
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
    """A classifier on the way.

    Attributes:
        step: Training steps that its backbone has seen; 0 is the frozen one.
        heads: Its linear layer.
        thresholds: What it decides by; None for 0.5.
        validation_probabilities: Of the validation rows.
        score: `ranking_score` on them.
        rows: Training rows that the heads were fitted to.
    """

    step: int
    heads: BestHeads
    thresholds: ThresholdChoice | None
    validation_probabilities: Array = field(repr=False)
    score: float
    rows: int

    def cuts(self) -> Sequence[float] | float:
        """Probabilities from which labels count."""
        return 0.5 if self.thresholds is None else self.thresholds.rule.thresholds

    def probabilities(self, features: Array) -> Array:
        """Of rows by their features."""
        p: Array = sigmoid(self.heads.logits(torch.from_numpy(features)).numpy()).astype(np.float32)
        return p


@dataclass
class Stages:
    """Goes through the stages with a trainer.

    Attributes:
        trainer: With a model as it came.
        train: Rows that heads are fitted to.
        validation: Rows that decide.
        priors: Gives the priors of heads for the model of the moment; see `fit_best_heads`.
        on_better: Called on every rank with each stage that is better than those before, while the model is that
            stage's.
        objective: What thresholds are tuned for; None for 0.5.
        history: Step and score of every look.
        best: The best stage so far.
        validation_labels: Of the validation rows, once there was a look.
    """

    trainer: ContrastiveMultiLabelTrainer
    train: Any
    validation: Any
    priors: Callable[[], Mapping[str, Tensor]] = dict
    on_better: Callable[[Stage], None] = lambda stage: None
    objective: Literal["macro_f1", "micro_f1"] | None = "macro_f1"
    history: list[tuple[int, float]] = field(default_factory=list)
    best: Stage | None = None
    validation_labels: Array = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32), repr=False)
    _weights: dict[str, Tensor] = field(default_factory=dict, repr=False)

    def begin(self, prototypes: Literal["random", "names", "means"] = "random") -> Stage:
        """Stage 0; the model's classifier and prototypes then start where it ended.

        Args:
            prototypes: Where they start: as they were drawn, at the encoded names of the labels, or at the means of
                their rows, which also stand in for names where there are none.
        """
        stage, (features, labels) = self._look(None)
        model = self.trainer.model
        kept = self.best is stage
        with torch.no_grad():
            if model.classifier is not None:
                model.classifier.weight.copy_(stage.heads.weight)
                model.classifier.bias.copy_(stage.heads.bias)
            if prototypes != "random":
                names = dict(self.priors()) if prototypes == "names" else {}
                chosen = names.get(stage.heads.prior, next(iter(names.values()), _means(features, labels)))
                model.prototypes.weight.copy_(model.projection(chosen.to(model.device, model.dtype)))
        if kept:
            self._weights = self._model_state()
        return stage

    def look(self, rows: int | None = None) -> Stage:
        """Fit heads to the features of the moment, score them, and remember them if they are the best so far.

        Args:
            rows: Training rows to fit them to, spread over the data; all if not given.
        """
        return self._look(rows)[0]

    def _look(self, rows: int | None) -> tuple[Stage, FeaturesAndLabels]:
        trainer = self.trainer
        learned = trainer.features_and_labels(self.train if rows is None else evenly(self.train, rows))
        features, self.validation_labels = trainer.features_and_labels(self.validation)
        if not (np.isfinite(learned[0]).all() and np.isfinite(features).all()):  # the same on every rank
            raise TrainingDivergedError(f"The features are not finite at step {trainer.state.global_step}.")
        stage = self._fit(int(trainer.state.global_step), *learned, features)
        self.history.append((stage.step, stage.score))
        # Every rank has fitted the same heads but for rounding: the first decides for all.
        better = torch.tensor([self.best is None or stage.score > self.best.score], device=trainer.args.device)
        if bool(trainer.accelerator.gather(better.long())[0]):
            weights = self._model_state()
            self.best, self._weights = stage, weights  # together: an interruption must not come in between
            self.on_better(stage)
        return stage, learned

    def _model_state(self) -> dict[str, Tensor]:
        state = self.trainer.model.state_dict()
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in state.items()}

    def _fit(self, step: int, features: Array, labels: Array, validation: Array) -> Stage:
        x, y = torch.from_numpy(features), torch.from_numpy(labels) > 0
        judges, truth = torch.from_numpy(validation), torch.from_numpy(self.validation_labels) > 0
        trained = None if step == 0 else (judges, truth)
        heads = fit_best_heads(
            x, y, trained, priors=self.priors(), seed=self.trainer.args.seed, device=self.trainer.args.device
        )
        p: Array = sigmoid(heads.logits(judges).numpy()).astype(np.float32)
        thresholds = None
        if self.objective is not None:
            seen, scored = truth.numpy(), p
            if heads.unseen_probabilities is not None:  # training rows, scored by heads that did not see them
                seen = np.concatenate([seen, y.numpy()])
                scored = np.concatenate([scored, heads.unseen_probabilities])
            thresholds = choose_thresholds(seen, scored, self.objective)
        return Stage(step, heads, thresholds, p, ranking_score(truth.numpy(), p), len(x))

    def callback(self, steps: int) -> TrainerCallback:
        """For a training of so many steps: looks now and then, and stops it when nothing gets better."""
        return _Looks(self, sorted({max(steps * number // LOOKS, 1) for number in range(1, LOOKS + 1)}))

    def restore_best(self) -> Stage:
        """Give the model the weights of the best stage; its heads are fitted to all rows where that is better."""
        if self.best is None:
            raise RuntimeError("There is no stage yet: call begin() or look() first.")
        self.trainer.model.load_state_dict(self._weights)
        if self.best.rows < len(self.train):
            learned, held_out = (self.trainer.features_and_labels(rows) for rows in (self.train, self.validation))
            refitted = self._fit(self.best.step, *learned, held_out[0])
            self.best = max(refitted, self.best, key=lambda stage: stage.score)
        return self.best

    def save(self, path: Path) -> None:
        """Write the best stage and its weights, so that a training that goes on knows them."""
        if self.best is None:
            return
        stage, chosen = self.best, self.best.thresholds
        content = {
            "stage": {"step": stage.step, "score": stage.score, "rows": stage.rows},
            "heads": {name: getattr(stage.heads, name) for name in ("weight", "bias", "weight_decay", "prior", "loss")},
            "thresholds": chosen and {"values": chosen.rule.thresholds, "kind": chosen.kind, "scores": chosen.scores},
            "validation_probabilities": torch.from_numpy(stage.validation_probabilities),
            "history": self.history,
            "weights": self._weights,
        }
        with whole_file(path) as draft:
            torch.save(content, draft)

    def load(self, path: Path) -> bool:
        """Take up what `save` wrote; False where there is nothing that can be read."""
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
            told = content["thresholds"]
            thresholds = told and ThresholdChoice(DecisionRule(told["values"]), told["kind"], told["scores"])
            found = {"heads": BestHeads(**content["heads"]), "thresholds": thresholds, **content["stage"]}
            stage = Stage(validation_probabilities=content["validation_probabilities"].numpy(), **found)
            self.best, self._weights, self.history = stage, content["weights"], list(content["history"])
        except Exception:  # not there, damaged, or of another version: the training begins without it
            return False
        return True


class _Looks(TrainerCallback):  # type: ignore[misc]
    """Looks at some steps of a training."""

    def __init__(self, stages: Stages, steps: list[int]) -> None:
        self.stages, self.steps = stages, steps
        self.vain = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step > 0:  # resumed: what was reached before the interruption counts
            self.stages.look(LOOK_ROWS)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step not in self.steps:
            return
        before = self.stages.best
        self.stages.look(None if state.global_step == self.steps[-1] else LOOK_ROWS)
        self.vain = 0 if self.stages.best is not before else self.vain + 1
        if self.vain >= PATIENCE:
            control.should_training_stop = True


def step_seconds(trainer: ContrastiveMultiLabelTrainer) -> float:
    """How long a training step takes on this machine: forward and backward passes whose gradients are thrown away."""
    model = trainer.model.to(trainer.args.device)
    was_training = model.training
    model.train()
    times = []
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())), _kept_statistics(model):
        for batch in islice(trainer.get_train_dataloader(), PACE_STEPS):
            inputs = trainer._prepare_inputs(batch)
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
    return min(times[1:] or times)  # the first one warms up


@contextmanager
def _kept_statistics(model: torch.nn.Module) -> Iterator[None]:
    """What a model has counted, as batch normalisation does, is afterwards as it was."""
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        yield
    finally:
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])


def _means(features: Array, labels: Array) -> Tensor:
    """The mean features of each label's rows; of all rows for a label that has none."""
    counts = labels.sum(axis=0)[:, None]
    means = np.where(counts > 0, labels.T @ features / np.maximum(counts, 1), features.mean(axis=0))
    return torch.from_numpy(means.astype(np.float32))
