"""``hf-mlcl evaluate``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import typer

from hf_mlcl.cli.libraries import quiet_libraries
from hf_mlcl.cli.output import print_json, print_table, say
from hf_mlcl.cli.predict import chosen_model

SPLITS = ("train", "validation", "test")
SIZES = ("full", "small")


def run(
    data: str,
    model: str | None,
    split: str,
    data_dir: str | None,
    size: str | None,
    columns: Mapping[str, Any],
    max_samples: int | None,
    per_label: bool,
    as_json: bool,
) -> None:
    """Score a classifier and print the metrics.

    Args:
        data: Where the data are, or a corpus's name.
        model: The classifier; the newest one if not given.
        split: Which rows.
        data_dir: Of a corpus.
        size: Of a corpus; that which the classifier learned from if not given.
        columns: How to read data of one's own.
        max_samples: Rows to keep.
        per_label: Whether to show every label.
        as_json: For programs.
    """
    from hf_mlcl.data import encode_labels
    from hf_mlcl.experiments.inputs import sample_rows
    from hf_mlcl.experiments.prediction import Predictor
    from hf_mlcl.metrics import compute_single_label_metrics, f1, multilabel_metrics

    if split not in (*SPLITS, "all"):
        raise typer.BadParameter(f"--split must be train, validation, test or all; got {split!r}.")
    if size not in (None, *SIZES):
        raise typer.BadParameter(f"--size must be full or small; got {size!r}.")
    quiet_libraries()
    classifier = chosen_model(model)
    splits = _read(data, data_dir, size, columns, classifier)
    predictor = Predictor(classifier)
    chosen = [splits[name] for name in (SPLITS if split == "all" else (split,)) if name in splits]
    inputs: list[Any] = []
    named: list[list[str]] = []
    for rows in chosen:
        if predictor.kind not in rows.column_names:
            raise ValueError(f"The classifier takes {predictor.kind}s, but the data have {rows.column_names[0]}s.")
        kept = sample_rows(rows, max_samples)
        names = kept.features["labels"].feature.names
        inputs += list(kept[predictor.kind])
        named += [[names[number] for number in labels] for labels in kept["labels"]]
    unknown = sorted({name for row in named for name in row} - set(predictor.label_names))
    if unknown:
        raise ValueError(
            f"The data have labels that the classifier does not know: {', '.join(unknown[:5])}. It knows "
            f"{', '.join(predictor.label_names[:10])}{', …' if len(predictor.label_names) > 10 else ''}."
        )
    truth = encode_labels(named, predictor.label_names)
    probabilities = predictor.probabilities(inputs)
    decisions = predictor.decide(probabilities)
    if predictor.single_label:
        metrics = compute_single_label_metrics(SimpleNamespace(predictions=probabilities, label_ids=truth))
    else:
        metrics = multilabel_metrics(truth, probabilities, predictor.thresholds)
    each: list[dict[str, Any]] = [
        {"label": name, "rows": int(count), "f1": float(score)}
        for name, count, score in zip(predictor.label_names, truth.sum(axis=0), f1(truth, decisions), strict=True)
    ]
    if as_json:
        print_json({"model": predictor.model, "rows": len(inputs), "metrics": metrics, "per_label": each})
        return
    print_table(
        ["rows", *metrics],
        [[len(inputs), *map(float, metrics.values())]],
        title=f"{predictor.model} on {data} ({split})",
    )
    if per_label:
        print_table(["label", "rows", "F1"], [list(row.values()) for row in sorted(each, key=lambda one: -one["rows"])])


def _read(data: str, data_dir: str | None, size: str | None, columns: Mapping[str, Any], model: str) -> Any:
    from hf_mlcl.data import list_corpora, load_corpus, read_own_data

    if data in list_corpora():
        if size is None:
            size = _size_of_training(data, model)
            if size != "full":
                say(f"Using the {size} version of {data}, as in training; --size full takes the whole of it.")
        return load_corpus(data, size=size, data_dir=data_dir)
    if size is not None:
        raise typer.BadParameter(f"--size is for the corpora of `hf-mlcl corpora`, and {data!r} is none of them.")
    return read_own_data(data, **columns).splits


def _size_of_training(corpus: str, model: str) -> str:
    """The version of a corpus that a classifier of an experiment learned from: its test rows are unseen there only."""
    from hf_mlcl.experiments.prediction import classifier_folder
    from hf_mlcl.experiments.running import METRICS_FILE, ExperimentResult

    folder = Path(classifier_folder(model)).parent
    if not (folder / METRICS_FILE).is_file():
        return "full"
    settings = ExperimentResult.load(folder).settings
    return str(settings.get("size", "full")) if settings.get("corpus") == corpus else "full"
