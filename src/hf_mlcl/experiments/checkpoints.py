"""Where a training begins: anew, or at the last checkpoint that was written to its end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import send_to_device
from transformers import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

from hf_mlcl.experiments.arguments import ExperimentArguments
from hf_mlcl.files import whole_file
from hf_mlcl.training import ContrastiveTrainingArguments


def starting_checkpoint(experiment: ExperimentArguments, training: ContrastiveTrainingArguments) -> str | None:
    """Where to go on; an error rather than a mixture of two runs in one folder.

    Every rank of a distributed training has to call it: where something is deleted, one does, and the others wait.
    """
    folder = Path(training.output_dir)
    wanted = training.resume_from_checkpoint
    if wanted and str(wanted).lower() in ("last", "true"):
        with training.main_process_first(desc="looking for the last checkpoint"):
            if training.should_save:
                delete_incomplete_checkpoints(folder)
            last = last_complete_checkpoint(folder)
        return None if last is None else str(last)
    if wanted:
        if not Path(str(wanted)).is_dir():
            raise ValueError(f"resume_from_checkpoint must be a folder or 'last'; there is no folder {wanted!r}.")
        if not _is_complete(Path(str(wanted))):
            raise ValueError(
                f"resume_from_checkpoint {str(wanted)!r} is not a checkpoint that was written to its end (it has no "
                f"whole trainer_state.json). Give another, or 'last' for the last one that was."
            )
        return str(wanted)
    if experiment.overwrite:
        # Each rank enters, whatever it sees: another may have deleted them before it looked.
        with training.main_process_first(desc="deleting earlier checkpoints"):
            if training.should_save:
                for path in folder.glob("checkpoint-*"):
                    shutil.rmtree(path, ignore_errors=True)
        return None
    last_of_any = get_last_checkpoint(str(folder)) if folder.is_dir() else None
    if last_of_any is not None:
        raise ValueError(
            f"output_dir {str(folder)!r} has checkpoints of an earlier run ({Path(last_of_any).name}). Go on with it "
            f"(--resume_from_checkpoint last), choose another --output_dir, or delete them (--overwrite)."
        )
    return None


def last_complete_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that was written to its end; those that were not are passed over."""
    return next((path for path in _newest_first(folder) if _is_complete(path)), None)


def delete_incomplete_checkpoints(folder: Path) -> None:
    """Delete what an interruption has left unfinished; in a distributed training one process may."""
    for path in _newest_first(folder):
        if not _is_complete(path):
            shutil.rmtree(path, ignore_errors=True)


def _newest_first(folder: Path) -> Iterator[Path]:
    numbered = [path for path in folder.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdigit()]
    yield from sorted(numbered, key=lambda path: -int(path.name.removeprefix("checkpoint-")))


def _is_complete(checkpoint: Path) -> bool:
    """The trainer writes ``trainer_state.json`` last, so a checkpoint with a whole one is complete."""
    try:
        json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True


class StatisticsInCheckpoints(TrainerCallback):  # type: ignore[misc]
    """Saves the sums since the last log with each checkpoint, so that a log does not depend on interruptions.

    Args:
        statistics: The trainer's, whose attributes are the sums.
        checkpoint: Where the training goes on, if it does.
    """

    def __init__(self, statistics: Any, checkpoint: str | None = None) -> None:
        self.statistics = statistics
        self.checkpoint = checkpoint

    def on_train_begin(self, args: ContrastiveTrainingArguments, *_: Any, **__: Any) -> None:
        """Take up the sums of the checkpoint, where it has those of as many ranks."""
        file = _statistics_file(self.checkpoint, args) if self.checkpoint else None
        if file is not None and file.is_file():
            # To the CPU first: torch cannot restore to cpu:0, a rank's device.
            sums = torch.load(file, map_location="cpu", weights_only=True)
            vars(self.statistics).update(send_to_device(sums, args.device))

    def on_save(self, args: ContrastiveTrainingArguments, state: Any, *_: Any, **__: Any) -> None:
        """Write this rank's sums, whole or not at all."""
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if folder.is_dir():
            with whole_file(_statistics_file(folder, args)) as draft:
                torch.save(dict(vars(self.statistics)), draft)


def _statistics_file(checkpoint: str | Path, args: ContrastiveTrainingArguments) -> Path:
    return Path(checkpoint) / f"statistics_{args.process_index}_of_{args.world_size}.pt"
