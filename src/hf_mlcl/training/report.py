"""Facts for a card from a trainer: what it trained, with what, on what, and how it went."""

from __future__ import annotations

import csv
import inspect
import logging
import os
import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from hf_mlcl.evaluation.linear import LinearEvaluationResult
from hf_mlcl.hub.facts import DataFacts, LossFacts, ModelReport, SplitScores, calibrated, report_of_model
from hf_mlcl.losses import CrossEntropyLoss, JoinedLoss
from hf_mlcl.metrics import sigmoid
from hf_mlcl.training.rows import evenly, label_counts
from hf_mlcl.versions import NOT_INSTALLED, library_versions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hf_mlcl.training.trainer import ContrastiveMultiLabelTrainer

logger = logging.getLogger(__name__)

TEMPERATURES = (0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
CONTRAST = (
    "L = mean over anchors i of - sum_j T_ij log p_ij,  p_ij = exp(s_ij) / sum_k exp(s_ik),  s_ij = cos(z_i, z_j) / tau"
)
"""What all contrastive losses share; each has targets T of its own."""

ROWS_IN_FIGURES = 1000
MOST_LABELS_IN_A_MATRIX = 100


def training_report(
    trainer: ContrastiveMultiLabelTrainer,
    *,
    evaluation: Any = None,
    dataset: str | None = None,
    dataset_id: str | None = None,
    figures: bool = True,
    classifier: Any = None,
    **facts: Any,
) -> ModelReport:
    """Gather what a trainer knows.

    Every rank has to call it where there are several: pictures show features, which all of them compute.

    Args:
        trainer: After training.
        evaluation: Scores for the card: what `linear_evaluate` or `trainer.predict` returned, or a `SplitScores`, which
            names the split, as predictions do not. The trainer's last linear evaluation since it trained if not given.
        dataset: The data's name; the Hub id or the training data's own name if not given.
        dataset_id: The data's id on the Hub, ``"owner/name"``, under which results are listed.
        figures: Whether to draw pictures of the space, which takes a pass over up to 1,000 rows.
        classifier: Whose thresholds and temperature the card shows; that of a linear evaluation if not given.
        **facts: Further fields of `ModelReport`, such as ``license``, ``language`` or ``name``.
    """
    report = report_of_model(trainer.model)
    args, state = trainer.args, trainer.state
    losses = _losses(trainer.loss)
    counts = _label_counts(trainer, len(report.label_names))
    scores, sentence = _scores(evaluation, trainer)
    report = replace(
        report,
        data=_data(dataset, dataset_id, trainer.train_dataset, counts),
        losses=[_loss_facts(name, loss) for name, loss in losses.items()],
        hyperparameters=_hyperparameters(args, losses),
        scores=scores,
        evaluation=sentence,
        metrics=_logged_metrics(state.log_history),
        hardware=_hardware(args),
        seconds=_seconds(state.log_history),
        energy=_energy(args.output_dir),
        versions=_versions(),
        prototypes=trainer.uses_prototypes,
    )
    if classifier is None and isinstance(evaluation, LinearEvaluationResult):
        classifier = evaluation.classifier
    if classifier is not None:
        report = calibrated(report, classifier.config)
    if figures:
        report.figures = _figures(trainer, report)
    return replace(report, **{name: value for name, value in facts.items() if value is not None})


def _versions() -> dict[str, str]:
    """Those that others can install: no local builds, and nothing that was used from its folder."""
    versions = {name: version.split("+")[0] for name, version in library_versions().items()}
    return {name: version for name, version in versions.items() if version != NOT_INSTALLED}


# Loss and settings ----------------------------------------------------------------------------------------------------


def _losses(loss: Any) -> dict[str, Any]:
    return dict(loss.losses.items()) if isinstance(loss, JoinedLoss) else {"": loss}


def _kind(loss: Any) -> str:
    return str(getattr(loss, "kind", ""))


def _loss_facts(name: str, loss: Any) -> LossFacts:
    from hf_mlcl.losses.registry import _LOSSES

    registered = name or next((known for known, cls in _LOSSES.items() if cls is type(loss)), type(loss).__name__)
    formula = getattr(loss, "formula", "")
    if formula and _kind(loss) == "contrastive":
        formula = f"{CONTRAST}\n{formula}"
    return LossFacts(registered, formula, getattr(loss, "citation", ""))


def _hyperparameters(args: Any, losses: dict[str, Any]) -> dict[str, Any]:
    precision = "bfloat16" if args.bf16 else "float16" if args.fp16 else "float32"
    scheduler = getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)
    found = {"loss": args.loss}
    for name, loss in losses.items():
        for parameter in inspect.signature(type(loss)).parameters:
            if parameter != "chunk_size" and isinstance(getattr(loss, parameter, None), int | float):
                found[f"{name} {parameter}".strip()] = getattr(loss, parameter)
    length = {"steps": args.max_steps} if args.max_steps > 0 else {"epochs": args.num_train_epochs}
    batch = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
    return found | {
        **length,
        "batch size over all devices": batch,
        "rows in one contrast": args.train_batch_size * args.world_size,
        "learning rate": args.learning_rate,
        "schedule": f"{scheduler}, warm-up {args.warmup_steps:g}"
        + (" of the steps" if args.warmup_steps < 1 else " steps"),
        "optimizer": getattr(args.optim, "value", args.optim),
        "weight decay": args.weight_decay,
        "gradient clipping": args.max_grad_norm,
        "precision": precision,
        "seed": args.seed,
    }


