"""Evaluates linearly, twice, with a folder of features of which rank 1 knows nothing. Called by tests on each rank."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from accelerate import PartialState
from datasets import Dataset

from hf_mlcl import ContrastiveMultiLabelTrainer, ContrastiveTrainingArguments
from hf_mlcl.evaluation import LinearEvaluationConfig
from training.tiny import text_model, text_rows

ROWS = 29


def main(folder: Path) -> None:
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    args = ContrastiveTrainingArguments(
        str(folder / "run"), per_device_eval_batch_size=4, report_to="none", disable_tqdm=True, use_cpu=True
    )
    rows = Dataset.from_list([{name: value.tolist() for name, value in row.items()} for row in text_rows(ROWS)])
    trainer = ContrastiveMultiLabelTrainer(text_model(), args, data_collator=stack, train_dataset=rows)
    config = LinearEvaluationConfig(learning_rates=(0.1,), weight_decays=(1e-2,), epochs=2)
    # Ranks on several machines have several disks.
    for cache in (folder / f"of {ranks}", folder / (f"of {ranks}" if rank == 0 else "of its own")):
        result = trainer.linear_evaluate(rows, rows, config=config, cache_dir=cache)
    if rank == ranks - 1:
        torch.save(result.weight, folder / f"{ranks}.pt")
    PartialState().destroy_process_group()


def stack(rows: list[dict]) -> dict:
    return {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}
