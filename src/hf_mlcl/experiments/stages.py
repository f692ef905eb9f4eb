"""Training that is usable from the first minute, and never ends below where it began.

0. **Frozen.** Training and validation rows are encoded once by the backbone as it is, and heads are fitted: a
   classifier exists, is scored and can be saved.
1. **Fine-tuning** starts there: the classifier from those heads, the prototypes from the labels' names or means. Now and
   then heads are fitted to the features of the moment and scored on validation; training stops once nothing gets
   better.
2. **The best** of all these on validation, stage 0 among them, is what remains.

Scores are compared by `ranking_score`, which needs no thresholds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import TrainerCallback

from hf_mlcl.evaluation import BestHeads, ThresholdChoice, choose_thresholds, fit_best_heads
from hf_mlcl.metrics import average_precision, sigmoid
from hf_mlcl.training import ContrastiveMultiLabelTrainer
from hf_mlcl.training.rows import evenly

logger = logging.getLogger(__name__)

Array = npt.NDArray[np.float32]
FeaturesAndLabels = tuple[Array, Array]

PROBES = 4
"""Looks at validation while training; the last is the end of the training."""
PROBE_ROWS = 3000
"""Training rows that a look fits its heads to."""
PATIENCE = 2
"""Looks without a better score after which a training stops."""


def ranking_score(labels: npt.ArrayLike, probabilities: npt.ArrayLike) -> float:
    """Mean of macro and micro average precision: how well true labels are ranked, of the rare ones and of all.

    Macro average precision alone swings with the few rows of rare labels; micro average precision hardly sees them.

    Examples:
        >>> ranking_score([[1, 0], [0, 1]], [[0.9, 0.2], [0.1, 0.8]])
        1.0
    """
    truth, p = np.asarray(labels, dtype=bool), np.asarray(probabilities)
    each = average_precision(truth, p, absent=float("nan"))
    macro = float(np.nanmean(each)) if truth.any() else 0.0
    micro = float(average_precision(truth.reshape(-1, 1), p.reshape(-1, 1))[0])
    return (macro + micro) / 2


@dataclass(frozen=True)
class Stage:
    """A classifier on the way.

    Attributes:
        step: Training steps that its backbone has seen; 0 is the frozen one.
        heads: Its linear layer.
        thresholds: What it decides by.
        validation_probabilities: Of the validation rows.
        score: `ranking_score` on them.
    """

    step: int
    heads: BestHeads
    thresholds: ThresholdChoice | None
    validation_probabilities: Array = field(repr=False)
    score: float


@dataclass
class Stages:
    """Goes through the stages with a trainer.

    Attributes:
        trainer: With a model as it came.
        train: Rows that heads are fitted to.
        validation: Rows that decide.
        priors: Gives the priors of heads for the model of the moment; see `fit_best_heads`.
        on_better: Called with each stage that is better than those before, while the model is that stage's.
        single_label: Whether rows have exactly one label, so that there are no thresholds.
        objective: What thresholds are tuned for; None for 0.5.
    """

    trainer: ContrastiveMultiLabelTrainer
    train: Any
    validation: Any
    priors: Callable[[], Mapping[str, Tensor]] = dict
    on_better: Callable[[Stage], None] = lambda stage: None
    single_label: bool = False
    objective: Literal["macro_f1", "micro_f1"] | None = "macro_f1"
    history: list[tuple[int, float]] = field(default_factory=list)
    best: Stage | None = None
    _weights: dict[str, Tensor] = field(default_factory=dict, repr=False)

    def look(self, rows: int | None = None) -> Stage:
        """Fit heads to the features of the moment, score them, and remember them if they are the best so far.

        Args:
            rows: Training rows to fit them to, spread over the data; all if not given.
        """
        trainer = self.trainer
        step = int(trainer.state.global_step)
        learned = trainer.features_and_labels(self.train if rows is None else evenly(self.train, rows))
        held_out = trainer.features_and_labels(self.validation)
        stage = self._stage(step, learned, held_out)
        self.history.append((step, stage.score))
        # Every rank has fitted the same heads but for rounding: one of them decides for all.
        better = self.best is None or stage.score > self.best.score
        flag = torch.tensor([float(better)], device=trainer.args.device)
        if bool(trainer.accelerator.gather(flag)[0]):
            self.best = stage
            weights = trainer.accelerator.unwrap_model(trainer.model).backbone.state_dict()
            self._weights = {name: tensor.detach().to("cpu", copy=True) for name, tensor in weights.items()}
            self.on_better(stage)
        return stage

    def _stage(self, step: int, learned: FeaturesAndLabels, held_out: FeaturesAndLabels) -> Stage:
        x, y = torch.from_numpy(learned[0]), torch.from_numpy(learned[1]) > 0
        judges, truth = torch.from_numpy(held_out[0]), torch.from_numpy(held_out[1]) > 0
        trained = None if step == 0 else (judges, truth)
        heads = fit_best_heads(x, y, trained, priors=self.priors(), seed=self.trainer.args.seed)
        p: Array = sigmoid(heads.logits(judges).numpy()).astype(np.float32)
        thresholds = None
        if self.objective is not None and not self.single_label:
            seen, scored = (truth.numpy(), p)
            if heads.unseen_probabilities is not None:  # training rows, scored by heads that did not see them
                seen = np.concatenate([seen, y.numpy()])
                scored = np.concatenate([scored, heads.unseen_probabilities])
            thresholds = choose_thresholds(seen, scored, self.objective)
        return Stage(step, heads, thresholds, p, ranking_score(truth.numpy(), p))

    def begin_at(self, stage: Stage) -> None:
        """Let the trainer's classifier begin at a stage's heads."""
        model = self.trainer.model
        if model.classifier is not None:
            with torch.no_grad():
                model.classifier.weight.copy_(stage.heads.weight)
                model.classifier.bias.copy_(stage.heads.bias)

    def callback(self, steps: int) -> TrainerCallback:
        """For a training of so many steps: looks now and then, and stops it when nothing gets better."""
        return _Looks(self, {max(round(steps * (number + 1) / PROBES), 1) for number in range(PROBES)})

    def restore_best(self) -> Stage:
        """Give the model the backbone of the best stage."""
        if self.best is None:
            raise RuntimeError("There is no stage yet: call look() first.")
        self.trainer.model.backbone.load_state_dict(self._weights)
        return self.best


class _Looks(TrainerCallback):  # type: ignore[misc]
    def __init__(self, stages: Stages, steps: set[int]) -> None:
        self.stages, self.steps = stages, steps
        self.vain = 0

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step not in self.steps:
            return
        before = self.stages.best
        last = state.global_step >= max(self.steps)
        self.stages.look(None if last else PROBE_ROWS)
        self.vain = 0 if self.stages.best is not before else self.vain + 1
        if self.vain >= PATIENCE:
            control.should_training_stop = True
