"""One experiment from beginning to end: train, evaluate, save."""

from __future__ import annotations

import copy
import dataclasses
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from datasets import DatasetDict
from transformers import set_seed

from hf_mlcl import ContrastiveMultiLabelTrainer
from hf_mlcl.data.labels import label_counts
from hf_mlcl.data.own import data_fingerprint
from hf_mlcl.data.own_files import folder_name
from hf_mlcl.data.registry import list_corpora
from hf_mlcl.evaluation import LinearEvaluationResult, space_quality
from hf_mlcl.experiments.anytime import BEST_FILE, UNIFORMITY_ROWS, Anytime
from hf_mlcl.experiments.arguments import ExperimentArguments
from hf_mlcl.experiments.checkpoints import (
    StatisticsInCheckpoints,
    check_same_data,
    delete_checkpoints,
    has_same_data,
    is_same,
    starting_checkpoint,
)
from hf_mlcl.experiments.display import Display
from hf_mlcl.experiments.explaining import explain_training
from hf_mlcl.experiments.inputs import Inputs, load_data, prepare_inputs
from hf_mlcl.experiments.output_folder import OutputFolder
from hf_mlcl.experiments.parsing import (
    check_experiment,
    check_push,
    cpu_knows_bfloat16,
    linear_config,
    parse_experiment,
)
from hf_mlcl.experiments.recipe import Recipe
from hf_mlcl.experiments.results import (
    DATA_FINGERPRINT,
    DATA_SOURCE,
    DECISIONS_FILE,
    HISTORY,
    METRICS_FILE,
    PAGE_FILE,
    ExperimentResult,
    data_source,
    print_summary,
    save_decisions,
)
from hf_mlcl.experiments.verdict import verdict
from hf_mlcl.experiments.watching import Watching
from hf_mlcl.hub import ModelReport, export_encoder, push_folder, write_model_card
from hf_mlcl.hub.model_card import drawn, hub_id
from hf_mlcl.losses import ranks_only
from hf_mlcl.metrics import DecisionRule, f1
from hf_mlcl.models.loading import problem
from hf_mlcl.training import ContrastiveTrainingArguments
from hf_mlcl.training.card_facts import scores_of, training_report
from hf_mlcl.training.evaluation import SplitFeatures, evaluate_features, make_classifier, split_features
from hf_mlcl.training.sharding import check_gatherable, gather_model
from hf_mlcl.versions import library_versions

logger = logging.getLogger(__name__)

STAGES = {
    "data": "Preparing rows and encoder",
    "frozen": "Classifier on the frozen encoder",
    "train": "Training",
    "evaluate": "Evaluating",
}
"""What the display calls the steps whose time is measured."""
MODEL_FOLDERS = ("encoder", "classifier", "backbone")


class PushError(RuntimeError):
    """An experiment is finished and saved, but its encoder or classifier did not get to the Hub."""

    def __init__(self, message: str, result: ExperimentResult) -> None:
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.result)  # from a process of its own


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
    display = Display(quiet=quiet or training.process_index > 0, plain=training.disable_tqdm)
    with output.owned() if training.process_index == 0 else nullcontext(), display:
        result = _run(experiment, _for_trainer(training), data, output, display)
        if training.process_index == 0 and training.push_to_hub:
            _push(result, training)
    return result


def run_recipe(recipe: Recipe, description: str | None = None) -> None:
    """What a recipe does as a program: settings from the command line, the experiment, its scores."""
    result = run_experiment(*parse_experiment(recipe, description=description))
    print_summary(result)
    PartialState().destroy_process_group()  # a rank that leaves without it may crash on its way out


def _for_trainer(training: ContrastiveTrainingArguments) -> ContrastiveTrainingArguments:
    """A copy of the arguments, changed where the trainer needs it; the caller's stay as they are."""
    own = copy.copy(training)
    own.hub_token = training.hub_token  # which no copy of arguments has, since copies may be written
    own.disable_tqdm = True  # the display has the bars
    if own.bf16 and own.device.type == "cpu" and not cpu_knows_bfloat16(unknown=True):
        logger.warning(
            "bf16: this CPU has no instructions for bfloat16 and may take ten times as long with it as without. "
            "bf16=auto takes it where it is faster."
        )
    own.push_to_hub = False  # the Hub gets what is finished, and not every checkpoint on the way to it
    if not torch.accelerator.is_available():
        own.dataloader_pin_memory = False  # there is no device to copy to
    return own


