"""The model card: README.md with the Hub's metadata, pictures beside it, and results in the Hub's format."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
from huggingface_hub import EvalResultEntry, ModelCard, ModelCardData, eval_result_entries_to_yaml
from huggingface_hub.utils import yaml_dump  # type: ignore[attr-defined]

from hf_mlcl.files import staged
from hf_mlcl.hub.encoder import PROTOTYPES_FILE
from hf_mlcl.hub.facts import DataFacts, ModelReport

logger = logging.getLogger(__name__)

TEMPLATE = Path(__file__).with_name("model_card_template.md")
METRICS = {"micro_f1": "micro-F1", "macro_f1": "macro-F1", "mAP": "mAP", "hamming_loss": "Hamming loss"}
HUB_METRICS = ["f1", "mean_average_precision", "hamming_loss"]
FEW_EXAMPLES = 10
NO_REPOSITORY_YET = "YOUR-NAME/YOUR-MODEL"
"""Stands in the code on a card until the model is pushed."""

Table = tuple[list[str], list[list[str]]]
"""Header and rows."""


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
        repo_id: The repository it will be pushed to, for the code on the card. If it is not given, `push_folder` puts
            it in.
        name: Of the model; the repository's or the folder's if not given.

    Returns:
        The path of the README.

    Examples:
        >>> import tempfile
        >>> from hf_mlcl import MLCLModel
        >>> from hf_mlcl.hub import report_of_model
        >>> folder = tempfile.mkdtemp()
        >>> model = MLCLModel.from_features(8, ["sport", "music"])
        >>> model.save_pretrained(folder)
        >>> card = write_model_card(folder, report_of_model(model), name="example").read_text()
        >>> [line for line in card.splitlines() if line.startswith("# ")]
        ['# example']
    """
    root = Path(folder)
    if not (root / "config.json").is_file() and not list(root.glob("*.onnx")):
        raise ValueError(f"folder={os.fspath(folder)!r} holds no model: there is no config.json in it.")
    title = name or report.name or (repo_id or root.resolve().name).split("/")[-1]
    card = _card(root, report, title, repo_id or NO_REPOSITORY_YET)
    earlier = _files_of_earlier_card(root)
    with staged(root) as stage:
        (stage / "figures").mkdir()
        for file, (figure, _) in report.figures.items():
            figure.savefig(stage / "figures" / file, dpi=120)
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


def _files_of_earlier_card(root: Path) -> set[Path]:
    """Results, and pictures that a card in the folder shows: what would contradict a new card if it stayed."""
    card = root / "README.md"
    shown = re.findall(r"\]\((figures/[^/)]+\.png)\)", card.read_text(encoding="utf-8")) if card.is_file() else []
    results = [path.relative_to(root) for path in root.glob(".eval_results/*.yaml")]
    return {*map(Path, shown), *results}


def _card(root: Path, report: ModelReport, title: str, model_id: str) -> str:
    """The card's text: metadata and the template, filled in."""
    contents, data = _look_into(root, report.modality), report.data
    tags = ["multi-label", "contrastive-learning", "hf-mlcl", *(loss.name for loss in report.losses), *report.tags]
    metadata = ModelCardData(
        base_model=report.base_model,
        datasets=[data.hub_id] if data is not None and data.hub_id else None,
        language=list(report.language) or None,
        library_name=contents.library,
        license=report.license,
        metrics=HUB_METRICS if report.scores is not None or set(report.metrics) & set(METRICS) else None,
        pipeline_tag=contents.task,
        tags=tags,
    )
    counts = None if data is None else data.label_counts
    card: ModelCard = ModelCard.from_template(  # type: ignore[no-untyped-call]
        metadata,
        str(TEMPLATE),
        report=report,
        data=data,
        title=title,
        model_id=model_id,
        **contents._asdict(),
        prototypes_file=PROTOTYPES_FILE,
        plain=_plain,
        data_link=None if data is None else _data_link(data),
        score_table=_score_table(report),
        has_groups=counts is not None,
        label_table=_label_table(report),
        rare_labels=0 if counts is None else int((counts < FEW_EXAMPLES).sum()),
        hyperparameters=[[_plain(name), _plain(str(value))] for name, value in report.hyperparameters.items()],
        training_facts={
            "Hardware": report.hardware,
            **{f"Time of {what}": _duration(value) for what, value in report.seconds.items()},
            **{what[:1].upper() + what[1:]: f"{value:.3g}" for what, value in report.energy.items()},
            "Versions": ", ".join(f"{name} {version}" for name, version in report.versions.items()),
        },
    )
    return re.sub(r"\s*\n\s*\n", "\n\n", card.content).strip() + "\n"


