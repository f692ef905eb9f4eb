"""Trains on the ranks that torchrun started, of which the last alone sees a loss of NaN; each tells where it ended.

Usage: torchrun --nproc_per_node 2 -m training.divergence_worker FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from accelerate import PartialState

from hf_mlcl.training.divergence import TrainingDivergedError
from training.test_divergence import trainer_for


def main(folder: str) -> None:
    torch.set_num_threads(1)
    state = PartialState(cpu=True)
    last = state.process_index == state.num_processes - 1
    trainer = trainer_for(folder, loss="reg", per_device_train_batch_size=8, save_total_limit=2)
    add = trainer.divergence.add

    def broken(loss: torch.Tensor, step: int, *rest: object) -> None:
        add(loss * float("nan") if last and step > 5 else loss, step, *rest)

    trainer.divergence.add = broken
    try:
        trainer.train()
    except TrainingDivergedError:
        (Path(folder) / f"rank-{state.process_index}").write_text(str(trainer.state.global_step))
    PartialState().destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