def _run(
    experiment: ExperimentArguments,
    training: ContrastiveTrainingArguments,
    data: DatasetDict | None,
    output: OutputFolder,
    display: Display,
) -> ExperimentResult:
    """Everything but the push, in a folder that is this process's."""
    seconds: dict[str, float] = {}
    start, measured = time.perf_counter(), partial(_measured, seconds, display)
    output.check_replaceable(*MODEL_FOLDERS, METRICS_FILE, DECISIONS_FILE, PAGE_FILE)
    settings = {**training.to_dict(), **dataclasses.asdict(experiment)}
    settings = {name: value for name, value in settings.items() if "token" not in name}
    before = output.interrupted()
    same_again = is_same(before, settings)
    checkpoint = starting_checkpoint(experiment, training, same_again=same_again)
    set_seed(training.seed)
    with measured("data"):
        data = load_data(experiment, training) if data is None else data
        settings |= _known_data(experiment, data)
        if checkpoint is not None and not training.resume_from_checkpoint:
            check_same_data(before, settings)
            if training.should_save:
                logger.warning("Going on with the training that was interrupted, from %s.", checkpoint)
        goes_on = checkpoint is not None or (same_again and not experiment.overwrite)
        resumed = goes_on and has_same_data(before, settings)  # the best so far is that of other data otherwise
        inputs = prepare_inputs(data, experiment, training)
    trainer = _trainer(inputs, training, checkpoint)
    watching = Watching(trainer, display)
    if first := trainer.is_world_process_zero():
        if not resumed:
            (output.hidden / BEST_FILE).unlink(missing_ok=True)  # of another training
        output.begin(settings)
    anytime = None
    features: SplitFeatures = {}
    if experiment.protocol == "best":
        anytime = Anytime(trainer, inputs, experiment, output, start, display.tell, resumed)
        metrics, evaluated = _in_stages(anytime, checkpoint, watching, measured)
        features = anytime.features
    else:
        with measured("train"), watching.stoppable():
            metrics = {"train_loss": float(trainer.train(resume_from_checkpoint=checkpoint).training_loss)}
            if watching.stopped:  # half a training is not what the study evaluates
                watching.tell_how_to_go_on()
                raise KeyboardInterrupt
        gather_model(trainer)
        with measured("evaluate"):
            evaluated = evaluate_study(trainer, inputs, experiment, features)
    per_label = _per_label(evaluated, inputs)
    told = {} if anytime is None else verdict(anytime, evaluated, per_label)
    seconds["total"] = time.perf_counter() - start
    result = ExperimentResult(
        metrics={**evaluated.metrics, **metrics, **_prr(trainer)},
        per_label=per_label,
        seconds={name: round(value, 2) for name, value in seconds.items()},
        folder=output.path,
        settings=settings,
        versions=library_versions(),
        verdict=told,
        history=[
            {name: log[name] for name in HISTORY if name in log} for log in trainer.state.log_history if "loss" in log
        ],
    )
    with display.stage("Saving"):
        if first:
            _save(result, trainer.model, evaluated, inputs.processor, output)
        _write_extras(trainer, inputs, data, result, evaluated, features, experiment, output)
    if watching.stopped:
        watching.tell_how_to_go_on()
    elif first:
        output.finish()
        if anytime is not None:  # the best is saved: nobody goes on from what came after it
            delete_checkpoints(output.path)
            anytime.kept.unlink(missing_ok=True)
    return result


@contextmanager
def _measured(seconds: dict[str, float], display: Display, step: str) -> Iterator[None]:
    began = time.perf_counter()
    with display.stage(STAGES[step]):
        yield
    seconds[step] = time.perf_counter() - began


def _trainer(
    inputs: Inputs, training: ContrastiveTrainingArguments, checkpoint: str | None
) -> ContrastiveMultiLabelTrainer:
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
    check_gatherable(trainer)
    return trainer