# Data -----------------------------------------------------------------------------------------------------------------


def _data(
    given: str | None, hub_id: str | None, dataset: Any, counts: npt.NDArray[np.int64] | None
) -> DataFacts | None:
    if hub_id is not None and (not isinstance(hub_id, str) or not re.fullmatch(r"[\w.-]+/[\w.-]+", hub_id)):
        raise ValueError(f"The data's id on the Hub must be 'owner/name', got {hub_id!r}. Any other name: dataset=.")
    rows = len(dataset) if hasattr(dataset, "__len__") else None
    own = getattr(getattr(dataset, "info", None), "dataset_name", None)
    name = given or hub_id or str(own or "").removeprefix("hf_mlcl_")
    if dataset is None and not name:
        return None
    facts = DataFacts(name, hub_id=hub_id, rows=rows, label_counts=counts)
    from hf_mlcl.data import corpus_facts, list_corpora

    known = name.split("/")[-1]
    if known not in list_corpora():
        return facts
    corpus = corpus_facts(known)
    return replace(
        facts,
        summary=corpus.summary,
        homepage=corpus.homepage,
        license=corpus.license,
        citation=corpus.citation,
    )


def _label_counts(trainer: Any, labels: int) -> npt.NDArray[np.int64] | None:
    """How often each label occurs in the training data; None where that cannot be told at once.

    Rows that are no columns and no list may have to be read and decoded: a card is not worth another epoch of that.
    """
    dataset = trainer.train_dataset
    if trainer.counted_labels is not None and trainer.counted_labels[0] is dataset:
        counts: npt.NDArray[np.int64] = trainer.counted_labels[1]
        return counts
    is_table = hasattr(dataset, "with_format") and hasattr(dataset, "column_names")
    if not is_table and not isinstance(dataset, list | tuple):
        return None
    try:
        plain = dataset.with_format(None) if is_table else dataset  # nothing is decoded without a format
        return label_counts(plain, labels)
    except Exception as error:  # the dataset is the user's, and a card is not worth an error at the end of a training
        logger.warning("The training data's labels cannot be counted for the model card: %s", error)
        return None


# Scores ---------------------------------------------------------------------------------------------------------------


def _scores(evaluation: Any, trainer: Any) -> tuple[SplitScores | None, str]:
    linear = (
        "Linear heads on the frozen features; of each label the best learning rate and weight decay on the validation "
        "split."
    )
    if isinstance(evaluation, SplitScores):
        return evaluation, ""
    if evaluation is None:
        return trainer.last_scores, linear if trainer.last_scores is not None else ""
    if isinstance(evaluation, LinearEvaluationResult):
        return scores_of(evaluation), linear
    if not hasattr(evaluation, "predictions") or not hasattr(evaluation, "label_ids"):
        raise ValueError(
            "evaluation must be what trainer.linear_evaluate or trainer.predict returned, or a SplitScores; got "
            f"{type(evaluation).__name__}."
        )
    logits = evaluation.predictions[0] if isinstance(evaluation.predictions, tuple) else evaluation.predictions
    if any(isinstance(loss, CrossEntropyLoss) for loss in _losses(trainer.loss).values()):
        return None, "One label a row: the one with the largest logit."
    scores = SplitScores("", evaluation.label_ids, sigmoid(logits))
    return scores, "The model's own classifier, trained with the encoder."


