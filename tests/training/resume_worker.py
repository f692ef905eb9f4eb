"""Trains a small model, dying by SIGKILL at a given step or going on from the last checkpoint.

A kind is text, vision, or ranks: texts on several ranks, with an incomplete last batch.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import torch
from accelerate import PartialState
from transformers import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

from hf_mlcl import ContrastiveMultiLabelTrainer, ContrastiveTrainingArguments
from training.tiny import image_model, image_rows, text_model, text_rows


class DieAt(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def main(kind: str, folder: str, die_at: int) -> None:
    text = kind != "vision"
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    model, rows = (text_model(dropout=0.2), text_rows(37)) if text else (image_model(), image_rows(40))
    args = ContrastiveTrainingArguments(
        folder,
        loss="reg+zlpr" if text else "reg",
        label_aware_batches=text,
        per_device_train_batch_size=8 // ranks,
        drop_last_train_batch=False,
        num_train_epochs=3,
        save_steps=4,
        learning_rate=1e-3,
        adam_epsilon=1e-3,  # where a gradient is nothing but rounding, as of the bias of keys, a weight stays
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = ContrastiveMultiLabelTrainer(model, args, train_dataset=rows, callbacks=[DieAt(die_at)])
    if trainer.is_world_process_zero():
        torch.save(trainer.model.state_dict(), Path(folder) / "first.pt")
    trainer.train(resume_from_checkpoint=get_last_checkpoint(folder))
    if trainer.is_world_process_zero():
        torch.save(trainer.model.state_dict(), Path(folder) / "final.pt")
    PartialState().destroy_process_group()