def _in_stages(
    anytime: Anytime,
    checkpoint: str | None,
    watching: Watching,
    measured: Callable[[str], AbstractContextManager[None]],
) -> tuple[dict[str, float], LinearEvaluationResult]:
    """Metrics of the training, and the best classifier of all stages."""
    watching.looks = anytime.stages.history
    with measured("frozen"):
        anytime.begin()
    with measured("train"), watching.stoppable():
        metrics = anytime.train(checkpoint, lambda: watching.stopped)
    with measured("evaluate"):
        return metrics, anytime.evaluate()


def evaluate_study(
    trainer: ContrastiveMultiLabelTrainer, inputs: Inputs, experiment: ExperimentArguments, kept: SplitFeatures
) -> LinearEvaluationResult:
    """The study's evaluation for the kind of loss, the same on every rank; `kept` gets the features."""
    config = linear_config(experiment, trainer.args)
    fits_heads = config.protocol != "direct" or experiment.best_heads
    wanted = ("train", "validation", "test") if fits_heads else ("validation", "test")
    passes = experiment.augmented_passes if inputs.modality == "image" else 0
    rows = {split: inputs.data[split] for split in wanted}
    kept |= (features := split_features(trainer, rows, experiment.feature_cache_dir, passes))
    metrics: dict[str, float] = {}
    if config.protocol != "direct" and trainer.model.classifier is not None:
        own = evaluate_features(trainer, features, dataclasses.replace(config, protocol="direct", thresholds="half"))
        ranks = ranks_only(trainer.loss) and not config.single_label  # nothing is decided at 0.5 by such logits
        metrics = {f"direct_{name}": one for name, one in own.metrics.items() if not ranks or name.endswith("mAP")}
    if experiment.best_heads:
        best = evaluate_features(trainer, features, dataclasses.replace(config, protocol="best", thresholds="macro_f1"))
        metrics |= {f"best_{name}": value for name, value in best.metrics.items()}
    result = evaluate_features(trainer, features, config)
    metrics |= result.metrics | space_quality(*features["test"], max_rows=UNIFORMITY_ROWS)
    return dataclasses.replace(result, metrics=metrics, classifier=make_classifier(trainer.model, result))


def _per_label(evaluated: LinearEvaluationResult, inputs: Inputs) -> list[dict[str, Any]]:
    names = inputs.model.config.label_names
    scores, counts = f1(*_decided(evaluated)), label_counts(inputs.data["train"], len(names))
    return [
        {"label": name, "train_rows": int(count), "f1": float(score)}
        for name, count, score in zip(names, counts, scores, strict=True)
    ]


def _decided(evaluated: LinearEvaluationResult) -> tuple[Any, Any]:
    """Truth and decisions of the test rows: at 0.5, or of the most probable label alone."""
    rule = DecisionRule(single_label=evaluated.config.single_label)
    return evaluated.test_labels, rule.decide(evaluated.test_probabilities)  # type: ignore[arg-type]  # which there are


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
    """Of the encoder, and of the classifier; a folder's name without what the Hub does not take, such as ``+``.

    One of which nothing would be left stays as it is, for `check_push` to refuse: any other has the same rest.
    """
    folder = os.path.basename(os.path.abspath(training.output_dir)).removesuffix(".git")
    allowed = re.sub(r"([^A-Za-z0-9._]|\.\.)+", "-", folder)[:80].strip("-.")
    encoder = training.hub_model_id or allowed or folder
    return encoder, f"{encoder}-classifier"


def _known_data(experiment: ExperimentArguments, data: DatasetDict) -> dict[str, str]:
    """What tells data of your own from others, for whoever goes on with a training or scores its classifier."""
    missing = [split for split in ("train", "validation", "test") if split not in data]
    if missing:
        raise ValueError(f"The corpus has no {' and no '.join(missing)} split, but {', '.join(data)} only.")
    if experiment.corpus in list_corpora():
        return {}
    return {DATA_FINGERPRINT: data_fingerprint(data), DATA_SOURCE: data_source(str(experiment.corpus))}


