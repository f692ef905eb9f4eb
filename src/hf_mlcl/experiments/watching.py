"""Between a trainer and the display: what there is to see of a training, and how Ctrl-C ends it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psutil
import torch
from transformers import PrinterCallback, TrainerCallback
from transformers.utils.logging import disable_progress_bar

from hf_mlcl.experiments.display import Display, same_command
from hf_mlcl.training import ContrastiveMultiLabelTrainer

SECONDS = 1.0
"""Between two looks at the last loss, which a GPU is waited for."""
VALIDATION = ("eval_macro_f1", "eval_probe_macro_f1", "eval_accuracy", "eval_loss")
"""What is shown of an evaluation, if no metric was chosen for the best model: the first of these that there is."""


class Watching(TrainerCallback):  # type: ignore[misc]
    """Shows what a trainer does, in place of its own bars and dictionaries.

    Attributes:
        looks: Steps and validation scores so far, of a training that looks at validation by itself.
        stopped: Whether Ctrl-C has ended the training.
    """

    def __init__(self, trainer: ContrastiveMultiLabelTrainer, display: Display) -> None:
        self.trainer, self.display = trainer, display
        self.looks: Sequence[tuple[int, float]] = ()
        self.stopped = False
        self._predicting = False
        self._looked = 0.0
        disable_progress_bar()  # of models that are written
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(self)

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """Ctrl-C in the block ends the training after its step, with a checkpoint; once more ends it at once."""

        def stop(*_: object) -> None:
            self.stopped = True
            signal.signal(signal.SIGINT, before)
            self.display.tell("Stopping after this step; Ctrl-C once more stops at once.")

        before = signal.getsignal(signal.SIGINT)
        # Only where Ctrl-C is for this thread of this process; of several ranks, the others do not know of it.
        alone = self.trainer.args.world_size == 1 and threading.current_thread() is threading.main_thread()
        if not alone or before is not signal.default_int_handler:
            yield
            return
        signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def tell_how_to_go_on(self) -> None:
        """Say where Ctrl-C has ended the training, and the command that goes on from there."""
        state = self.trainer.state
        self.display.tell(f"Stopped at step {state.global_step} of {state.max_steps}. To go on: {same_command()}")

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The training has so many steps."""
        rows = args.train_batch_size * args.world_size * args.gradient_accumulation_steps
        self.display.count(state.max_steps, rows, state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A step is done."""
        if state.is_world_process_zero:
            if time.monotonic() - self._looked > SECONDS:
                self._look(state)
            self.display.reached(state.global_step)
        if self.stopped:
            control.should_save = control.should_training_stop = True

    def _look(self, state: Any) -> None:
        facts = self.display.facts
        latest = {name: float(value) for name, value in self.trainer.latest.items()}
        facts["loss"] = f"{latest.get('loss', float('nan')):.3f}"
        if "positive_similarity" in latest:
            pair = (latest[f"{sign}_similarity"] for sign in ("positive", "negative"))
            facts["similarity +/-"] = " / ".join(f"{value:.2f}" for value in pair)
        if self.looks:
            best = max(self.looks, key=lambda look: look[1])
            facts["validation"] = f"{self.looks[-1][1]:.3f}, best {best[1]:.3f} at step {best[0]}"
        on_gpu = torch.cuda.is_available()
        memory = torch.cuda.max_memory_reserved() if on_gpu else psutil.Process().memory_info().rss
        facts["memory"] = f"{memory / 2**30:.1f} GB"
        self._looked = time.monotonic()

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: dict[str, float] | None = None, **_: Any
    ) -> None:
        """The trainer has looked at validation."""
        self.on_predict()
        metrics = metrics or {}
        chosen = args.metric_for_best_model
        wanted = [f"eval_{chosen.removeprefix('eval_')}"] if chosen else []
        name = next((name for name in (*wanted, *VALIDATION) if name in metrics), None)
        if name is not None:
            best = (
                "" if state.best_metric is None else f", best {state.best_metric:.3f} at step {state.best_global_step}"
            )
            self.display.facts[f"validation {name.removeprefix('eval_')}"] = f"{metrics[name]:.3f}{best}"

    def on_prediction_step(self, args: Any, state: Any, control: Any, eval_dataloader: Any = None, **_: Any) -> None:
        """A batch was encoded or predicted."""
        if not state.is_world_process_zero:
            return
        if not self._predicting:
            rows = args.eval_batch_size * args.world_size
            self.display.begin("encoding", len(eval_dataloader), rows, unit="batch")
            self._predicting = True
        self.display.advance()

    def on_predict(self, *_: Any, **__: Any) -> None:
        """All batches were."""
        if self._predicting:
            self.display.end()
            self._predicting = False

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        """A line for each log, to be read in a file: ``step 10  epoch 0.5  loss 1.234``."""
        if state.is_world_process_zero and logs and not self.display.is_live:
            shown = {"step": state.global_step, "epoch": logs.get("epoch"), **logs, "total_flos": None}
            told = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in shown.items()}
            self.display.tell("  ".join(f"{name} {value}" for name, value in told.items() if value is not None))
