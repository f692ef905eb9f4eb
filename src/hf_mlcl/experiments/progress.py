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
            print(plain_line(state.global_step, logs), flush=True)


def plain_line(step: int, logs: dict[str, Any]) -> str:
    """A log in one line.

    Examples:
        >>> plain_line(10, {"loss": 1.23456, "learning_rate": 2e-05, "total_flos": 3.0, "epoch": 0.5})
        'step 10  epoch 0.5  loss 1.235  learning_rate 2e-05'
    """
    shown = {"step": step, "epoch": logs.get("epoch"), **logs}
    return "  ".join(
        f"{name} {f'{value:.4g}' if isinstance(value, float) else value}"
        for name, value in shown.items()
        if value is not None and name != "total_flos"
    )


def without_bars(trainer: Any, quiet: bool) -> None:
    """Print plain lines in place of bars and dictionaries, or nothing at all.

    Args:
        trainer: The trainer.
        quiet: Whether to print nothing.
    """
    trainer.args.disable_tqdm = True
    logging.disable_progress_bar()  # of models that are written
    for printing in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(printing)
    if not quiet:
        trainer.add_callback(PlainLines())