def _save(
    result: ExperimentResult, encoder: Any, evaluated: LinearEvaluationResult, processor: Any, output: OutputFolder
) -> None:
    """Write everything aside, then put it in place within a moment: an error before leaves all as it was."""
    models = {"encoder": encoder, "classifier": evaluated.classifier}
    with output.staging("results") as results, ExitStack() as stack:
        stages = {name: stack.enter_context(output.staging(name)) for name in models}
        for name, model in models.items():
            model.save_pretrained(stages[name])
            processor.save_pretrained(stages[name])
        save_decisions(results, *_decided(evaluated))
        result.save(results)
        for earlier in ("backbone", PAGE_FILE):  # those of an earlier encoder
            output.remove(earlier)
        output.publish(**stages)
        with output.writing(DECISIONS_FILE, METRICS_FILE):
            for name in (DECISIONS_FILE, METRICS_FILE):
                os.replace(results / name, result.folder / name)


def _write_extras(
    trainer: ContrastiveMultiLabelTrainer,
    inputs: Inputs,
    data: DatasetDict,
    result: ExperimentResult,
    evaluated: LinearEvaluationResult,
    features: SplitFeatures,
    experiment: ExperimentArguments,
    output: OutputFolder,
) -> None:
    """Write page, card and plain backbone, by all ranks together, since they show features that all compute."""

    def all_features() -> SplitFeatures:
        missing = {split: inputs.data[split] for split in ("train", "test") if split not in features}
        return {**features, **split_features(trainer, missing)}

    def write_page(features: SplitFeatures) -> None:
        with output.writing(PAGE_FILE):
            (output.path / PAGE_FILE).unlink(missing_ok=True)  # of an earlier classifier, should this one fail
            explain_training(output.path / PAGE_FILE, inputs.modality, data, result, evaluated, features)

    def gather_report() -> ModelReport:
        corpus = str(experiment.corpus)
        name = folder_name(corpus) if Path(corpus).exists() else corpus
        return training_report(
            trainer,
            evaluation=None if experiment.single_label else scores_of(evaluated),
            dataset=name,
            dataset_id=hub_id(corpus) if "/" in corpus else None,
            name=f"{name}-{trainer.args.loss}",
            figures=experiment.export,
            classifier=evaluated.classifier,
        )

    def write_cards(report: ModelReport) -> None:
        report.figures = {file: (drawn(figure), caption) for file, (figure, caption) in report.figures.items()}
        with output.staging("classifier", from_published=True) as stage:
            write_model_card(stage, dataclasses.replace(report, page=f"../{PAGE_FILE}" if has_page else None))
            output.publish(classifier=stage)
        if experiment.export:
            with output.staging("backbone") as stage:
                export_encoder(trainer.model, stage, inputs.processor, prototypes=trainer.uses_prototypes)
                scored = "Scores of a classifier on its features, which decides at 0.5."
                write_model_card(stage, dataclasses.replace(report, thresholds=None, evaluation=scored))
                output.publish(backbone=stage)

    has_page = experiment.page and _try_to_write("its page", trainer, all_features, write_page)
    _try_to_write("its card or its plain backbone", trainer, gather_report, write_cards)


def _try_to_write(
    what: str, trainer: ContrastiveMultiLabelTrainer, gather: Callable[[], Any], write: Callable[[Any], None]
) -> bool:
    """Write by the first rank what all have gathered, and say whether it is there.

    Everything is trained, judged and saved: nothing of this is worth a failed run.
    """
    is_gathered = False
    try:
        facts, is_gathered = gather(), True
        if trainer.is_world_process_zero():
            write(facts)
            return True
    except Exception as error:
        if trainer.args.world_size > 1 and not is_gathered:  # the others may be waiting for this rank's features
            raise
        logger.warning("The model is saved, but %s could not be written: %s", what, problem(error))
    return False


def _prr(trainer: ContrastiveMultiLabelTrainer) -> dict[str, float]:
    """The ratio that was logged last, or that of all steps where there were too few for a log.

    Steps after the last log are left out: the ratio of a few of them would not compare with that of a whole window.
    """
    logged = [entry for entry in trainer.state.log_history if "prr" in entry] or [trainer.statistics.flush()]
    return {"prr": float(logged[-1]["prr"])} if "prr" in logged[-1] else {}
