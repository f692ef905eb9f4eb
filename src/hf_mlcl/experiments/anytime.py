"""One experiment in stages, within a time: begin, train, evaluate. See `hf_mlcl.experiments.stages`."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from hf_mlcl.data.registry import corpus_facts, list_corpora
from hf_mlcl.errors import unknown_name
from hf_mlcl.evaluation import LinearEvaluationResult, space_quality
from hf_mlcl.evaluation.best import IMAGE_TEMPLATES, TEMPLATES, name_priors
from hf_mlcl.experiments.arguments import ExperimentArguments
from hf_mlcl.experiments.inputs import Inputs, training_steps
from hf_mlcl.experiments.output_folder import OutputFolder
from hf_mlcl.experiments.parsing import linear_config
from hf_mlcl.experiments.results import METRICS_FILE
from hf_mlcl.experiments.stages import BLENDS, LOOK_ROWS, LOOKS, Stage, Stages, first_says, step_seconds, take_heads
from hf_mlcl.models.modeling import TEXT_INPUTS
from hf_mlcl.training import ContrastiveMultiLabelTrainer
from hf_mlcl.training.batches import evenly
from hf_mlcl.training.divergence import TrainingDivergedError
from hf_mlcl.training.evaluation import SplitFeatures, make_classifier, split_features

FEWEST_STEPS = 5
"""A time budget with room for fewer is not used for fine-tuning."""
HURRIED_STEPS = 40
"""With room for fewer, more steps are worth more than a second look at validation."""
LONGEST = 4
"""A time budget is used for at most so many times the usual steps."""
OPTIMIZER = 1.15
"""What a step takes beyond its passes: the update, the loader, a log."""
SAVING = 10.0
"""Seconds left for writing the result."""
ENCODING = 0.6
"""Share of the time left that encoding rows before and after training may take; heads are fitted to fewer rows else."""
FEWEST_ROWS, ROWS_PER_LABEL = 500, 20
"""Training rows that heads are fitted to however short a time is: the larger of the two."""
PACE_ROWS = (32, 32, 128)
"""Rows that the pace of encoding is measured with: to warm up, few, more."""
NAMES_AT_A_TIME = 64
"""Names of labels that are encoded together."""
BEST_FILE = "best.pt"
"""In the hidden folder: the best stage and its weights, until the training has ended."""
UNIFORMITY_ROWS = 10_000
"""Rows that uniformity is measured on: its cost grows with their square."""


class Anytime:
    """Goes through the stages of an experiment, and keeps the best so far in its output folder.

    `start` is when the experiment began (`time.perf_counter`); `tell` is called with what a person wants to know while
    waiting; `resumed`: the experiment was interrupted in this folder, and no worse classifier replaces the best so far.
    """

    def __init__(
        self,
        trainer: ContrastiveMultiLabelTrainer,
        inputs: Inputs,
        experiment: ExperimentArguments,
        output: OutputFolder,
        start: float,
        tell: Callable[[str], None],
        resumed: bool = False,
    ) -> None:
        if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
            raise ValueError("protocol='best' needs the whole model in each process; use protocol='study' with FSDP.")
        for name in ("label_templates", "label_descriptions"):
            if inputs.name_tokenizer is None and getattr(experiment, name):
                raise ValueError(f"{name} are for texts: this encoder does not read label names. Leave them out.")
        of_corpus = corpus_facts(experiment.corpus).descriptions if experiment.corpus in list_corpora() else {}
        given: Any = experiment.label_descriptions
        self.descriptions: Mapping[str, str] = of_corpus if given is None else given
        known = trainer.model.config.label_names
        described = [label for label in known if label in self.descriptions]
        if given:
            tell(f"{len(described)} of {len(known)} labels are described, by {len(given)} descriptions.")
            if not described:
                raise ValueError(f"label_descriptions: {unknown_name('label', next(iter(given)), known, most=10)}")
        self.trainer, self.inputs, self.experiment = trainer, inputs, experiment
        self.output, self.start, self.tell = output, start, tell
        self.stages = Stages(
            trainer,
            inputs.data["train"],
            inputs.data["validation"],
            linear_config(experiment, trainer.args),
            self._priors,
            self._publish,
            experiment.feature_cache_dir,
        )
        self.kept = output.hidden / BEST_FILE
        self.finished_before = (output.path / METRICS_FILE).is_file()
        if self.finished_before:
            tell(f"The result of an earlier training stays in {output.path} until this one is complete.")
        loaded = torch.tensor([resumed and self.stages.load(self.kept)], device=trainer.args.device)
        self.resumed = bool(trainer.accelerator.gather(loaded.long()).all())  # another machine's disk: all or none
        if not self.resumed:
            self.stages.best, self.stages.history = None, []
        elif (best := self.stages.best) is not None and best.step > 0:
            tell(f"The best before the interruption is kept: step {best.step}, ranking score {best.score:.3f}.")
        self.frozen: LinearEvaluationResult
        self.test_features: tuple[Any, Any]
        self.seconds: dict[str, float] = {}
        self.had_time = True

    def begin(self) -> None:
        """Stage 0: a classifier on the frozen encoder, saved and scored."""
        rows = self._rows_of_heads()
        if rows < len(self.inputs.data["train"]):
            self.stages.train = evenly(self.inputs.data["train"], rows)
            self.tell(f"Time is short: heads are fitted to {rows:,} of {len(self.inputs.data['train']):,} rows.")
        rows += len(self.inputs.data["validation"]) + len(self.inputs.data["test"])
        self.tell(f"Encoding {rows:,} rows with the encoder as it is ...")
        began = time.perf_counter()
        stage = self.stages.begin(self.experiment.prototype_init)
        self.seconds["all"] = time.perf_counter() - began
        heads: Any = stage.result.best
        self.tell(
            f"After {time.perf_counter() - self.start:.0f} s there is a classifier: ranking score {stage.score:.3f} on "
            f"validation (prior: {heads.prior}, weight decay {heads.weight_decay:g})."
        )
        began = time.perf_counter()
        self.frozen = self._with_test(stage.result, self.experiment.feature_cache_dir)
        self.seconds["test"] = time.perf_counter() - began

    def train(self, checkpoint: str | None, stopped: Callable[[], bool] = lambda: False) -> dict[str, float]:
        """Fine-tune from there, or from a checkpoint, as long as there is time and something to gain.

        `stopped` tells whether somebody has asked for an end.
        """
        steps, hurried = self._plan()
        best = self.stages.best
        if steps == 0:
            self.had_time = best is not None and best.step > 0  # before an interruption
            which = "best before the interruption" if self.had_time else "classifier on the frozen encoder"
            self.tell(f"There is no time for fine-tuning: the {which} remains.")
            return {}
        if checkpoint is None:  # what was seen on another way is not on this one
            self.stages.history = self.stages.history[:1]
        self.trainer.args.max_steps = steps
        last_look = self.seconds["all"] + self.seconds["test"] + SAVING if hurried else self._last_look()

        def late() -> bool:  # asked after every step; one clock counts for all ranks
            return self.experiment.minutes is not None and bool(first_says(self.trainer, self._left() < last_look)[0])

        self.trainer.add_callback(self.stages.callback(steps, hurried, late))
        try:
            outcome = self.trainer.train(resume_from_checkpoint=checkpoint)
            if late() and self.trainer.state.global_step < steps:
                self.tell(f"Time is up after {self.trainer.state.global_step} of {steps} steps.")
            self.stages.blend(lambda: stopped() or not self._has_time())
        except TrainingDivergedError as error:
            self.tell(f"{error} The best before that is kept.")
            return {}
        except KeyboardInterrupt:
            if self.trainer.args.world_size > 1:  # the others do not know of it
                raise
            self.tell("Stopped. The best so far is scored and kept; once more ends at once.")
            return {}
        return {"train_loss": float(outcome.training_loss)}

    def evaluate(self) -> LinearEvaluationResult:
        """The best stage with its scores on test, beside those of stage 0."""
        best = self.stages.restore_best()
        result = self.frozen if best.step == 0 else self._with_test(best.result)
        heads: Any = result.best
        take_heads(self.trainer.model, heads)  # the encoder's own logits are those of its best heads
        frozen = {f"frozen_{name}": value for name, value in self.frozen.metrics.items()}
        classifier = make_classifier(self.trainer.model, result)
        return dataclasses.replace(result, metrics=frozen | result.metrics, classifier=classifier)

    @property
    def features(self) -> SplitFeatures:
        """Of all splits by the weights of the best stage, once it is evaluated."""
        return {**self.stages.features, "test": self.test_features}

    def _with_test(self, result: LinearEvaluationResult, cache_dir: str | None = None) -> LinearEvaluationResult:
        """Add the scores of test rows by the weights of the moment."""
        features = split_features(self.trainer, {"test": self.inputs.data["test"]}, cache_dir)["test"]
        self.test_features = features
        quality = space_quality(*features, max_rows=UNIFORMITY_ROWS)
        result = result.with_test(*features, self.trainer.args.device)
        return dataclasses.replace(result, metrics=result.metrics | quality)

    def _rows_of_heads(self) -> int:
        """Training rows to fit heads to: all, unless to encode them before and after training takes most of the time.

        Then training steps are worth more than rows: heads need some hundreds. Where there is no time for steps in any
        case, it goes to rows.
        """
        data, rows = self.inputs.data, len(self.inputs.data["train"])
        fewest = max(FEWEST_ROWS, ROWS_PER_LABEL * len(self.trainer.model.config.label_names))
        if self.experiment.minutes is None or self.experiment.feature_cache_dir or rows <= fewest:
            return rows  # a cache keeps the features of all rows
        others = len(data["validation"]) + len(data["test"])
        pace, left = self._encoding_pace(), self._left()
        affordable = max(ENCODING * left / (2 * pace) - others, fewest)
        if left - 2 * pace * (affordable + others) - SAVING < 2 * FEWEST_STEPS * self.step_seconds:
            affordable = max((left - SAVING) / pace - others, fewest)
        return first_says(self.trainer, int(min(affordable, rows)))[0]

    def _encoding_pace(self) -> float:
        """Seconds that a row takes, without what a loader and its workers take to start."""
        seconds = []
        for rows in PACE_ROWS:
            began = time.perf_counter()
            self.trainer.extract_features(evenly(self.inputs.data["train"], rows))
            seconds.append(time.perf_counter() - began)
        _, few, more = seconds
        return max(more - few, 0.1 * more) / (PACE_ROWS[2] - PACE_ROWS[1])

    @functools.cached_property
    def step_seconds(self) -> float:
        """How long a training step takes here."""
        passes = step_seconds(self.trainer, self.experiment.max_train_length)
        return OPTIMIZER * passes * int(self.trainer.args.gradient_accumulation_steps)

    def _left(self) -> float:
        """Seconds of the time budget."""
        return 60 * float(self.experiment.minutes or 0) - (time.perf_counter() - self.start)

    def _plan(self) -> tuple[int, bool]:
        """Training steps: the usual number, or what fits into the time; and whether there is time for one look only."""
        args, minutes = self.trainer.args, self.experiment.minutes
        rows, validation = len(self.stages.train), len(self.inputs.data["validation"])
        usual = training_steps(len(self.inputs.data["train"]), args)
        pace = self.step_seconds
        self.seconds["look"] = self.seconds["all"] * (min(rows, LOOK_ROWS) + validation) / (rows + validation)
        if minutes is None:
            looks = (self.stages.looks(usual) + len(BLENDS)) * self.seconds["look"]
            estimate = (usual * pace + looks + self._afterwards()) / 60
            self.tell(f"Fine-tuning takes about {math.ceil(estimate)} minutes more; --minutes sets another time.")
            return usual, False
        left = self._left()
        one_look = self.seconds["all"] + self.seconds["test"] + SAVING
        most = usual if args.max_steps > 0 else LONGEST * usual
        for looks in range(LOOKS[0], LOOKS[1] + 1):  # more steps afford more looks, which leave time for fewer
            several = looks * self.seconds["look"] + self._afterwards()
            steps = int(min((left - several) / pace, most))
            if self.stages.looks(steps) <= looks:
                break
        if hurried := steps < min(HURRIED_STEPS, most):
            steps = int(min((left - one_look) / pace, most))
        steps, only_look = first_says(self.trainer, steps, hurried)  # clocks differ
        if steps < min(FEWEST_STEPS, usual):
            return 0, False
        self.tell(f"Fine-tuning for {steps} steps at {pace:.2f} s, to end {minutes:g} minutes after the start.")
        return steps, bool(only_look)

    def _afterwards(self) -> float:
        """Seconds from the last look to the end: heads on all rows, if it saw fewer; test, saving."""
        again = self.seconds["all"] if len(self.stages.train) > LOOK_ROWS else 0.0
        return again + self.seconds["test"] + SAVING

    def _has_time(self) -> bool:
        """Whether one more look fits into the time."""
        return self.experiment.minutes is None or self._last_look() < self._left()

    def _last_look(self) -> float:
        """Seconds that a look takes, and all that follows if it is the last."""
        return self.seconds["look"] + self._afterwards()

    def _priors(self) -> Mapping[str, Tensor]:
        """The encoded names of the labels, where the encoder reads texts."""
        if self.inputs.name_tokenizer is None or self.experiment.label_templates == []:
            return {}
        usual = TEMPLATES if self.inputs.modality == "text" else IMAGE_TEMPLATES
        names = self.trainer.model.config.label_names
        return name_priors(names, self._encode_names, self.experiment.label_templates or usual, self.descriptions)

    @torch.no_grad()
    def _encode_names(self, sentences: list[str]) -> Tensor:
        model, found = self.trainer.model, []
        was_training = model.training
        model.eval()
        for start in range(0, len(sentences), NAMES_AT_A_TIME):
            batch = sentences[start : start + NAMES_AT_A_TIME]
            tokens = self.inputs.name_tokenizer(batch, padding=True, truncation=True, return_tensors="pt")
            moved = {name: tokens[name].to(model.device) for name in TEXT_INPUTS if name in tokens}
            found.append(model.name_features(moved).float().cpu())
        model.train(was_training)
        return torch.cat(found)

    def _publish(self, stage: Stage) -> None:
        """Put the classifier of the moment into the output folder, so that an interruption leaves it usable.

        Where a training was finished there, its result stays whole: what is whole goes before what may be interrupted.
        """
        if not self.trainer.is_world_process_zero():
            return
        if stage.step > 0:
            where = f"Step {stage.step}" if stage.share == 1 else f"{stage.share:.0%} of the way to step {stage.step}"
            self.tell(f"{where}: ranking score {stage.score:.3f} on validation, the best so far.")
        self.stages.save(self.kept)
        if self.finished_before:
            return
        with self.output.staging("classifier") as folder:
            make_classifier(self.trainer.model, stage.result).save_pretrained(folder)
            self.inputs.processor.save_pretrained(folder)
            self.output.publish(classifier=folder)
