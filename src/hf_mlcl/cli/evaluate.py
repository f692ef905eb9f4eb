"""``hf-mlcl evaluate``."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import typer

from hf_mlcl.cli.libraries import quiet_libraries
from hf_mlcl.cli.output import print_json, print_table
from hf_mlcl.cli.predict import chosen_model

SPLITS = ("train", "validation", "test")


def run(
    data: str,
    model: str | None,
    split: str,
    data_dir: str | None,
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
    quiet_libraries()
    splits = _read(data, data_dir, columns)
    predictor = Predictor(chosen_model(model))
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


def _read(data: str, data_dir: str | None, columns: Mapping[str, Any]) -> Any:
    from hf_mlcl.data import list_corpora, load_corpus, read_own_data

    if data in list_corpora():
        return load_corpus(data, data_dir=data_dir)
    return read_own_data(data, **columns).splits
