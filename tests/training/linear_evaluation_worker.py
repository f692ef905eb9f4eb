"""Evaluates linearly, twice, with a folder of features of which rank 1 knows nothing. Started by torchrun in the tests.

Usage: torchrun --nproc_per_node W linear_evaluation_worker.py FOLDER
"""

from __future__ import annotations

import os
import sys
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


if __name__ == "__main__":
    main(Path(sys.argv[1]))
