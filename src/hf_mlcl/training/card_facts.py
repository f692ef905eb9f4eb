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

from hf_mlcl.data.labels import label_counts
from hf_mlcl.evaluation.linear import LinearEvaluationResult
from hf_mlcl.hub.model_card import DataFacts, LossFacts, ModelReport, SplitScores, calibrated, report_of_model
from hf_mlcl.losses import CrossEntropyLoss, loss_kinds, loss_name, loss_terms
from hf_mlcl.metrics import sigmoid
from hf_mlcl.training.batches import evenly
from hf_mlcl.versions import NOT_INSTALLED, library_versions

if TYPE_CHECKING:
    from hf_mlcl.training.trainer import ContrastiveMultiLabelTrainer

logger = logging.getLogger(__name__)

TEMPERATURES = (0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
CONTRAST = (
    "L = mean over anchors i of - sum_j T_ij log p_ij,  p_ij = exp(s_ij) / sum_k exp(s_ik),  s_ij = cos(z_i, z_j) / tau"
)
"""What all contrastive losses share; each has targets T of its own."""
OWN_CLASSIFIER = "The model's own classifier, trained with the encoder."
PROTOCOLS = {
    "study": "Linear heads on the frozen features; of each label the best learning rate and weight decay on the "
    "validation split.",
    "best": "Logistic regression on the frozen features, regularised as suits rows that it has not seen.",
    "direct": OWN_CLASSIFIER,
}
"""How scores came about, by `LinearEvaluationConfig.protocol`."""
ONE_LABEL = "One label per row: the most probable one."
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
    history = trainer.state.log_history
    scores, sentence = _scores(evaluation, trainer)
    runtimes = [entry["train_runtime"] for entry in history if "train_runtime" in entry]
    versions = {name: version.split("+")[0] for name, version in library_versions().items()}  # no local builds
    report = replace(
        report,
        data=_data(dataset, dataset_id, trainer.train_dataset, _label_counts(trainer, report.label_names)),
        losses=[
            LossFacts(loss_name(term.loss), _formula(term.loss), getattr(term.loss, "citation", ""))
            for term in loss_terms(trainer.loss)
        ],
        hyperparameters=_hyperparameters(trainer),
        scores=scores,
        evaluation=sentence,
        metrics=_logged_metrics(history),
        hardware=_hardware(trainer.args),
        seconds={"training": float(runtimes[-1])} if runtimes else {},
        energy=_energy(trainer.args),
        versions={name: version for name, version in versions.items() if version != NOT_INSTALLED},
        prototypes=trainer.uses_prototypes,
    )
    if classifier is None and isinstance(evaluation, LinearEvaluationResult):
        classifier = evaluation.classifier
    if classifier is not None:
        report = calibrated(report, classifier.config)
    if figures:
        report.figures = _figures(trainer, report)
    return replace(report, **{name: value for name, value in facts.items() if value is not None})


def _formula(loss: Any) -> str:
    formula = getattr(loss, "formula", "")  # a loss of the user's own need not have one
    return f"{CONTRAST}\n{formula}" if formula and loss.kind == "contrastive" else formula


def _hyperparameters(trainer: Any) -> dict[str, Any]:
    args, terms = trainer.args, loss_terms(trainer.loss)
    found: dict[str, Any] = {"loss": args.loss}
    for name, _, loss in terms:
        prefix = f"{name} " if len(terms) > 1 else ""
        for parameter in inspect.signature(type(loss)).parameters:
            value = getattr(loss, parameter, None)
            if parameter != "chunk_size" and isinstance(value, int | float):
                found[prefix + parameter] = value
    warm_up = f"{args.warmup_steps:g} {'of the steps' if args.warmup_steps < 1 else 'steps'}"
    rows = args.train_batch_size * args.world_size
    return found | {
        **({"steps": args.max_steps} if args.max_steps > 0 else {"epochs": args.num_train_epochs}),
        "batch size over all devices": rows * args.gradient_accumulation_steps,
        "rows in one contrast": rows,
        "learning rate": args.learning_rate,
        "schedule": f"{args.lr_scheduler_type.value}, warm-up {warm_up}",
        "optimizer": args.optim.value,
        "weight decay": args.weight_decay,
        "gradient clipping": args.max_grad_norm,
        "precision": "bfloat16" if args.bf16 else "float16" if args.fp16 else "float32",
        "seed": args.seed,
    }


def _data(
    given: str | None, hub_id: str | None, dataset: Any, counts: npt.NDArray[np.int64] | None
) -> DataFacts | None:
    from hf_mlcl.data import corpus_facts, list_corpora

    if hub_id is not None and (not isinstance(hub_id, str) or not re.fullmatch(r"[\w.-]+/[\w.-]+", hub_id)):
        raise ValueError(f"The data's id on the Hub must be 'owner/name', got {hub_id!r}. Any other name: dataset=.")
    own = getattr(getattr(dataset, "info", None), "dataset_name", None)  # of datasets from `datasets` alone
    name = given or hub_id or str(own or "").removeprefix("hf_mlcl_")
    if dataset is None and not name:
        return None
    rows = len(dataset) if hasattr(dataset, "__len__") else None
    facts = DataFacts(name, hub_id=hub_id, rows=rows, label_counts=counts)
    known = name.split("/")[-1]
    if known not in list_corpora():
        return facts
    corpus = corpus_facts(known)
    return replace(facts, **{field: getattr(corpus, field) for field in ("summary", "homepage", "license", "citation")})


def _label_counts(trainer: Any, labels: Sequence[str]) -> npt.NDArray[np.int64] | None:
    """How often each label occurs in the training data; None where that cannot be told at once.

    Rows that are no columns and no list may have to be read and decoded: a card is not worth another epoch of that.
    """
    dataset = trainer.train_dataset
    if trainer.counted_labels is not None and trainer.counted_labels[0] is dataset:
        counts: npt.NDArray[np.int64] = trainer.counted_labels[1]
        return counts
    if hasattr(dataset, "with_format") and hasattr(dataset, "column_names"):
        dataset = dataset.with_format(None)  # nothing is decoded without a format
    elif not isinstance(dataset, list | tuple):
        return None
    try:
        return label_counts(dataset, labels)
    except Exception as error:  # the dataset is the user's, and a card is not worth an error at the end of a training
        logger.warning("The training data's labels cannot be counted for the model card: %s", error)
        return None


def _scores(evaluation: Any, trainer: Any) -> tuple[SplitScores | None, str]:
    if isinstance(evaluation, SplitScores):
        return evaluation, ""
    if evaluation is None:
        return trainer.last_scores
    if isinstance(evaluation, LinearEvaluationResult):
        return described_scores(evaluation)
    if not hasattr(evaluation, "predictions") or not hasattr(evaluation, "label_ids"):
        raise ValueError(
            "evaluation must be what trainer.linear_evaluate or trainer.predict returned, or a SplitScores; got "
            f"{type(evaluation).__name__}."
        )
    logits = evaluation.predictions[0] if isinstance(evaluation.predictions, tuple) else evaluation.predictions
    if any(isinstance(term.loss, CrossEntropyLoss) for term in loss_terms(trainer.loss)):
        return None, ONE_LABEL
    return SplitScores("", evaluation.label_ids, sigmoid(logits)), OWN_CLASSIFIER


def described_scores(result: LinearEvaluationResult) -> tuple[SplitScores | None, str]:
    """`scores_of` a linear evaluation and how they came about; no scores where rows have one label each."""
    if result.config.single_label:  # a card has scores at thresholds
        return None, f"{PROTOCOLS[result.config.protocol]} {ONE_LABEL}"
    return scores_of(result), PROTOCOLS[result.config.protocol]


def scores_of(result: LinearEvaluationResult) -> SplitScores:
    """What a linear evaluation predicted of the test split, or of validation where there was none."""
    if result.test_labels is None or result.test_probabilities is None:
        return SplitScores(
            "validation", result.validation_labels, result.validation_probabilities, result.config.absent
        )
    return SplitScores("test", result.test_labels, result.test_probabilities, result.config.absent)


def _logged_metrics(history: Iterable[dict[str, Any]]) -> dict[str, float]:
    """The last evaluation while training."""
    evaluations = [{k: v for k, v in entry.items() if k.startswith("eval_")} for entry in history]
    last: dict[str, Any] = next((entry for entry in reversed(evaluations) if entry), {})
    return {k[5:]: float(v) for k, v in last.items() if not k.endswith(("runtime", "per_second"))}


def _hardware(args: Any) -> str:
    if args.device.type == "cuda":
        return f"{args.world_size} x {torch.cuda.get_device_name(args.device)}"
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = re.findall(r"^model name\s*: (.*)$", info.read_text(), flags=re.MULTILINE)
        model = names[0].strip() if names else model
    processes = f", {args.world_size} processes" if args.world_size > 1 else ""
    return f"{model}, {os.cpu_count()} cores{processes}, no GPU"


def _energy(args: Any) -> dict[str, float]:
    """From the file that codecarbon leaves behind (``report_to="codecarbon"``)."""
    path = Path(args.output_dir) / "emissions.csv"
    if "codecarbon" not in args.report_to or not path.is_file():  # of an earlier training, if this one did not count
        return {}
    with path.open(newline="") as file:
        last: dict[str, str] = ([{}, *csv.DictReader(file)])[-1]
    names = {"energy_consumed": "energy (kWh)", "emissions": "emissions (kg CO2)"}
    return {title: float(last[key]) for key, title in names.items() if last.get(key)}


def _figures(trainer: Any, report: ModelReport) -> dict[str, Any]:
    from hf_mlcl.evaluation import FrequencyCurve, prototype_similarities
    from hf_mlcl.evaluation.figures import draw_f1_by_frequency, draw_similarities

    found = _figures_of_rows(trainer, report)
    if report.prototypes and len(report.label_names) <= MOST_LABELS_IN_A_MATRIX:
        similarity = prototype_similarities(trainer.model.prototypes.weight.detach().float().cpu())
        picture = draw_similarities(similarity, report.label_names)
        found["prototypes.png"] = picture, "How similar the labels' prototypes are."
    if report.scores is not None and report.data is not None and report.data.label_counts is not None:
        f1 = report.scores.counts(0.5 if report.thresholds is None else report.thresholds).f1()
        curve = FrequencyCurve(list(report.label_names), report.data.label_counts, f1)
        split = f" on the {report.scores.split} split" if report.scores.split else ""
        caption = f"F1{split} of each label against its training examples."
        found["f1_by_frequency.png"] = draw_f1_by_frequency({trainer.args.loss: curve}), caption
    return found


def _figures_of_rows(trainer: Any, report: ModelReport) -> dict[str, Any]:
    """A map of validation or training rows, and PRR among them where the loss is contrastive."""
    from hf_mlcl.evaluation import project_2d, prr_by_temperature
    from hf_mlcl.evaluation.figures import draw_map, draw_prr

    which = "validation" if trainer.eval_dataset is not None else "training"
    dataset = trainer.eval_dataset if trainer.eval_dataset is not None else trainer.train_dataset
    dataset = next(iter(dataset.values())) if isinstance(dataset, dict) else dataset
    if not hasattr(dataset, "__len__"):
        return {}
    features, labels = trainer.features_and_labels(evenly(dataset, ROWS_IN_FIGURES))
    if len(labels) != len(features) or len(features) <= 2:
        return {}
    caption = f"{len(features):,} {which} examples, their features by PCA. Of several labels the rarest shows."
    found = {"space.png": (draw_map(project_2d(features), labels, report.label_names), caption)}
    if "contrastive" in loss_kinds(trainer.loss):
        prototypes = trainer.model.prototypes.weight.detach().float().cpu() if report.prototypes else None
        weights = next(trainer.model.projection.parameters())
        with torch.no_grad():
            embeddings = trainer.model.projection(torch.from_numpy(features).to(weights)).float().cpu()
        ratios = prr_by_temperature(embeddings, labels, TEMPERATURES, prototypes)
        caption = (
            "Positive Regularisation Ratio: positive pairs that a contrastive loss without the regulariser would push "
            f"apart, among {which} examples."
        )
        if np.isfinite(ratios).all():
            found["prr.png"] = draw_prr(TEMPERATURES, {trainer.args.loss: ratios}, paper=False), caption
    return found