class _Contents(NamedTuple):
    """What a model's folder holds."""

    kind: str  # "encoder" and "classifier" load with this package, "plain ..." without; "onnx" is a graph alone
    library: str  # which one loads it, as the Hub spells it
    task: str | None  # the Hub's name of what it is for
    files: frozenset[str]
    graph: str | None
    pooling: str  # how a text encoder makes one vector of its tokens


def _look_into(root: Path, modality: str) -> _Contents:
    """Find out what kind of model a folder holds."""
    config, sentence = (
        json.loads(path.read_text()) if path.is_file() else {}
        for path in (root / "config.json", root / "1_Pooling" / "config.json")
    )
    files = frozenset(item.name for item in root.iterdir())
    graph = min((name for name in files if name.endswith(".onnx")), default=None)
    if not config:
        return _Contents("onnx", "onnx", None, files, graph, "")
    is_timm = "architecture" in config  # timm's own layout
    architecture = (config.get("architectures") or [""])[0]
    classifies = bool(config.get("num_classes")) if is_timm else architecture.endswith("Classification")
    kind, library = "classifier" if classifies else "encoder", "timm" if is_timm else "transformers"
    what = "image" if modality == "image" else "text" if classifies else ""
    task = f"{what}-{'classification' if classifies else 'feature-extraction'}".strip("-")
    if config.get("model_type") != "mlcl":
        kind = f"plain {kind}"
        if "modules.json" in files:
            library, task = "sentence-transformers", "sentence-similarity"
    pooling = "mean" if sentence.get("pooling_mode_mean_tokens") else str(config.get("pooling", "first"))
    return _Contents(kind, library, task, files, graph, pooling)


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
        rows = [[_plain(METRICS.get(name, name)), f"{value:.4f}"] for name, value in report.metrics.items()]
        return ["", "value"], rows
    groups = {} if report.data is None else report.data.groups()
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
    columns: dict[str, Sequence[str]] = {"label": [_plain(name) or " " for name in report.label_names]}
    counts = None if report.data is None else report.data.label_counts
    if counts is not None:
        columns["training examples"] = [f"{count:,}" for count in counts.tolist()]
    numbers: dict[str, Any] = {} if report.thresholds is None else {"threshold": report.thresholds}
    if report.scores is not None:
        found = report.scores.counts(report.decided_at)
        numbers |= {"precision": found.precision(), "recall": found.recall(), "F1": found.f1()}
        numbers["average precision"] = report.scores.average_precision()
    columns |= {title: [f"{value:.3f}" for value in values] for title, values in numbers.items()}
    order = range(len(report.label_names)) if counts is None else np.argsort(-counts, kind="stable").tolist()
    return list(columns), [[values[i] for values in columns.values()] for i in order]


def _data_link(data: DataFacts) -> str:
    name = _plain(data.name)
    if not name:
        return "data without a name"
    if data.hub_id:
        return f"[{name}](https://huggingface.co/datasets/{quote(data.hub_id)})"
    return f"[{name}](<{data.homepage}>)" if data.homepage else name


def _plain(text: str) -> str:
    r"""A name as itself: names of files, labels and corpora may hold anything, and none of it is markup.

    An underscore within a word marks nothing and stays, so that names can be read in the file as well.

    Examples:
        >>> print(_plain("toy_text"), _plain("<b>a|b</b>"))
        toy_text \<b\>a\|b\</b\>
    """
    escaped = re.sub(r"[\\|*`<>\[\]&~$!#]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", " ".join(text.split()))
    return re.sub(r"^(\d*)([-+.)])(?=\s|$)", r"\1\\\2", escaped)  # what begins a line may make a list of it


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {left} s" if minutes else f"{seconds:.1f} s"
