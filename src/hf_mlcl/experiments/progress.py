"""What a training prints where no bar can be drawn."""

from __future__ import annotations

from typing import Any

from transformers import PrinterCallback, ProgressCallback, TrainerCallback
from transformers.utils import logging


class PlainLines(TrainerCallback):  # type: ignore[misc]
    """A line for each log, to be read in a file: ``step 10  epoch 0.5  loss 1.234``."""

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Print the log; one process of many does."""
        if state.is_world_process_zero and logs:
            shown = {"step": state.global_step, "epoch": logs.get("epoch"), **logs, "total_flos": None}
            told = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in shown.items()}
            print("  ".join(f"{name} {value}" for name, value in told.items() if value is not None), flush=True)


def without_bars(trainer: Any, quiet: bool) -> None:
    """Print plain lines in place of bars and dictionaries; nothing at all if it shall be quiet."""
    trainer.args.disable_tqdm = True
    logging.disable_progress_bar()  # of models that are written
    for printing in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(printing)
    if not quiet:
        trainer.add_callback(PlainLines())
