"""One experiment from beginning to end: train, evaluate, save."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import DatasetDict
from transformers import set_seed

from hf_mlcl import ContrastiveMultiLabelTrainer
from hf_mlcl.data.own import data_fingerprint
from hf_mlcl.data.registry import list_corpora
from hf_mlcl.experiments.anytime import Anytime
from hf_mlcl.experiments.arguments import ExperimentArguments
from hf_mlcl.experiments.checking import check_experiment, check_push
from hf_mlcl.experiments.checkpoints import StatisticsInCheckpoints, delete_checkpoints, starting_checkpoint
from hf_mlcl.experiments.decisions import DECISIONS_FILE, METRICS_FILE, save_decisions
from hf_mlcl.experiments.evaluating import Evaluated, evaluate_study
from hf_mlcl.experiments.inputs import Inputs, load_data, prepare_inputs
from hf_mlcl.experiments.output_folder import OutputFolder
from hf_mlcl.experiments.progress import without_bars
from hf_mlcl.files import strict_json, whole_file
from hf_mlcl.hub import ModelReport, SplitScores, export_encoder, push_folder, write_model_card
from hf_mlcl.hub.model_card import hub_id
from hf_mlcl.training import ContrastiveTrainingArguments
from hf_mlcl.training.card_facts import training_report
from hf_mlcl.versions import library_versions

logger = logging.getLogger(__name__)

MODEL_FOLDERS = ("encoder", "classifier", "backbone")
DATA_SOURCE = "data_source"
"""Among the settings in it: where data of one's own were read from."""
DATA_FINGERPRINT = "data_fingerprint"
"""Among the settings in it: which data of one's own were trained on."""


@dataclass(frozen=True)
class ExperimentResult:
    """What came out of an experiment; all of it also stands in ``metrics.json``.

    Attributes:
        metrics: ``validation_...`` and ``test_...`` (micro_f1, macro_f1, hamming_loss, mAP, ...; accuracy for data with
            one label a row), ``alignment`` and ``uniformity`` of the test features, ``train_loss``, and ``prr`` where
            the loss has one. A joined loss adds ``direct_...``: the scores of its own logits; tuned thresholds add
            ``tuned_test_...``: the scores of what the saved classifier decides. All others are those of 0.5.
            ``protocol="best"`` adds the same with ``frozen_`` in front: of the classifier on the frozen encoder.
        per_label: For each label its name, training rows (``train_rows``) and test F1 (``f1``).
        seconds: Time spent on ``data``, ``train``, ``evaluate``, and in ``total``.
        folder: Where everything was saved.
        settings: Corpus, loss, seed and all the rest.
        versions: Of the libraries that matter.
        verdict: With ``protocol="best"``: ``scores`` of the frozen and the trained classifier with 95 % intervals,
            ``choices`` that were made, and ``advice``.
    """

    metrics: dict[str, float]
    per_label: list[dict[str, Any]]
    seconds: dict[str, float]
    folder: Path
    settings: dict[str, Any] = field(repr=False)
    versions: dict[str, str] = field(repr=False)
    verdict: dict[str, Any] = field(default_factory=dict, repr=False)

    def save(self, folder: str | os.PathLike[str] | None = None) -> None:
        """Write ``metrics.json``, whole or not at all.

        Args:
            folder: Where to; its own if not given.
        """
        with whole_file(Path(folder or self.folder) / METRICS_FILE) as draft:
            draft.write_text(strict_json(dataclasses.asdict(self)), encoding="utf-8")

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> ExperimentResult:
        """Read back the result of a finished experiment."""
        path = Path(folder) / METRICS_FILE
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is damaged ({error}). Run the experiment again.") from error
        metrics = {name: float("nan") if value is None else value for name, value in content["metrics"].items()}
        return cls(**{**content, "metrics": metrics, "folder": Path(folder)})


class PushError(RuntimeError):
    """An experiment is finished and saved, but its encoder or classifier did not get to the Hub.

    Args:
        message: What happened, and how to repeat the push.
        result: Of the experiment.
    """

    def __init__(self, message: str, result: ExperimentResult) -> None:
        super().__init__(message)
        self.result = result


