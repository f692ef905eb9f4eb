"""Where a training begins: from nothing, or at the newest checkpoint that is whole."""

from __future__ import annotations

import itertools
import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import send_to_device
from transformers import TrainerCallback

from hf_mlcl.experiments.arguments import ExperimentArguments
from hf_mlcl.experiments.results import DATA_FINGERPRINT, DATA_SOURCE
from hf_mlcl.files import strict_json, whole_file
from hf_mlcl.training import ContrastiveTrainingArguments
from hf_mlcl.training.checkpoints import (
    FOR_RESUMING,
    STATE_FILE,
    WEIGHTS,
    damage,
    has,
    last_whole_checkpoint,
    newest_first,
)

logger = logging.getLogger(__name__)

MARKS = (STATE_FILE, "training_args.bin", "config.json", *WEIGHTS, *FOR_RESUMING)
"""Files by which a checkpoint is known, also one that was interrupted."""
WRITTEN = (
    *("model*.safetensors", "model.safetensors.index.json", "*config.json", "training_args.bin", "scaler.pt"),
    *("adapter_model.safetensors", "heads.safetensors"),
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.jinja", ".*.part"),
    *("statistics_*_of_*.pt", *FOR_RESUMING),
)
"""What the trainer writes into a checkpoint before `STATE_FILE`."""


def delete_checkpoints(folder: Path) -> None:
    """Delete the checkpoints of a training; one process of many calls it."""
    for path in newest_first(folder):
        if _is_known(path):
            shutil.rmtree(path, ignore_errors=True)


def starting_checkpoint(
    experiment: ExperimentArguments, training: ContrastiveTrainingArguments, same_again: bool = False
) -> str | None:
    """Where to go on; an error rather than a mixture of two runs in one folder.

    Every rank of a distributed training has to call it: where something is deleted, one does, and the others wait.
    With `same_again`, this is the training that was interrupted in the folder: it then goes on by itself.
    """
    folder, wanted = Path(training.output_dir), training.resume_from_checkpoint
    with training.main_process_first(desc="looking for checkpoints"):
        if wanted and str(wanted).lower() not in ("last", "true"):
            return _named_checkpoint(Path(str(wanted)))
        if wanted or (same_again and not experiment.overwrite):
            if training.should_save:
                clear_broken_checkpoints(folder)
            last = last_whole_checkpoint(folder)
            if last is None and wanted:
                raise ValueError(
                    f"resume_from_checkpoint is {str(wanted)!r}, but output_dir {str(folder)!r} has no whole "
                    "checkpoint. Leave it out to start again, or give the folder of a checkpoint."
                )
            return None if last is None else str(last)
        found = list(newest_first(folder))
        if found and not experiment.overwrite:
            raise ValueError(
                f"output_dir {str(folder)!r} has checkpoints of an earlier run ({found[0].name}). Go on with it "
                f"(--resume_from_checkpoint last), choose another --output_dir, or delete them (--overwrite)."
            )
        foreign = [path for path in found if not _is_known(path)]
        if foreign:
            raise ValueError(
                f"--overwrite would delete {foreign[0]}, but there is no checkpoint in it. Move it away, or choose "
                "another --output_dir."
            )
        if training.should_save:
            delete_checkpoints(folder)
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


def clear_broken_checkpoints(folder: Path) -> None:
    """Delete checkpoints that were not written to their end, and put aside those that were damaged afterwards.

    In a distributed training one process may. Where they stayed, the trainer would count them when it makes room.
    """
    for path in newest_first(folder):
        wrong = damage(path) if _is_known(path) else None
        if wrong is None:
            continue
        if _is_beginning(path):
            shutil.rmtree(path, ignore_errors=True)
            logger.warning("Deleted %s, which was not written to its end: %s.", path, wrong)
        else:
            names = itertools.chain([path.name], (f"{path.name}-{number}" for number in itertools.count(2)))
            aside = next(there for name in names if not os.path.lexists(there := path.with_name(f"damaged-{name}")))
            os.rename(path, aside)
            logger.warning("%s is damaged: %s. It is now %s, and training goes on without it.", path, wrong, aside.name)


def _is_known(checkpoint: Path) -> bool:
    """Whether a folder is a checkpoint, or the beginning of one, and not something of the user's by that name."""
    return checkpoint.is_dir() and (not any(checkpoint.iterdir()) or any(has(checkpoint, mark) for mark in MARKS))


def _is_beginning(checkpoint: Path) -> bool:
    """Whether a folder holds nothing but what the trainer writes before its state, which comes last."""
    return not checkpoint.is_symlink() and all(
        path.is_file() and any(path.match(pattern) for pattern in WRITTEN) for path in checkpoint.iterdir()
    )


class StatisticsInCheckpoints(TrainerCallback):  # type: ignore[misc]
    """Saves the trainer's sums since the last log with each checkpoint: a log does not depend on interruptions."""

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


def is_same(before: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> bool:
    """Whether a training that was interrupted is the one that is wanted now."""
    now = json.loads(strict_json(settings))
    passing = {"disable_tqdm", "overwrite", "resume_from_checkpoint", "local_rank", DATA_FINGERPRINT, DATA_SOURCE}
    return before is not None and {**before, **dict.fromkeys(passing)} == {**now, **dict.fromkeys(passing)}


def has_same_data(before: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> bool:
    """Whether the data are those of the training that was interrupted."""
    return (before or {}).get(DATA_FINGERPRINT) == settings.get(DATA_FINGERPRINT)


def check_same_data(before: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> None:
    """Raise if the data are not those of the training that was interrupted."""
    if not has_same_data(before, settings):
        raise ValueError(
            "The data have changed since the training in output_dir was interrupted. Start again (--overwrite), or go "
            "on with other data than those that it began with (--resume_from_checkpoint last): some of the rows that "
            "it is then tested on may be among those it has learned from."
        )
