"""From a trained encoder to a classifier and its scores: as the study does, or as serves a user best."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hf_mlcl.evaluation import linear_evaluate, space_quality, tune_thresholds
from hf_mlcl.experiments.arguments import ExperimentArguments
from hf_mlcl.experiments.checking import evaluates_linearly, linear_config
from hf_mlcl.experiments.inputs import Inputs
from hf_mlcl.experiments.stages import Stage, Stages
from hf_mlcl.metrics import (
    DecisionRule,
    compute_single_label_metrics,
    decision_metrics,
    f1,
    multilabel_metrics,
    sigmoid,
)
from hf_mlcl.models import MLCLForImageClassification, MLCLForSequenceClassification
from hf_mlcl.training import ContrastiveMultiLabelTrainer
from hf_mlcl.training.rows import label_counts

Array = npt.NDArray[np.float32]
FeaturesAndLabels = tuple[Array, Array]

UNIFORMITY_ROWS = 10_000
"""Rows that uniformity is measured on: its cost grows with their square."""


@dataclass(frozen=True)
class Evaluated:
    """A classifier and what is known of it.

    Attributes:
        metrics: As `ExperimentResult` has them.
        per_label: The same.
        classifier: Backbone and heads.
        test: Labels and decisions of the test rows.
        probabilities: Of the test rows.
    """

    metrics: dict[str, float]
    per_label: list[dict[str, Any]]
    classifier: Any
    test: tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]
    probabilities: Array


def evaluate_study(trainer: ContrastiveMultiLabelTrainer, inputs: Inputs, experiment: ExperimentArguments) -> Evaluated:
    """The study's evaluation for the kind of loss, from features that are computed once; the same on every rank."""
    model = trainer.model
    single = experiment.single_label
    linear = evaluates_linearly(experiment, trainer.args.loss)
    held_out = {split: trainer.features_and_labels(inputs.data[split]) for split in ("validation", "test")}
    metrics: dict[str, float] = {}
    if model.classifier is not None:
        weight, bias = model.classifier.weight.detach()[None].cpu(), model.classifier.bias.detach()[None].cpu()
        probabilities = {}
        for split, (features, _) in held_out.items():
            logits = _logits(features, weight[0], bias[0])
            probabilities[split] = torch.from_numpy(logits).softmax(dim=1).numpy() if single else sigmoid(logits)
        metrics |= _scores("direct_" if linear else "", probabilities, held_out, single)
    if linear:
        passes, train_labels = _training_passes(trainer, inputs, experiment.augmented_passes)
        result = linear_evaluate(
            passes,
            train_labels,
            *held_out["validation"],
            config=linear_config(experiment, trainer.args.seed),
            device=trainer.args.device,
            progress=not trainer.args.disable_tqdm and trainer.is_world_process_zero(),
        )
        weight, bias = result.weight, result.bias
        probabilities = {split: result.predict_proba(features) for split, (features, _) in held_out.items()}
        metrics |= _scores("", probabilities, held_out, single)
    thresholds = None
    if not single and experiment.thresholds != "half":
        truth = held_out["validation"][1]
        thresholds = tune_thresholds(truth, probabilities["validation"], objective=experiment.thresholds)
    classifier = make_classifier(model, inputs, weight, bias, thresholds, single, sigmoids=linear)
    return _evaluated(inputs, classifier, metrics, held_out["test"], probabilities["test"], thresholds, single)


def evaluate_stages(
    trainer: ContrastiveMultiLabelTrainer,
    inputs: Inputs,
    experiment: ExperimentArguments,
    stages: Stages,
    frozen: tuple[Stage, Array],
) -> Evaluated:
    """The best stage's scores, beside those of the frozen encoder.

    Args:
        trainer: Its model gets the backbone of the best stage.
        inputs: The data.
        experiment: The settings.
        stages: After training.
        frozen: Stage 0, and its probabilities of the test rows.
    """
    best = stages.restore_best()
    single = experiment.single_label
    test = trainer.features_and_labels(inputs.data["test"])
    truth = {"validation": (test[0][:0], stages.validation_labels), "test": test}
    metrics: dict[str, float] = {}
    probabilities = best.probabilities(test[0])
    for prefix, stage, found in (("frozen_", frozen[0], frozen[1]), ("", best, probabilities)):
        metrics |= _scores(prefix, {"validation": stage.validation_probabilities, "test": found}, truth, single)
        if stage.thresholds is not None and prefix:
            scores = decision_metrics(test[1], stage.thresholds.rule.decide(found))
            metrics |= {f"{prefix}tuned_test_{name}": float(value) for name, value in scores.items()}
    thresholds = None if best.thresholds is None else best.thresholds.rule
    classifier = stage_classifier(trainer, inputs, experiment, best)
    return _evaluated(inputs, classifier, metrics, test, probabilities, thresholds, single)


