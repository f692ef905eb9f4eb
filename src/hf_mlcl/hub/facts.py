"""What is known of a trained model: the facts that its card tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from hf_mlcl.metrics import DecisionRule, LabelCounts, average_precision, decide, frequency_groups, multilabel_metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class SplitScores:
    """Truth and probabilities of one split: everything that scores are computed from.

    Attributes:
        split: Its name, such as ``"test"``; empty where it is not known.
        labels: Multi-hot truth (rows, labels).
        probabilities: Of the classifier, same shape.

    Examples:
        >>> scores = SplitScores("test", np.array([[1, 0], [1, 1]]), np.array([[0.9, 0.2], [0.8, 0.3]]))
        >>> scores.metrics(0.5)["macro_f1"], scores.metrics([0.5, 0.25])["macro_f1"]
        (0.5, 1.0)
    """

    split: str
    labels: npt.NDArray[Any]
    probabilities: npt.NDArray[Any]

    def metrics(self, thresholds: float | Sequence[float]) -> dict[str, float]:
        """The study's metrics over all labels."""
        return multilabel_metrics(self.labels, self.probabilities, thresholds)

    def counts(self, thresholds: float | Sequence[float]) -> LabelCounts:
        """Hits and misses of each label."""
        return LabelCounts.of(self.labels, decide(self.probabilities, thresholds))

    def average_precision(self) -> npt.NDArray[np.float64]:
        """Of each label."""
        return average_precision(self.labels, self.probabilities)


@dataclass(frozen=True)
class DataFacts:
    """The data that a model learned from.

    Attributes:
        name: What people call it; may be empty.
        hub_id: Its repository on the Hub, ``"owner/name"``, where it has one.
        summary: A sentence or two.
        homepage: Where its makers describe it.
        license: Under which terms it is used.
        citation: BibTeX.
        rows: Training examples.
        label_counts: How often each label occurs among them.
    """

    name: str
    hub_id: str | None = None
    summary: str = ""
    homepage: str = ""
    license: str = ""
    citation: str = ""
    rows: int | None = None
    label_counts: npt.NDArray[np.int64] | None = None

    def groups(self) -> dict[str, npt.NDArray[np.int64]]:
        """Head, medium and tail labels, as far as there are some; empty where the counts are not known."""
        found = {} if self.label_counts is None else frequency_groups(self.label_counts)
        return {name: ids for name, ids in found.items() if len(ids)}


@dataclass(frozen=True)
class LossFacts:
    """A loss, and where it comes from."""

    name: str
    formula: str = ""
    citation: str = ""


@dataclass
class ModelReport:
    """All facts of a card. Those that are not known are left out of it.

    Attributes:
        label_names: In the order of their ids.
        modality: What the model reads.
        backbone: The architecture in words.
        base_model: The backbone's repository on the Hub, where it has one.
        name: Of the model; the folder's if empty.
        data: What it learned from.
        losses: What it was trained with.
        hyperparameters: Of training, by name.
        evaluation: How the classifier came about, in a sentence.
        scores: Truth and probabilities on a held-out split.
        metrics: Scores by name, where only they are known.
        thresholds: One per label, where they were tuned.
        figures: File names, each with a figure and its caption.
        hardware: What it was trained on.
        seconds: How long things took.
        energy: Kilowatt-hours and kilograms of CO2, where codecarbon has tracked them.
        versions: Of the libraries.
        license: Of the model, as the Hub spells it.
        language: Codes of languages.
        tags: Further ones.
        prototypes: Whether a loss has trained them.
    """

    label_names: Sequence[str]
    modality: Literal["text", "image", "features"]
    backbone: str = ""
    base_model: str | None = None
    name: str = ""
    data: DataFacts | None = None
    losses: Sequence[LossFacts] = ()
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    evaluation: str = ""
    scores: SplitScores | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    thresholds: Sequence[float] | None = None
    figures: Mapping[str, tuple[Figure, str]] = field(default_factory=dict)
    hardware: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    energy: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    license: str | None = None
    language: Sequence[str] = ()
    tags: Sequence[str] = ()
    prototypes: bool = True

    @property
    def decided_at(self) -> float | Sequence[float]:
        """The thresholds that the scores on the card are those of."""
        return 0.5 if self.thresholds is None else self.thresholds


def report_of_model(model: Any) -> ModelReport:
    """What a model, an encoder or a classifier, tells of itself.

    Examples:
        >>> from hf_mlcl import MLCLModel
        >>> report_of_model(MLCLModel.from_features(8, ["a", "b"])).label_names
        ['a', 'b']
    """
    config, backbone = model.config, model.config.backbone_config
    modalities = {"input_ids": "text", "pixel_values": "image", "feature_values": "features"}
    parameters = sum(parameter.numel() for parameter in model.backbone.parameters())
    architecture = backbone.architecture if backbone.model_type == "timm_wrapper" else type(model.backbone).__name__
    return ModelReport(
        label_names=config.label_names,
        modality=modalities[model.main_input_name],  # type: ignore[arg-type]
        backbone=f"{architecture}, {parameters:,} parameters",
        base_model=hub_id(backbone.name_or_path),
        thresholds=config.thresholds,
    )


def calibrated(report: ModelReport, config: Any) -> ModelReport:
    """The report of a classifier with the thresholds and the temperature that its configuration now has.

    Args:
        report: Its scores hold the probabilities of the linear evaluation, at temperature 1.
        config: Of the classifier.
    """
    scores = report.scores
    if scores is not None:
        scores = replace(scores, probabilities=DecisionRule.of(config).scaled(scores.probabilities))
    return replace(report, scores=scores, thresholds=config.thresholds)


def hub_id(name: str) -> str | None:
    """The name of a repository on the Hub as it is; None for any other name, and for a path on this machine.

    Examples:
        >>> hub_id("roberta-base"), hub_id("my lab/news"), hub_id("./news")
        ('roberta-base', None, None)
    """
    try:
        validate_repo_id(name)
    except HFValidationError:
        return None
    return None if not name or name.startswith(".") or Path(name).exists() else name