def run_experiment(
    experiment: ExperimentArguments,
    training: ContrastiveTrainingArguments,
    data: DatasetDict | None = None,
    *,
    quiet: bool = False,
) -> ExperimentResult:
    """Train an encoder, evaluate it as the study does for its kind of loss, and save everything.

    ``training.output_dir`` gets ``encoder/``, ``classifier/``, ``metrics.json``, ``test_decisions.npz`` (what was
    decided for each test row at 0.5) and the checkpoints; with ``experiment.export`` also ``backbone/``, the encoder
    for people without this package. It works in one process or in many, of which the first writes.
    ``training.resume_from_checkpoint`` (a folder, or ``"last"``) goes on with an interrupted training.

    Args:
        experiment: Data, backbone and evaluation.
        training: The loss and how to train.
        data: The splits, where they are not those of ``experiment.corpus``.
        quiet: Whether to print nothing, neither progress nor logs.

    Raises:
        PushError: If ``training.push_to_hub`` was wanted and failed, once everything was saved.

    Examples:
        >>> import tempfile
        >>> from hf_mlcl.experiments import Recipe, build_experiment
        >>> settings = {"backbone": "small", "max_train_samples": 64, "max_eval_samples": 32, "max_steps": 2}
        >>> settings |= {"output_dir": tempfile.mkdtemp(), "report_to": "none", "use_cpu": True}
        >>> result = run_experiment(*build_experiment(Recipe("toy_text"), settings), quiet=True)
        >>> sorted(path.name for path in result.folder.glob("[!.]*") if "checkpoint" not in path.name)
        ['backbone', 'classifier', 'encoder', 'metrics.json', 'test_decisions.npz']
    """
    check_experiment(experiment, training)
    if training.push_to_hub:
        for repository in _repositories(training):
            check_push(repository, training.hub_token)
    output = OutputFolder(training.output_dir)
    with output.owned() if training.process_index == 0 else nullcontext():
        result = _run(experiment, _for_trainer(training), data, output, quiet)
        if training.process_index == 0 and training.push_to_hub:
            _push(result, training)
    return result


def _for_trainer(training: ContrastiveTrainingArguments) -> ContrastiveTrainingArguments:
    """A copy of the arguments, changed where the trainer needs it; the caller's stay as they are."""
    own = copy.copy(training)
    own.hub_token = training.hub_token  # which no copy of arguments has, since copies may be written
    own.push_to_hub = False  # the Hub gets what is finished, and not every checkpoint on the way to it
    if not torch.accelerator.is_available():
        own.dataloader_pin_memory = False  # there is no device to copy to
    return own