def stage_classifier(
    trainer: ContrastiveMultiLabelTrainer, inputs: Inputs, experiment: ExperimentArguments, stage: Stage
) -> Any:
    """The classifier of a stage whose backbone the model has."""
    thresholds = None if stage.thresholds is None else stage.thresholds.rule
    heads = stage.heads
    return make_classifier(
        trainer.model, inputs, heads.weight[None], heads.bias[None], thresholds, experiment.single_label, sigmoids=True
    )


def make_classifier(
    model: Any,
    inputs: Inputs,
    weight: Tensor,
    bias: Tensor,
    thresholds: DecisionRule | None,
    single_label: bool,
    sigmoids: bool,
) -> Any:
    """A classifier that decides as its scores were computed.

    Args:
        model: The encoder.
        inputs: Which kind it reads.
        weight: Of the heads (heads, labels, features).
        bias: (heads, labels).
        thresholds: 0.5 if None.
        single_label: Whether the most probable label alone counts.
        sigmoids: Whether probabilities are sigmoids, which a pipeline shall apply, or a softmax.
    """
    kind = MLCLForImageClassification if inputs.kind == "image" else MLCLForSequenceClassification
    classifier = kind.from_encoder(model, weight, bias)
    if single_label and sigmoids:
        classifier.config.single_label = True
    elif single_label:
        classifier.config.problem_type = "single_label_classification"
    elif thresholds is not None:
        classifier.calibrate(thresholds)
    return classifier


def _evaluated(
    inputs: Inputs,
    classifier: Any,
    metrics: dict[str, float],
    test: FeaturesAndLabels,
    probabilities: Array,
    thresholds: DecisionRule | None,
    single_label: bool,
) -> Evaluated:
    """Add what both ways of evaluation tell of the test rows."""
    features, labels = test
    metrics |= dataclasses.asdict(space_quality(features, labels, max_rows=UNIFORMITY_ROWS))
    if thresholds is not None:
        scores = decision_metrics(labels, thresholds.decide(probabilities))
        metrics |= {f"tuned_test_{name}": float(value) for name, value in scores.items()}
    decisions = DecisionRule(single_label=single_label).decide(probabilities)
    counts = label_counts(inputs.data["train"], labels.shape[1])
    per_label = [
        {"label": name, "train_rows": int(count), "f1": float(score)}
        for name, count, score in zip(classifier.config.label_names, counts, f1(labels, decisions), strict=True)
    ]
    return Evaluated(metrics, per_label, classifier, (labels, decisions), probabilities)


def _logits(features: Array, weight: Tensor, bias: Tensor) -> Array:
    result: Array = (torch.from_numpy(features) @ weight.float().T + bias.float()).numpy()
    return result


def _scores(
    prefix: str, probabilities: Mapping[str, Array], truth: Mapping[str, FeaturesAndLabels], single_label: bool
) -> dict[str, float]:
    """Metrics of each split."""
    metrics: dict[str, float] = {}
    for split, values in probabilities.items():
        labels = truth[split][1]
        if single_label:
            found = compute_single_label_metrics(SimpleNamespace(predictions=values, label_ids=labels))
            found["accuracy"] = found["subset_accuracy"]
        else:
            found = multilabel_metrics(labels, values)
        metrics |= {f"{prefix}{split}_{name}": float(value) for name, value in found.items()}
    return metrics


def _training_passes(
    trainer: ContrastiveMultiLabelTrainer, inputs: Inputs, augmented_passes: int
) -> tuple[list[Array], Array]:
    """Training features that the heads learn from: of the plain rows, or of several augmented passes over them."""
    if inputs.kind == "text" or augmented_passes == 0:
        features, labels = trainer.features_and_labels(inputs.data["train"])
        return [features], labels
    numbers = range(1, augmented_passes + 1)
    passes = [trainer.features_and_labels(inputs.data["train"], number) for number in numbers]
    return [features for features, _ in passes], passes[0][1]