def scores_of(result: LinearEvaluationResult) -> SplitScores:
    """What a linear evaluation predicted of the test split, or of validation where there was none."""
    if result.test_labels is None or result.test_probabilities is None:
        return SplitScores("validation", result.validation_labels, result.validation_probabilities)
    return SplitScores("test", result.test_labels, result.test_probabilities)


def _logged_metrics(history: Iterable[dict[str, Any]]) -> dict[str, float]:
    """The last evaluation while training."""
    found: dict[str, float] = {}
    for entry in history:
        values = {k.removeprefix("eval_"): v for k, v in entry.items() if k.startswith("eval_")}
        if values:
            found = {k: float(v) for k, v in values.items() if not k.endswith(("runtime", "per_second"))}
    return found


# Machine --------------------------------------------------------------------------------------------------------------


def _hardware(args: Any) -> str:
    if args.device.type == "cuda":
        return f"{args.world_size} x {torch.cuda.get_device_name(args.device)}"
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0] if names else model
    processes = f", {args.world_size} processes" if args.world_size > 1 else ""
    return f"{model}, {os.cpu_count()} cores{processes}, no GPU"


def _seconds(history: Iterable[dict[str, Any]]) -> dict[str, float]:
    runtimes = [entry["train_runtime"] for entry in history if "train_runtime" in entry]
    return {"training": float(runtimes[-1])} if runtimes else {}


def _energy(folder: str) -> dict[str, float]:
    """From the file that codecarbon leaves behind (``report_to="codecarbon"``)."""
    path = Path(folder) / "emissions.csv"
    if not path.is_file():
        return {}
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = {"energy_consumed": "energy (kWh)", "emissions": "emissions (kg CO2)"}
    return {title: float(rows[-1][key]) for key, title in names.items() if rows and rows[-1].get(key)}


# Pictures -------------------------------------------------------------------------------------------------------------


def _figures(trainer: Any, report: ModelReport) -> dict[str, tuple[Figure, str]]:
    from hf_mlcl.evaluation import FrequencyCurve, project_2d, prototype_similarities, prr_by_temperature
    from hf_mlcl.evaluation.figures import draw_f1_by_frequency, draw_map, draw_prr, draw_similarities

    found: dict[str, tuple[Figure, str]] = {}
    names: Sequence[str] = report.label_names
    dataset = trainer.eval_dataset if trainer.eval_dataset is not None else trainer.train_dataset
    dataset = next(iter(dataset.values())) if isinstance(dataset, dict) else dataset
    if hasattr(dataset, "__len__"):
        which = "validation" if trainer.eval_dataset is not None else "training"
        features, labels = trainer.features_and_labels(evenly(dataset, ROWS_IN_FIGURES))
        if len(labels) == len(features) and len(features) > 2:
            caption = f"{len(features):,} {which} examples, their features by PCA. Of several labels the rarest shows."
            found["space.png"] = draw_map(project_2d(features), labels, names), caption
            if any(_kind(loss) == "contrastive" for loss in _losses(trainer.loss).values()):
                prototypes = trainer.model.prototypes.weight.detach().float().cpu() if report.prototypes else None
                weights = next(trainer.model.projection.parameters())
                with torch.no_grad():
                    embeddings = trainer.model.projection(torch.from_numpy(features).to(weights)).float().cpu()
                ratios = prr_by_temperature(embeddings, labels, TEMPERATURES, prototypes)
                caption = (
                    "Positive Regularisation Ratio: positive pairs that a contrastive loss without the regulariser "
                    f"would push apart, among {which} examples."
                )
                if np.isfinite(ratios).all():
                    found["prr.png"] = draw_prr(TEMPERATURES, {trainer.args.loss: ratios}, paper=False), caption
    if report.prototypes and len(names) <= MOST_LABELS_IN_A_MATRIX:
        similarity = prototype_similarities(trainer.model.prototypes.weight.detach().float().cpu())
        found["prototypes.png"] = draw_similarities(similarity, names), "How similar the labels' prototypes are."
    if report.scores is not None and report.data is not None and report.data.label_counts is not None:
        f1 = report.scores.counts(0.5 if report.thresholds is None else report.thresholds).f1()
        curve = FrequencyCurve(list(names), report.data.label_counts, f1)
        split = f" on the {report.scores.split} split" if report.scores.split else ""
        caption = f"F1{split} of each label against its training examples."
        found["f1_by_frequency.png"] = draw_f1_by_frequency({trainer.args.loss: curve}), caption
    return found