def _run(
    experiment: ExperimentArguments,
    training: ContrastiveTrainingArguments,
    data: DatasetDict | None,
    output: OutputFolder,
    quiet: bool,
) -> ExperimentResult:
    """Everything but the push, in a folder that is this process's."""
    seconds: dict[str, float] = {}
    start = time.perf_counter()
    output.check_replaceable(*MODEL_FOLDERS, METRICS_FILE, DECISIONS_FILE)
    settings = _settings(experiment, training)
    before = output.interrupted()
    checkpoint = starting_checkpoint(experiment, training, same_again=_same(before, settings))
    set_seed(training.seed)
    with _measured(seconds, "data"):
        data = load_data(experiment, training) if data is None else data
        _check_splits(data)
        is_own = experiment.corpus not in list_corpora()
        known_data = {}
        if is_own:
            source = str(Path(str(experiment.corpus)).resolve())
            known_data = {DATA_FINGERPRINT: data_fingerprint(data), DATA_SOURCE: source}
        if checkpoint is not None and not training.resume_from_checkpoint:
            _check_same_data(before, known_data)
        inputs = prepare_inputs(data, experiment, training)
    trainer = ContrastiveMultiLabelTrainer(
        inputs.model,
        training,
        data_collator=inputs.train_collator,
        train_dataset=inputs.data["train"],
        eval_dataset=inputs.data["validation"],
        processing_class=inputs.processor,
        eval_data_collator=inputs.eval_collator,
    )
    trainer.add_callback(StatisticsInCheckpoints(trainer.statistics, checkpoint))
    if quiet or training.disable_tqdm:
        without_bars(trainer, quiet)
    if trainer.is_world_process_zero():
        output.begin(settings | known_data)
    verdict: dict[str, Any] = {}
    if experiment.protocol == "best":
        tell = partial(print, flush=True) if not quiet and trainer.is_world_process_zero() else lambda line: None
        anytime = Anytime(trainer, inputs, experiment, output, start, tell, resumed=checkpoint is not None)
        with _measured(seconds, "frozen"):
            anytime.begin()
        with _measured(seconds, "train"):
            metrics = anytime.train(checkpoint)
        with _measured(seconds, "evaluate"):
            evaluated = anytime.evaluate()
            verdict = anytime.verdict(evaluated)
    else:
        with _measured(seconds, "train"):
            metrics = {"train_loss": float(trainer.train(resume_from_checkpoint=checkpoint).training_loss)}
        with _measured(seconds, "evaluate"):
            evaluated = evaluate_study(trainer, inputs, experiment)
    seconds["total"] = time.perf_counter() - start
    result = ExperimentResult(
        metrics={**evaluated.metrics, **metrics, **_prr(trainer)},
        per_label=evaluated.per_label,
        seconds={name: round(value, 2) for name, value in seconds.items()},
        folder=output.path,
        settings=settings | known_data,
        versions=library_versions(),
        verdict=verdict,
    )
    if trainer.is_world_process_zero():
        _save(result, trainer.model, evaluated, inputs.processor, output)
    _prepare_for_others(trainer, inputs, evaluated, experiment, output)
    if trainer.is_world_process_zero():
        output.finish()
        if experiment.protocol == "best":  # the best is saved: nobody goes on from what came after it
            delete_checkpoints(output.path)
            anytime.kept.unlink(missing_ok=True)
    return result


# Folders --------------------------------------------------------------------------------------------------------------


def _push(result: ExperimentResult, training: ContrastiveTrainingArguments) -> None:
    """The encoder, as others load it where that was written, and the classifier to a repository beside it."""
    private = True if training.hub_private_repo is None else training.hub_private_repo
    encoder = "backbone" if (result.folder / "backbone").is_dir() else "encoder"
    left = [
        (result.folder / name, to) for name, to in zip((encoder, "classifier"), _repositories(training), strict=True)
    ]
    try:
        while left:
            push_folder(*left[0], private=private, token=training.hub_token, revision=training.hub_revision)
            left.pop(0)
    except Exception as error:  # whatever the network or the Hub come up with, after everything has been saved
        public = "" if private else " --public"
        commands = " && ".join(f"hf-mlcl push {folder} {repository}{public}" for folder, repository in left)
        raise PushError(f"push failed: {' '.join(str(error).split())}; repeat with {commands}", result) from error


def _repositories(training: ContrastiveTrainingArguments) -> tuple[str, str]:
    """Of the encoder, and of the classifier."""
    encoder = training.hub_model_id or Path(training.output_dir).name
    return encoder, f"{encoder}-classifier"


def _check_splits(data: DatasetDict) -> None:
    missing = [split for split in ("train", "validation", "test") if split not in data]
    if missing:
        raise ValueError(f"The corpus has no {' and no '.join(missing)} split, but {', '.join(data)} only.")


