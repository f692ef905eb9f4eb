"""The model card: the facts, and README.md with the Hub's metadata, pictures beside it, results in the Hub's format."""

from __future__ import annotations

import io
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from huggingface_hub import EvalResult, EvalResultEntry, ModelCard, ModelCardData, eval_result_entries_to_yaml
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id, yaml_dump  # type: ignore[attr-defined]

from hf_mlcl.colours import DPI
from hf_mlcl.files import staged
from hf_mlcl.metrics import DecisionRule, LabelCounts, average_precision, decide, frequency_groups, multilabel_metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

TEMPLATE = Path(__file__).with_name("model_card_template.md")
METRICS = {"micro_f1": "micro-F1", "macro_f1": "macro-F1", "mAP": "mAP", "hamming_loss": "Hamming loss"}
METRIC_TYPES = {"micro_f1": "f1", "macro_f1": "f1", "mAP": "mean_average_precision", "hamming_loss": "hamming_loss"}
FORMAT_TAGS = ("sentence-transformers", "custom_code", "onnx")
"""Tags that say how a model is saved."""
USE, BY_PROTOTYPES = "## How to use it\n", "### Labels by similarity to prototypes"
NO_REPOSITORY_YET = "YOUR-NAME/YOUR-MODEL"
"""Stands in the code on a card until the model is pushed."""

Table = tuple[list[str], list[list[str]]]  # header and rows


@dataclass(frozen=True)
class SplitScores:
    """Name of a split, empty where it is not known, with its multi-hot truth and the probabilities of a classifier.

    A label that no row carries counts `absent` in mAP; NaN leaves it out.

    Examples:
        >>> scores = SplitScores("test", np.array([[1, 0], [1, 1]]), np.array([[0.9, 0.2], [0.8, 0.3]]))
        >>> scores.metrics(0.5)["macro_f1"], scores.metrics([0.5, 0.25])["macro_f1"]
        (0.5, 1.0)
    """

    split: str
    labels: npt.NDArray[Any]
    probabilities: npt.NDArray[Any]
    absent: float = 0.0

    def metrics(self, thresholds: float | Sequence[float]) -> dict[str, float]:
        """The study's metrics over all labels."""
        return multilabel_metrics(self.labels, self.probabilities, thresholds, absent=self.absent)

    def counts(self, thresholds: float | Sequence[float]) -> LabelCounts:
        """Hits and misses of each label."""
        return LabelCounts.of(self.labels, decide(self.probabilities, thresholds))


