"""A training that has become NaN is stopped within a few steps, before it costs hours and the good checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback

from hf_mlcl.losses.gathering import sum_over_ranks
from hf_mlcl.training.checkpoints import last_whole_checkpoint

IN_A_ROW = 3
"""Losses in a row that are not finite until a training is given up. One alone may be a step that the scaler of fp16
leaves out; weights that have become NaN never give a finite loss again."""
CHECKED_EVERY = 4
"""Steps between two looks: reading a number makes the host wait for the device."""


class TrainingDivergedError(ArithmeticError):
    """Losses or weights of a training are no numbers any more.

    Trials of a search may be given up for it alone: ``trainer.hyperparameter_search(catch=(TrainingDivergedError,))``.
    """


class DivergenceWatch(TrainerCallback):
    """Counts losses that are not finite, and raises on all ranks at once when there are too many in a row.

    Infinite gradients of a finite loss do not count: the scaler of fp16 leaves such steps out.
    """

    def __init__(self) -> None:
        self.on_train_begin()

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Forget an earlier training."""
        self._unseen: list[tuple[int, float, Tensor]] = []  # step, learning rate, and whether the loss is finite
        self._bad: list[tuple[int, float]] = []  # steps in a row whose loss is not finite
        self._since_log = 0
        self._rate = float("nan")
        self._device = torch.device("cpu")

    def add(self, loss: Tensor, step: int, optimizer: Any = None) -> None:
        """Take in this rank's loss of a step (from 1 on), and the optimizer's learning rate, without waiting."""
        self._rate = float(optimizer.param_groups[0]["lr"]) if optimizer is not None else float("nan")
        self._unseen.append((step, self._rate, torch.isfinite(loss.detach())))
        self._device = loss.device

    def _look(self) -> None:
        finite = torch.stack([is_finite for *_, is_finite in self._unseen]).tolist() if self._unseen else []
        for (step, rate, _), is_finite in zip(self._unseen, finite, strict=True):
            self._since_log += not is_finite
            if len(self._bad) < IN_A_ROW:  # a later finite loss does not undo it
                self._bad = [] if is_finite else [*self._bad, (step, rate)]
        self._unseen = []

    def _on_all_ranks(self, count: int) -> int:
        return int(sum_over_ranks(torch.tensor(count, device=self._device)))

    def flush(self) -> dict[str, float]:
        """For a log: in how many batches since the last one the loss was no number, if in any. All ranks call it."""
        self._look()
        count = self._on_all_ranks(self._since_log)
        self._since_log = 0
        return {"not_finite_losses": float(count)} if count else {}

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Look every few steps."""
        if state.global_step % CHECKED_EVERY == 0:
            self._look()
            if self._on_all_ranks(len(self._bad) >= IN_A_ROW):
                step, rate = self._bad[0] if self._bad else (state.global_step, self._rate)  # another rank's
                raise _error(f"the loss is not a number since step {step}", rate, args.output_dir)

    def check_weights(self, trainer: Any) -> None:
        """Raise where weights of a trainer's model, which is about to be saved, are not finite; all ranks call it."""
        weights = [
            getattr(weight, "to_local", lambda weight=weight: weight)()  # this rank's part of a sharded one
            for weight in trainer.model.parameters()
            if weight.is_floating_point()
        ]
        bad = [(~torch.isfinite(weight.detach()).all()).to(trainer.args.device) for weight in weights]
        if bad and int(sum_over_ranks(torch.stack(bad).any().long())):
            what = f"weights are not numbers after step {trainer.state.global_step}"
            raise _error(what, self._rate, trainer.args.output_dir)


def _error(what: str, rate: float, folder: str) -> TrainingDivergedError:
    last = last_whole_checkpoint(Path(folder))
    kept = f"The last checkpoint with good weights is {last}." if last else "There is no whole checkpoint of it."
    return TrainingDivergedError(
        f"The training has diverged and was stopped: {what} (learning rate {rate:.3g}). {kept} Start again with a "
        "smaller learning_rate, with bf16 or without mixed precision in place of fp16, with gradient clipping "
        "(max_grad_norm=1.0), or with a larger temperature; look for values in the data that are not finite."
    )
