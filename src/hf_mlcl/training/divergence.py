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
    """Counts losses that are not finite, on the device, and raises on all ranks at once when there are too many.

    Infinite gradients of a finite loss do not count: the scaler of fp16 leaves such steps out.
    """

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._in_a_row: Tensor | None = None
        self._first: Tensor | None = None
        self._since_log: Tensor | None = None
        self._first_rate: Tensor = torch.zeros(())
        self._rate = float("nan")

    def add(self, loss: Tensor, step: int, optimizer: Any = None) -> None:
        """Take in the loss of a step, without waiting for the device.

        Args:
            loss: Of this rank.
            step: Its number, from 1.
            optimizer: Whose learning rate the step takes; afterwards it has that of the next.
        """
        self._rate = float(optimizer.param_groups[0]["lr"]) if optimizer is not None else float("nan")
        bad = (~torch.isfinite(loss.detach())).long()
        if self._in_a_row is None or self._first is None or self._since_log is None:
            self._in_a_row = self._first = self._since_log = torch.zeros_like(bad)
            self._first_rate = torch.zeros_like(bad, dtype=torch.float32)
        given_up = self._in_a_row >= IN_A_ROW  # a later finite loss does not undo it before somebody has looked
        self._in_a_row = torch.where(given_up, self._in_a_row, (self._in_a_row + bad) * bad)
        self._first = torch.where(self._in_a_row == 1, step, self._first)
        self._first_rate = torch.where(self._in_a_row == 1, self._rate, self._first_rate)
        self._since_log = self._since_log + bad

    def flush(self) -> dict[str, float]:
        """For a log: in how many batches since the last one the loss was no number, if in any. All ranks call it."""
        if self._since_log is None:
            return {}
        count = int(sum_over_ranks(self._since_log))
        self._since_log = torch.zeros_like(self._since_log)
        return {"not_finite_losses": float(count)} if count else {}

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Forget an earlier training."""
        self._reset()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Look every few steps."""
        if state.global_step % CHECKED_EVERY or self._in_a_row is None or self._first is None:
            return
        if int(sum_over_ranks((self._in_a_row >= IN_A_ROW).long())):
            first, rate = int(self._first), float(self._first_rate)
            if not first:  # another rank's
                first, rate = state.global_step, self._rate
            raise _error(f"the loss is not a number since step {first}", rate, args.output_dir)

    def check_weights(self, trainer: Any) -> None:
        """Raise where weights are not finite; all ranks call it.

        Args:
            trainer: Whose model is about to be saved.
        """
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
        f"The training has diverged and was stopped: {what} (learning rate {rate:.3g}). {kept} Begin anew with a "
        "smaller learning_rate, with bf16 or without mixed precision in place of fp16, with gradient clipping "
        "(max_grad_norm=1.0), or with a larger temperature; look for values in the data that are not finite."
    )