@dataclass(frozen=True)
class DataFacts:
    """The data that a model learned from: what people call it (may be empty), its id on the Hub, training rows."""

    name: str
    hub_id: str | None = None
    summary: str = ""
    homepage: str = ""
    license: str = ""
    citation: str = ""
    rows: int | None = None
    label_counts: npt.NDArray[np.int64] | None = None


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
        backbone: The architecture in words.
        base_model: The backbone's repository on the Hub, where it has one.
        pooling: How a text or an image becomes one vector, as `MLCLConfig` says; likewise `normalize_features`.
        single_label: Whether a row is given exactly one label.
        name: Of the model; the folder's if empty.
        evaluation: How the classifier came about, in a sentence.
        metrics: Scores by name, where only they are known.
        figures: File names, each with a figure (or a PNG) and its caption.
        energy: Kilowatt-hours and kilograms of CO2, where codecarbon has tracked them.
        prototypes: Whether a loss has trained them.
        page: Where the page that explains the model lies, from the card's folder; it is not pushed with the model.
        towers: Of CLIP, SigLIP and the like: those that are asked, ``"text"``, ``"image"`` or both.
    """

    label_names: Sequence[str]
    modality: Literal["text", "image", "features"]
    backbone: str = ""
    base_model: str | None = None
    pooling: str = "first"
    normalize_features: bool = False
    single_label: bool = False
    name: str = ""
    data: DataFacts | None = None
    losses: Sequence[LossFacts] = ()
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    evaluation: str = ""
    scores: SplitScores | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    thresholds: Sequence[float] | None = None
    figures: Mapping[str, tuple[Figure | bytes, str]] = field(default_factory=dict)
    hardware: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    energy: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    license: str | None = None
    language: Sequence[str] = ()
    tags: Sequence[str] = ()
    prototypes: bool = True
    page: str | None = None
    towers: Sequence[str] = ()

    @property
    def decided_at(self) -> float | Sequence[float]:
        """The thresholds that the scores on the card are those of."""
        return 0.5 if self.thresholds is None else self.thresholds


def report_of_model(model: Any) -> ModelReport:
    """What a model, an encoder or a classifier, tells of itself."""
    config, backbone = model.config, model.config.backbone_config
    modalities = {"input_ids": "text", "pixel_values": "image", "feature_values": "features"}
    parameters = sum(parameter.numel() for parameter in model.backbone.parameters())
    architecture = backbone.architecture if backbone.model_type == "timm_wrapper" else type(model.backbone).__name__
    return ModelReport(
        label_names=config.label_names,
        modality=modalities[model.main_input_name],  # type: ignore[arg-type]
        backbone=f"{architecture}, {parameters:,} parameters",
        base_model=hub_id(backbone.name_or_path),
        pooling=config.pooling,
        normalize_features=config.normalize_features,
        single_label=DecisionRule.of(config).single_label,
        thresholds=config.thresholds,
        towers=config.modalities or (),
    )


def calibrated(report: ModelReport, config: Any) -> ModelReport:
    """The report of a classifier, whose scores are at temperature 1, with what its configuration now says."""
    scores = report.scores
    if scores is not None:
        scores = replace(scores, probabilities=DecisionRule.of(config).scaled(scores.probabilities))
    single = DecisionRule.of(config).single_label
    return replace(report, scores=scores, thresholds=config.thresholds, single_label=single)


def hub_id(name: str) -> str | None:
    """The name of a repository on the Hub as it is; None for any other name, and for a path on this machine."""
    try:
        validate_repo_id(name)
    except HFValidationError:
        return None
    return None if not name or name.startswith(".") or Path(name).exists() else name


def write_model_card(
    folder: str | os.PathLike[str], report: ModelReport, *, repo_id: str | None = None, name: str | None = None
) -> Path:
    """Write a card for the model in a folder: ``README.md``, ``figures/*.png`` and ``.eval_results/*.yaml``.

    What the card shows of using the model depends on what the folder holds: one of ours, a plain encoder or classifier,
    an ONNX graph. Results are written where the data has an id on the Hub, since that is what they are listed under.
    Results and pictures of an earlier card that this one does not have are removed.

    Args:
        folder: With the model in it.
        report: The facts: from `training_report`, or `report_of_model` where no more is known.
        repo_id: The repository it will be pushed to, for the code on the card; `push_folder` adds it if not given.
        name: Of the model; the repository's or the folder's if not given.

    Examples:
        >>> import tempfile
        >>> from hf_mlcl import MLCLModel
        >>> folder, model = tempfile.mkdtemp(), MLCLModel.from_features(8, ["sport", "music"])
        >>> model.save_pretrained(folder)
        >>> write_model_card(folder, report_of_model(model), name="example").name
        'README.md'
    """
    root = Path(folder)
    if not (root / "config.json").is_file() and not _graph(root):
        raise ValueError(f"folder={os.fspath(folder)!r} holds no model: there is no config.json in it.")
    title = name or report.name or (repo_id or root.resolve().name).split("/")[-1]
    card = _card(root, report, title, repo_id or NO_REPOSITORY_YET)
    earlier = _files_of_earlier_card(root)
    with staged(root) as stage:
        (stage / "figures").mkdir()
        for file, (figure, _) in report.figures.items():
            (stage / "figures" / file).write_bytes(drawn(figure))
        if (data := report.data) is not None and data.hub_id and report.scores is not None:
            slug = re.sub(r"[^a-z0-9]+", "_", data.name.split("/")[-1].lower()).strip("_") or "results"
            (stage / ".eval_results").mkdir()
            (stage / ".eval_results" / f"{slug}.yaml").write_text(yaml_dump(_results(data.hub_id, report)))
        (stage / "README.md").write_text(card, encoding="utf-8")
        written = {path.relative_to(stage) for path in stage.rglob("*")}
    for stale in earlier - written:
        logger.info("Removing %s, which belongs to the earlier card of %s.", stale, root)
        (root / stale).unlink(missing_ok=True)
    return root / "README.md"


def drawn(figure: Figure | bytes) -> bytes:
    """A figure as a PNG file, if it is not one already: to draw one takes a second."""
    if isinstance(figure, bytes):
        return figure
    with io.BytesIO() as file:
        figure.savefig(file, dpi=DPI, format="png")
        return file.getvalue()


def adapt_model_card(content: str, folder: Path, report: ModelReport) -> None:
    """Write a card that was made for another form of the model: its facts, with the lines that use this form."""
    card: Any = ModelCard(content)
    title = next((line[2:] for line in card.text.splitlines() if line.startswith("# ")), folder.name)
    known = replace(report, prototypes=BY_PROTOTYPES in content)
    fresh: Any = ModelCard(_card(folder, known, title, NO_REPOSITORY_YET))
    card.data.library_name, card.data.pipeline_tag = fresh.data.library_name, fresh.data.pipeline_tag
    tags = [tag for tag in card.data.tags or [] if tag not in FORMAT_TAGS]
    card.data.tags = tags + [tag for tag in fresh.data.tags if tag in FORMAT_TAGS]
    sections = [re.split(r"^(?=## )", text, flags=re.MULTILINE) for text in (card.text, fresh.text)]
    new = next(section for section in sections[1] if section.startswith(USE))
    card.text = "".join(new if section.startswith(USE) else section for section in sections[0])
    (folder / "README.md").write_text(card.content.strip() + "\n", encoding="utf-8")


def _graph(root: Path) -> str | None:
    """The ONNX graph in a folder, where libraries look for it or at its top."""
    found = sorted(path.relative_to(root).as_posix() for path in (*root.glob("onnx/*.onnx"), *root.glob("*.onnx")))
    return found[-1] if found else None


def _files_of_earlier_card(root: Path) -> set[Path]:
    """Results, and pictures that a card in the folder shows: what would contradict a new card if it stayed."""
    card = root / "README.md"
    shown = re.findall(r"\]\((figures/[^/)]+\.png)\)", card.read_text(encoding="utf-8")) if card.is_file() else []
    results = [path.relative_to(root) for path in root.glob(".eval_results/*.yaml")]
    return {*map(Path, shown), *results}


def _card(root: Path, report: ModelReport, title: str, model_id: str) -> str:
    """The card's text: metadata and the template, filled in."""
    contents, data = _look_into(root, report), report.data
    tags = ["multi-label", "contrastive-learning", "hf-mlcl", *(loss.name for loss in report.losses), *report.tags]
    results = _model_index(report)
    scored = [name for name in METRICS if report.scores is not None or name in report.metrics]
    metadata = ModelCardData(
        base_model=report.base_model,
        datasets=[data.hub_id] if data is not None and data.hub_id else None,
        language=list(report.language) or None,
        library_name=contents["library_name"],
        license=report.license,
        metrics=list(dict.fromkeys(METRIC_TYPES[name] for name in scored)) or None,
        model_name=title if results else None,
        eval_results=results or None,
        pipeline_tag=contents["pipeline_tag"],
        tags=[*tags, *(tag for tag in FORMAT_TAGS if tag in contents["formats"])],
    )
    card: ModelCard = ModelCard.from_template(
        metadata,
        str(TEMPLATE),
        report=report,
        data=data,
        title=title,
        model_id=model_id,
        **contents,
        score_table=_score_table(report),
        label_table=_label_table(report),
        plain=_plain,
        timedelta=timedelta,
    )
    return re.sub(r"\s*\n\s*\n", "\n\n", card.content).strip() + "\n"


def _look_into(root: Path, report: ModelReport) -> dict[str, Any]:
    """What a folder holds: ``encoder`` and ``classifier`` load with this package, the other kinds without."""
    path, image = root / "config.json", report.modality == "image"
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    files, graph = {item.name for item in root.iterdir()}, _graph(root)
    is_timm = "architecture" in config  # timm's own layout
    architecture = (config.get("architectures") or [""])[0]
    is_native = architecture.endswith("Classification") or (not architecture and "problem_type" in config)
    classifies = bool(config.get("num_classes")) if is_timm else is_native
    kind, library = "classifier" if classifies else "encoder", "timm" if is_timm else "transformers"
    what = "image" if image else "text" if classifies else ""
    task: str | None = f"{what}-{'classification' if classifies else 'feature-extraction'}".strip("-")
    backbone = config.get("backbone_config") or {}
    has_code = config.get("model_type") == "mlcl" and "AutoConfig" in (config.get("auto_map") or {})
    if config.get("model_type") != "mlcl" or has_code:
        kind = f"plain {kind}"
    if "modules.json" in files:
        library, task = "sentence-transformers", "sentence-similarity"
    if graph and not any(name.endswith(".safetensors") for name in files):
        kind, library, task = "onnx", "onnx", task if config else None
    formats = {"sentence-transformers": library == "sentence-transformers", "custom_code": has_code, "onnx": graph}
    timm_too = is_timm or backbone.get("model_type") == "timm_wrapper"
    needs = [library, *(["transformers", "timm"] if timm_too else []), *(["pillow"] if image or report.towers else [])]
    return {
        "kind": kind,
        "library_name": library,
        "pipeline_tag": task,
        "files": files,
        "graph": graph,
        "formats": [name for name, there in formats.items() if there],
        "has_code": has_code,
        "needs": " ".join(dict.fromkeys(needs)),
    }


def _model_index(report: ModelReport) -> list[EvalResult]:
    """The same scores as in ``.eval_results``, where the Hub's pages look for them, whatever the data are called."""
    if report.scores is None or report.modality == "features":
        return []
    name = (report.data.name if report.data is not None else "") or "data without a name"
    values = report.scores.metrics(report.decided_at)
    return [
        EvalResult(
            task_type=f"{report.modality}-classification",
            dataset_type=(report.data.hub_id if report.data is not None else None) or name,
            dataset_name=name,
            dataset_split=report.scores.split or None,
            metric_type=METRIC_TYPES[metric],
            metric_name=shown,
            metric_value=round(values[metric], 6),
        )
        for metric, shown in METRICS.items()
    ]


def _results(hub_id: str, report: ModelReport) -> list[dict[str, Any]]:
    """Scores as entries of ``.eval_results``, one per metric, listed under the dataset's id."""
    assert report.scores is not None
    values = report.scores.metrics(report.decided_at)
    split = f"{report.scores.split} split; " if report.scores.split else ""
    notes = split + ("threshold 0.5" if report.thresholds is None else "thresholds tuned on validation")
    day = date.today().isoformat()
    entries = [
        EvalResultEntry(hub_id, name.lower(), value=round(values[name], 6), date=day, notes=notes) for name in METRICS
    ]
    return list(eval_result_entries_to_yaml(entries))


def _score_table(report: ModelReport) -> Table:
    """Scores over all labels and over groups of them; the last logged ones where no others are known."""
    if report.scores is None:
        rows = [[METRICS.get(name, name), f"{value:.4f}"] for name, value in report.metrics.items()]
        return ["", "value"], rows
    counts = None if report.data is None else report.data.label_counts
    groups = {} if counts is None else {name: ids for name, ids in frequency_groups(counts).items() if len(ids)}
    settings: dict[str, float | Sequence[float]] = {"threshold 0.5": 0.5}
    if report.thresholds is not None:
        settings["tuned thresholds"] = report.thresholds
    rows = []
    for title, thresholds in settings.items():
        values, each = report.scores.metrics(thresholds), report.scores.counts(thresholds).f1()
        shown = [*(values[name] for name in METRICS), *(each[ids].mean() for ids in groups.values())]
        rows.append([title, *(f"{value:.4f}" for value in shown)])
    return ["", *METRICS.values(), *(f"{name} F1 ({len(ids)} labels)" for name, ids in groups.items())], rows


def _label_table(report: ModelReport) -> Table:
    """One row per label, the most frequent first where their counts are known."""
    columns: dict[str, Sequence[str]] = {"label": report.label_names}
    counts = None if report.data is None else report.data.label_counts
    if counts is not None:
        columns["training examples"] = [f"{count:,}" for count in counts.tolist()]
    numbers: dict[str, Any] = {} if report.thresholds is None else {"threshold": report.thresholds}
    if report.scores is not None:
        found = report.scores.counts(report.decided_at)
        numbers |= {"precision": found.precision(), "recall": found.recall(), "F1": found.f1()}
        shown = report.scores
        numbers["average precision"] = average_precision(shown.labels, shown.probabilities, shown.absent)
    cells = {title: [f"{value:.3f}" for value in values] for title, values in numbers.items()}
    columns |= {title: ["" if cell == "nan" else cell for cell in values] for title, values in cells.items()}
    order = range(len(report.label_names)) if counts is None else np.argsort(-counts, kind="stable").tolist()
    return list(columns), [[values[i] for values in columns.values()] for i in order]


def _plain(text: object) -> str:
    r"""A name as itself: names of files, labels and corpora may hold anything, and none of it is markup.

    An underscore within a word marks nothing and stays, so that names can be read in the file as well.

    Examples:
        >>> print(_plain("toy_text"), _plain("<b>a|b</b>"))
        toy_text \<b\>a\|b\</b\>
    """
    escaped = re.sub(r"[\\|*`<>\[\]&~$!#]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", " ".join(str(text).split()))
    return re.sub(r"^(\d*)([-+.)])(?=\s|$)", r"\1\\\2", escaped)  # what begins a line may make a list of it
