"""Where a training begins: anew, or at the newest checkpoint that is whole."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import send_to_device
from safetensors import safe_open
from transformers import TrainerCallback
from transformers.trainer_pt_utils import safe_globals

from hf_mlcl.experiments.arguments import ExperimentArguments
from hf_mlcl.files import whole_file
from hf_mlcl.training import ContrastiveTrainingArguments

logger = logging.getLogger(__name__)

STATE_FILE = "trainer_state.json"
WEIGHTS = ("*model*.safetensors", "*model*.bin")
FOR_RESUMING = ("optimizer.pt", "scheduler.pt", "rng_state*.pth")
"""All of them are there, or none: ``save_only_model``."""
MARKS = (STATE_FILE, "training_args.bin", "config.json", *WEIGHTS, *FOR_RESUMING)
"""Files by which a checkpoint is known, also one that was interrupted."""


def delete_checkpoints(folder: Path) -> None:
    """Delete the checkpoints of a training; one process of many calls it."""
    for path in _newest_first(folder):
        if _is_known(path):
            shutil.rmtree(path, ignore_errors=True)


def starting_checkpoint(
    experiment: ExperimentArguments, training: ContrastiveTrainingArguments, same_again: bool = False
) -> str | None:
    """Where to go on; an error rather than a mixture of two runs in one folder.

    Every rank of a distributed training has to call it: where something is deleted, one does, and the others wait.

    Args:
        experiment: Whether to begin anew.
        training: The folder, and from where the user wants to go on.
        same_again: Whether the last training in the folder was interrupted, and this one has the same settings: it then
            goes on by itself.
    """
    folder = Path(training.output_dir)
    wanted = training.resume_from_checkpoint
    with training.main_process_first(desc="looking for checkpoints"):
        if wanted and str(wanted).lower() not in ("last", "true"):
            return _named_checkpoint(Path(str(wanted)))
        if wanted or (same_again and not experiment.overwrite):
            if training.should_save:
                clear_broken_checkpoints(folder)
            last = last_whole_checkpoint(folder)
            if last is not None and not wanted and training.should_save:
                logger.warning("Going on with the training that was interrupted, from %s.", last)
            return None if last is None else str(last)
        found = list(_newest_first(folder))
        if experiment.overwrite:
            foreign = [path for path in found if not _is_known(path)]
            if foreign:
                raise ValueError(
                    f"--overwrite would delete {foreign[0]}, but there is no checkpoint in it. Move it away, or choose "
                    "another --output_dir."
                )
            if training.should_save:
                delete_checkpoints(folder)
            return None
    if found:
        raise ValueError(
            f"output_dir {str(folder)!r} has checkpoints of an earlier run ({found[0].name}). Go on with it "
            f"(--resume_from_checkpoint last), choose another --output_dir, or delete them (--overwrite)."
        )
    return None


def _named_checkpoint(checkpoint: Path) -> str:
    if not checkpoint.is_dir():
        raise ValueError(f"resume_from_checkpoint must be a folder or 'last'; there is no folder {str(checkpoint)!r}.")
    wrong = damage(checkpoint)
    if wrong is not None:
        raise ValueError(
            f"resume_from_checkpoint {str(checkpoint)!r} is not a whole checkpoint: {wrong}. Give another, or 'last' "
            "for the newest one in output_dir that is whole."
        )
    return str(checkpoint)


def last_whole_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that can be loaded; others are passed over."""
    return next((path for path in _newest_first(folder) if damage(path) is None), None)


def clear_broken_checkpoints(folder: Path) -> None:
    """Delete checkpoints that were not written to their end, and put aside those that were damaged afterwards.

    In a distributed training one process may. Where they stayed, the trainer would count them when it makes room.
    """
    for path in _newest_first(folder):
        wrong = damage(path) if _is_known(path) else None
        if wrong is None:
            continue
        if STATE_FILE in wrong:  # the trainer writes it last
            shutil.rmtree(path, ignore_errors=True)
            logger.warning("Deleted %s, which was not written to its end: %s.", path, wrong)
        else:
            aside = path.with_name(f"damaged-{path.name}")
            shutil.rmtree(aside, ignore_errors=True)
            os.rename(path, aside)
            logger.warning("%s is damaged: %s. It is now %s, and training goes on without it.", path, wrong, aside.name)


def _newest_first(folder: Path) -> Iterator[Path]:
    numbered = [path for path in folder.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdigit()]
    yield from sorted(numbered, key=lambda path: -int(path.name.removeprefix("checkpoint-")))


def _is_known(checkpoint: Path) -> bool:
    """Whether a folder is a checkpoint, or the beginning of one, and not something of the user's by that name."""
    return checkpoint.is_dir() and (not any(checkpoint.iterdir()) or any(_has(checkpoint, mark) for mark in MARKS))


def _has(checkpoint: Path, pattern: str) -> bool:
    return any(checkpoint.glob(pattern))


def damage(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint, by the name of the file; None where every file is there and can be read.

    Args:
        checkpoint: Its folder.

    Examples:
        >>> import tempfile
        >>> damage(Path(tempfile.mkdtemp()))
        'trainer_state.json is missing'
    """
    if not (checkpoint / STATE_FILE).is_file():
        return f"{STATE_FILE} is missing"
    for path in sorted(checkpoint.iterdir(), key=lambda path: path.name != STATE_FILE):
        try:
            _read(path)
        except Exception as error:  # whatever each format's reader comes up with
            return f"{path.name} cannot be read ({' '.join(str(error).split())[:200] or type(error).__name__})"
    if any(path.is_dir() for path in checkpoint.iterdir()):  # sharded by FSDP or DeepSpeed, which check for themselves
        return None
    if not any(_has(checkpoint, pattern) for pattern in WEIGHTS):
        return "model.safetensors is missing"
    for index in checkpoint.glob("*.index.json"):
        parts = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        if missing := [part for part in sorted(parts) if not (checkpoint / part).is_file()]:
            return f"{missing[0]} is missing"
    missing = [pattern for pattern in FOR_RESUMING if not _has(checkpoint, pattern)]
    return f"{missing[0].replace('*', '')} is missing" if 0 < len(missing) < len(FOR_RESUMING) else None


def _read(path: Path) -> None:
    """Open a file as far as it takes to see whether it is whole, without reading all weights."""
    if path.suffix == ".json":
        content = json.loads(path.read_text(encoding="utf-8"))
        if path.name == STATE_FILE and not isinstance(content.get("global_step"), int):
            raise ValueError("it has no global_step")
    elif path.suffix == ".safetensors":
        with safe_open(path, framework="pt"):
            pass  # compares the size with what the header says
    elif path.suffix in (".pt", ".pth") or (path.suffix == ".bin" and "model" in path.name):
        with safe_globals():
            torch.load(path, map_location="cpu", weights_only=True, mmap=True)


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