def _same(before: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> bool:
    """Whether a training that was interrupted is the one that is wanted now."""
    now = json.loads(strict_json(settings))
    passing = {"overwrite", "resume_from_checkpoint", "local_rank", DATA_FINGERPRINT, DATA_SOURCE}
    return before is not None and {**before, **dict.fromkeys(passing)} == {**now, **dict.fromkeys(passing)}


def _check_same_data(before: Mapping[str, Any] | None, known_data: Mapping[str, Any]) -> None:
    if (before or {}).get(DATA_FINGERPRINT) != known_data.get(DATA_FINGERPRINT):
        raise ValueError(
            "The data have changed since the training in output_dir was interrupted. Begin anew (--overwrite), or go "
            "on with other data than those that it began with (--resume_from_checkpoint last)."
        )


def _save(result: ExperimentResult, encoder: Any, evaluated: Evaluated, processor: Any, output: OutputFolder) -> None:
    """Write everything aside, then put it in place within a moment: an error before leaves all as it was."""
    models = {"encoder": encoder, "classifier": evaluated.classifier}
    with output.staging("results") as results, ExitStack() as stack:
        stages = {name: stack.enter_context(output.staging(name)) for name in models}
        for name, model in models.items():
            model.save_pretrained(stages[name])
            processor.save_pretrained(stages[name])
        save_decisions(results, *evaluated.test)
        result.save(results)
        output.remove("backbone")  # that of an earlier encoder
        output.publish(**stages)
        with output.writing(DECISIONS_FILE, METRICS_FILE):
            for name in (DECISIONS_FILE, METRICS_FILE):
                os.replace(results / name, result.folder / name)


def _prepare_for_others(
    trainer: ContrastiveMultiLabelTrainer,
    inputs: Inputs,
    evaluated: Evaluated,
    experiment: ExperimentArguments,
    output: OutputFolder,
) -> None:
    """Write the classifier's card and the plain backbone, by all ranks together, since pictures show features.

    Everything is trained, judged and saved: nothing of this is worth a failed run.
    """
    warning = "The model is saved, but its card or its plain backbone could not be written: %s"
    try:
        report = _report(trainer, evaluated, experiment)
    except Exception as error:
        if trainer.args.world_size > 1:  # the others may be waiting for this rank's features
            raise
        logger.warning(warning, error)
        return
    if not trainer.is_world_process_zero():
        return
    try:
        with output.staging("classifier", from_published=True) as stage:
            write_model_card(stage, report)
            output.publish(classifier=stage)
        if experiment.export:
            with output.staging("backbone") as stage:
                export_encoder(trainer.model, stage, inputs.processor, prototypes=trainer.uses_prototypes)
                scored = "Scores of a classifier on its features, which decides at 0.5."
                write_model_card(stage, dataclasses.replace(report, thresholds=None, evaluation=scored))
                output.publish(backbone=stage)
    except Exception as error:
        logger.warning(warning, error)


def _report(
    trainer: ContrastiveMultiLabelTrainer, evaluated: Evaluated, experiment: ExperimentArguments
) -> ModelReport:
    """The facts for a card."""
    corpus = str(experiment.corpus)
    name = Path(corpus).stem if Path(corpus).exists() else corpus
    scores = None if experiment.single_label else SplitScores("test", evaluated.test[0], evaluated.probabilities)
    title = f"{name}-{trainer.args.loss}"
    on_hub = hub_id(corpus) if "/" in corpus else None
    return training_report(
        trainer,
        evaluation=scores,
        dataset=name,
        dataset_id=on_hub,
        name=title,
        figures=experiment.export,
        classifier=evaluated.classifier,
    )


# What is written down -------------------------------------------------------------------------------------------------


@contextmanager
def _measured(seconds: dict[str, float], step: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[step] = time.perf_counter() - start


def _prr(trainer: ContrastiveMultiLabelTrainer) -> dict[str, float]:
    """The ratio that was logged last, or that of all steps where there were too few for a log.

    Steps after the last log are left out: the ratio of a few of them would not compare with that of a whole window.
    """
    logged = [entry for entry in trainer.state.log_history if "prr" in entry] or [trainer.statistics.flush()]
    return {"prr": float(logged[-1]["prr"])} if "prr" in logged[-1] else {}


def _settings(experiment: ExperimentArguments, training: ContrastiveTrainingArguments) -> dict[str, Any]:
    chosen = {**training.to_dict(), **dataclasses.asdict(experiment)}
    return {name: value for name, value in chosen.items() if "token" not in name}
