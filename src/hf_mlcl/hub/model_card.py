"""The model card: README.md with the Hub's metadata, pictures beside it, and results in the Hub's format."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from huggingface_hub import EvalResultEntry, ModelCardData, eval_result_entries_to_yaml
from huggingface_hub.utils import yaml_dump  # type: ignore[attr-defined]

from hf_mlcl.files import staged
from hf_mlcl.hub.report import LossFacts, ModelReport
from hf_mlcl.hub.uses import Contents, look_into, uses

logger = logging.getLogger(__name__)

METRICS = {"micro_f1": "micro-F1", "macro_f1": "macro-F1", "mAP": "mAP", "hamming_loss": "Hamming loss"}
HUB_METRICS = ["f1", "mean_average_precision", "hamming_loss"]
FOLDED_FROM = 40
"""Longer tables of labels can be unfolded."""

FEW_EXAMPLES = 10

NO_REPOSITORY_YET = "YOUR-NAME/YOUR-MODEL"
"""Stands in the code on a card until the model is pushed."""

CITATION = """@misc{audibert2024multilabel,
    title = {Multi-Label Contrastive Learning: A Comprehensive Study},
    author = {Audibert, Alexandre and Gauffre, Aurélien and Amini, Massih-Reza},
    year = {2024},
    eprint = {2412.00101},
    archivePrefix = {arXiv},
}"""


def write_model_card(
    folder: str | os.PathLike[str], report: ModelReport, *, repo_id: str | None = None, name: str | None = None
) -> Path:
    """Write a card for the model in a folder: ``README.md``, ``figures/*.png`` and ``.eval_results/*.yaml``.

    What the card shows of using the model depends on what the folder holds: one of ours, a plain encoder or classifier,
    an ONNX graph. Results are written where the data has an id on the Hub, since that is what they are listed under.
    What an earlier card had beside it and this one has not, goes: results and the pictures that it showed.

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
    contents = look_into(root, report.modality)
    title = name or report.name or (repo_id or root.resolve().name).split("/")[-1]
    body = "\n\n".join(_body(root, contents, report, title, repo_id or NO_REPOSITORY_YET))
    earlier = _files_of_earlier_card(root)
    with staged(root) as stage:
        (stage / "figures").mkdir()
        for file, (figure, _) in report.figures.items():
            figure.savefig(stage / "figures" / file, dpi=120)
        results = _results(report)
        if results:
            (stage / ".eval_results").mkdir()
            (stage / ".eval_results" / f"{_slug(_data_name(report))}.yaml").write_text(yaml_dump(results))
        text = f"---\n{yaml_dump(_metadata(contents, report))}---\n\n{body}\n"
        (stage / "README.md").write_text(text, encoding="utf-8")
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


# Metadata -------------------------------------------------------------------------------------------------------------


def _metadata(contents: Contents, report: ModelReport) -> dict[str, Any]:
    losses = [loss.name for loss in report.losses]
    tags = ["multi-label", "contrastive-learning", "hf-mlcl", *losses, *report.tags]
    known = report.scores is not None or set(report.metrics) & set(METRICS)
    data = ModelCardData(
        base_model=report.base_model,
        datasets=[report.data.hub_id] if report.data is not None and report.data.hub_id else None,
        language=list(report.language) or None,
        library_name=contents.library,
        license=report.license,
        metrics=HUB_METRICS if known else None,
        pipeline_tag=contents.task,
        tags=list(dict.fromkeys(tags)),
    )
    return dict(data.to_dict())  # type: ignore[no-untyped-call]


def _results(report: ModelReport) -> list[dict[str, Any]]:
    """Scores as entries of ``.eval_results``: one a metric, listed under the dataset's id."""
    if report.data is None or report.data.hub_id is None or report.scores is None:
        return []
    tuned = report.thresholds is not None
    values = report.scores.metrics(0.5 if report.thresholds is None else report.thresholds)
    split = f"{report.scores.split} split; " if report.scores.split else ""
    notes = split + ("thresholds tuned on validation" if tuned else "threshold 0.5")
    entries = [
        EvalResultEntry(
            dataset_id=report.data.hub_id,
            task_id=name.lower(),
            value=round(values[name], 6),
            date=date.today().isoformat(),
            notes=notes,
        )
        for name in METRICS
    ]
    return list(eval_result_entries_to_yaml(entries))


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.split("/")[-1].lower()).strip("_") or "results"


def _data_name(report: ModelReport) -> str:
    return "" if report.data is None else report.data.name


# Sections -------------------------------------------------------------------------------------------------------------


def _body(root: Path, contents: Contents, report: ModelReport, title: str, model_id: str) -> Iterator[str]:
    yield f"# {_plain(title)}"
    yield _summary(contents, report)
    yield "## How to use it"
    yield f"```bash\npip install {_packages(contents, report)}\n```"
    for use in uses(contents, report, model_id, _pooling(root)):
        yield f"### {use.title}\n\n```python\n{use.code.strip()}\n```"
    if report.scores is not None or report.metrics:
        yield "## Scores"
        yield from _scores(report)
    yield f"## Labels\n\n{_labels(report)}"
    if report.data is not None:
        yield f"## Data\n\n{_data(report)}"
    if report.losses or report.hyperparameters:
        yield "## Training"
        yield from _training(report)
    if report.figures:
        yield "## The space"
        for file, (_, caption) in report.figures.items():
            yield f"![{_plain(caption)}](figures/{file})\n\n*{_plain(caption)}*"
    yield "## Limits\n\n" + "\n".join(f"- {limit}" for limit in _limits(contents, report))
    yield f"## Licence\n\n{_license(report)}"
    yield "## Citation"
    for citation in _citations(report):
        yield f"```bibtex\n{citation}\n```"


def _packages(contents: Contents, report: ModelReport) -> str:
    """What has to be installed for the code on the card."""
    if contents.kind == "onnx":
        further = {"text": " transformers", "image": " transformers pillow", "features": ""}[report.modality]
        return f"onnxruntime huggingface_hub{further}"
    return contents.library if contents.kind.startswith("plain") else "hf-mlcl"


def _summary(contents: Contents, report: ModelReport) -> str:
    what = {"text": "texts", "image": "images", "features": "precomputed features"}[report.modality]
    loss = " + ".join(f"`{loss.name}`" for loss in report.losses)
    trained = f", trained with the loss {loss}" if loss else ""
    data = f" on {_data_link(report)}" if report.data is not None else ""
    subject = "A multi-label classifier of" if "classifier" in contents.kind else "An encoder of"
    if contents.kind == "onnx":
        subject = "An ONNX graph of a model that reads"
    labels = len(report.label_names)
    backbone = f" Its backbone: {_plain(report.backbone)}" if report.backbone else ""
    origin = "."
    if report.base_model:
        origin = f", from [{_plain(report.base_model)}](https://huggingface.co/{quote(report.base_model)})."
    alone = "" if contents.kind in ("encoder", "classifier") else "It loads without hf-mlcl."
    return f"{subject} {what} for {labels} labels{trained}{data}.{backbone}{origin if backbone else ''} {alone}".strip()


def _data_link(report: ModelReport) -> str:
    assert report.data is not None
    name = _plain(report.data.name)
    if not report.data.name:
        return "data without a name"
    if report.data.hub_id:
        return f"[{name}](https://huggingface.co/datasets/{quote(report.data.hub_id)})"
    return f"[{name}](<{report.data.homepage}>)" if report.data.homepage else name


def _scores(report: ModelReport) -> Iterator[str]:
    if report.scores is None:
        rows = [[_plain(METRICS.get(name, name)), f"{value:.4f}"] for name, value in report.metrics.items()]
        yield "The last evaluation while training:"
        yield _table(["", "value"], rows)
        return
    scores, groups = report.scores, {} if report.data is None else report.data.groups()
    settings: list[tuple[str, float | Sequence[float]]] = [("threshold 0.5", 0.5)]
    if report.thresholds is not None:
        settings.append(("tuned thresholds", report.thresholds))
    rows = []
    for title, thresholds in settings:
        values = scores.metrics(thresholds)
        each = scores.counts(thresholds).f1()
        parts = [f"{each[ids].mean():.4f}" for ids in groups.values() if len(ids)]
        rows.append([title, *(f"{values[name]:.4f}" for name in METRICS), *parts])
    header = ["", *METRICS.values(), *(f"{name} F1 ({len(ids)} labels)" for name, ids in groups.items() if len(ids))]
    where = f"the {scores.split} split, " if scores.split else ""
    yield f"On {where}{len(scores.labels):,} examples. {report.evaluation}".strip()
    yield _table(header, rows)
    if groups:
        yield "Head, medium and tail are the most frequent third of the labels, the next and the rarest, by macro-F1."


def _labels(report: ModelReport) -> str:
    columns: dict[str, Sequence[Any]] = {"label": [_plain(name) or " " for name in report.label_names]}
    counts = None if report.data is None else report.data.label_counts
    if counts is not None:
        columns["training examples"] = [f"{int(count):,}" for count in counts]
    if report.thresholds is not None:
        columns["threshold"] = [f"{value:.3f}" for value in report.thresholds]
    if report.scores is not None:
        found = report.scores.counts(0.5 if report.thresholds is None else report.thresholds)
        for title, values in {"precision": found.precision(), "recall": found.recall(), "F1": found.f1()}.items():
            columns[title] = [f"{value:.3f}" for value in values]
        columns["average precision"] = [f"{value:.3f}" for value in report.scores.average_precision()]
    order = range(len(report.label_names)) if counts is None else np.argsort(-counts, kind="stable").tolist()
    table = _table(list(columns), [[values[i] for values in columns.values()] for i in order])
    if len(report.label_names) < FOLDED_FROM:
        return table
    return f"<details>\n<summary>{len(report.label_names)} labels</summary>\n\n{table}\n\n</details>"


def _data(report: ModelReport) -> str:
    data = report.data
    assert data is not None
    parts = [f"{_data_link(report)}. {data.summary}".strip()] if data.name else []
    if data.rows is not None:
        per_row = (
            "" if data.label_counts is None else f", {data.label_counts.sum() / max(data.rows, 1):.2f} labels each"
        )
        parts.append(f"{data.rows:,} training examples{per_row}.")
    if data.license:
        parts.append(f"Terms of the data: {data.license}.")
    return " ".join(parts)


def _training(report: ModelReport) -> Iterator[str]:
    for loss in report.losses:
        yield _loss(loss)
    if report.hyperparameters:
        yield _table(
            ["hyperparameter", "value"],
            [[_plain(name), _plain(str(value))] for name, value in report.hyperparameters.items()],
        )
    facts = {
        "Hardware": report.hardware,
        **{f"Time of {what}": _duration(value) for what, value in report.seconds.items()},
        **{what.capitalize(): f"{value:.3g}" for what, value in report.energy.items()},
        "Versions": ", ".join(f"{name} {version}" for name, version in report.versions.items()),
    }
    rows = [f"- {_plain(name)}: {_plain(value)}" for name, value in facts.items() if value]
    if rows:
        yield "\n".join(rows)


def _loss(loss: LossFacts) -> str:
    lines = re.sub(r"[,;]  ", "\n", loss.formula)  # a line each, since pages are narrow
    formula = f"\n\n```text\n{lines}\n```" if loss.formula else ""
    citation = f"\n\n{loss.citation}." if loss.citation else ""
    return f"The loss `{loss.name}`:{formula}{citation}"


def _limits(contents: Contents, report: ModelReport) -> Iterator[str]:
    yield f"It knows its {len(report.label_names)} labels and no others, as its data uses them, biases included."
    counts = None if report.data is None else report.data.label_counts
    if counts is not None and (few := int((counts < FEW_EXAMPLES).sum())):
        yield f"{few} labels have fewer than {FEW_EXAMPLES} training examples: do not rely on what it says of them."
    if "classifier" in contents.kind:
        if report.thresholds is None:
            yield "Thresholds were not tuned: 0.5 misses many examples of rare labels. Tune them on data of your own."
        else:
            yield "Thresholds were tuned on the validation split: tune them again on data that differs from it."
    if contents.kind == "plain classifier" and report.modality == "text":
        yield "It computes in float32 or bfloat16; float16 cannot hold its head."
    if report.prototypes and contents.kind in ("encoder", "plain encoder"):
        yield "Similarities to prototypes rank labels; they are no probabilities."
    if report.scores is not None:
        yield "The scores are those of one run with one seed."


def _license(report: ModelReport) -> str:
    origin = []
    if report.base_model:
        origin.append("of the backbone")
    if report.data is not None:
        origin.append(f"of the data ({report.data.license})" if report.data.license else "of the data")
    others = f" The terms {' and '.join(origin)} apply as well." if origin else ""
    return (f"`{report.license}`." if report.license else "Not stated by those who trained it.") + others


def _citations(report: ModelReport) -> list[str]:
    data = "" if report.data is None else report.data.citation
    return [CITATION, *([data.strip()] if data.strip() else [])]


# Markdown -------------------------------------------------------------------------------------------------------------


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


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


def _pooling(root: Path) -> str:
    """How a text encoder makes one vector of its tokens, from what lies beside it."""
    ours, theirs = root / "config.json", root / "1_Pooling" / "config.json"
    if theirs.is_file() and json.loads(theirs.read_text()).get("pooling_mode_mean_tokens"):
        return "mean"
    return str(json.loads(ours.read_text()).get("pooling", "first")) if ours.is_file() else "first"
