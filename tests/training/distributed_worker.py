"""Trains a few steps with several losses and saves every step's loss and gradients. Called by tests on every rank."""

from __future__ import annotations

import os
import tempfile

import torch
import torch.distributed as dist
from accelerate import PartialState
from torch.utils.data import IterableDataset
from transformers import TrainerCallback

from hf_mlcl import ContrastiveMultiLabelTrainer, ContrastiveTrainingArguments, build_loss
from training.tiny import text_model, text_rows

ROWS = 29  # with batches of 12: two whole ones and a last one of 5, which two ranks share and a third has no part in
CASES = {
    "reg": {"loss": "reg"},
    "msc": {"loss": "msc"},
    "mulsupcon": {"loss": "mulsupcon"},
    "base": {"loss": "base"},
    "proto": {"loss": "proto"},
    "zlpr": {"loss": "zlpr"},
    "reg+zlpr": {"loss": "reg+zlpr"},
    "reg, alpha 1, tiles": {"loss": "reg", "loss_kwargs": {"alpha": 1.0, "chunk_size": 3}},
    "reg in chunks": {"loss": "reg", "embedding_chunk_size": 2},
    "reg+zlpr in chunks": {"loss": "reg+zlpr", "embedding_chunk_size": 1},
    "reg, dropout by row": {"loss": "reg", "dropout_by_row": True},
    "reg, dropout by row, in chunks": {"loss": "reg", "dropout_by_row": True, "embedding_chunk_size": 2},
    "reg, accumulated": {"loss": "reg", "gradient_accumulation_steps": 2},
    "reg, scored before": {"loss": "reg"},
    "reg, a stream": {"loss": "reg", "max_steps": 3},
    "instances": {},
    "a function": {},
}
GIVEN = {
    "instances": lambda: build_loss("reg+zlpr", weights=[1.0, 0.5], gather_across_devices=True),
    "a function": lambda: pull_to_prototypes,
}


def pull_to_prototypes(embeddings, labels, prototypes=None):
    return ((embeddings @ prototypes.T - labels) ** 2).mean()


class Recorder(TrainerCallback):
    def __init__(self) -> None:
        self.gradients: list[dict] = []
        self.logs: list[dict] = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.gradients.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            self.logs.append(logs)


class Stream(IterableDataset):
    def __init__(self, rows: list) -> None:
        self.rows = rows

    def __iter__(self):
        return iter(self.rows)


def run(name: str, global_batch: int, ranks: int) -> dict:
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as folder:
        args = ContrastiveTrainingArguments(
            folder,
            per_device_train_batch_size=global_batch // ranks,
            per_device_eval_batch_size=global_batch // ranks,
            num_train_epochs=1,
            drop_last_train_batch=False,
            train_sampling_strategy="sequential",
            max_grad_norm=0.0,
            learning_rate=0.0,  # every step sees the same weights, so that rounding does not add up
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            **CASES[name],
        )
        rows = text_rows(ROWS)
        trainer = ContrastiveMultiLabelTrainer(
            text_model(dropout=0.3 if args.dropout_by_row else 0.0),
            args,
            train_dataset=Stream(rows) if name.endswith("stream") else rows,
            eval_dataset=rows,
            callbacks=[recorder],
            loss=GIVEN[name]() if name in GIVEN else None,
        )
        if name.endswith("scored before"):
            trainer.extract_features(rows)
            trainer.evaluate()
        trainer.train()
        evaluation = trainer.evaluate()
        features = trainer.extract_features(rows)
    return {
        "gradients": recorder.gradients,
        "logs": recorder.logs,
        "eval_loss": evaluation["eval_loss"],
        "features": torch.from_numpy(features),
    }


def main(output: str, global_batch: int, cases: list[str]) -> None:
    ranks = int(os.environ["WORLD_SIZE"])
    results = {name: run(name, global_batch, ranks) for name in cases}
    if not dist.is_initialized() or dist.get_rank() == 0:
        torch.save(results, output)
    PartialState().destroy_process_group()
