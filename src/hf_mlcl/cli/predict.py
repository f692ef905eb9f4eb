"""``hf-mlcl predict``."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hf_mlcl.cli.libraries import quiet_libraries
from hf_mlcl.cli.output import print_json, print_table, say
from hf_mlcl.files import whole_file

LONGEST = 60
"""Characters of a text that a table shows."""


def run(
    inputs: Sequence[str],
    model: str | None,
    text_column: str | None,
    threshold: float | None,
    scores: bool,
    output: str | None,
    as_json: bool,
) -> None:
    """Predict, and print or write what was found.

    Args:
        inputs: Texts, files and folders.
        model: The classifier; the newest one if not given.
        text_column: Of tables among the files.
        threshold: Instead of the saved ones.
        scores: Whether to show every label's probability.
        output: A CSV file to write.
        as_json: For programs.
    """
    from hf_mlcl.experiments.prediction import Predictor

    quiet_libraries()
    predictor = Predictor(chosen_model(model))
    rows = [row for one in inputs for row in expand(one, predictor.kind, text_column)]
    if not rows:
        raise ValueError(f"There is nothing to predict in {', '.join(inputs)}.")
    if threshold is not None:
        if not 0 <= threshold <= 1:
            raise ValueError(f"--threshold must be between 0 and 1; got {threshold}.")
        predictor.thresholds = [threshold] * len(predictor.label_names)
    probabilities = predictor.probabilities(rows)
    decisions = predictor.decide(probabilities)
    found: list[dict[str, Any]] = [
        {
            "input": str(row),
            "labels": [
                {"label": predictor.label_names[i], "score": round(float(probability[i]), 4)}
                for i in np.argsort(-probability)
                if scores or decision[i]
            ],
        }
        for row, probability, decision in zip(rows, probabilities, decisions, strict=True)
    ]
    if output is not None:
        _write_csv(output, found, predictor.label_names, probabilities, decisions)
        say(f"{len(rows)} predictions are in {output}")
    elif as_json:
        print_json(found)
    else:
        cells = [
            [_short(one["input"]), ", ".join(f"{hit['label']} {hit['score']:.2f}" for hit in one["labels"]) or "(none)"]
            for one in found
        ]
        print_table([predictor.kind, "labels"], cells)


def chosen_model(model: str | None) -> str:
    """The classifier that was asked for, or else the newest one, which is named."""
    from hf_mlcl.experiments.prediction import newest_classifier

    if model is not None:
        return model
    newest = newest_classifier()
    if newest is None:
        raise ValueError(
            "There is no classifier under outputs/. Train one (hf-mlcl demo, hf-mlcl train DATA), or name one: --model."
        )
    say(f"Using {newest}")
    return str(newest)


def expand(given: str, kind: str, text_column: str | None = None) -> list[str]:
    """The texts or paths of images that an argument stands for.

    Args:
        given: A text, a file, a folder, or - for standard input.
        kind: What the classifier takes: "text" or "image".
        text_column: Of a table.

    Examples:
        >>> expand("an ordinary text", "text")
        ['an ordinary text']
    """
    from hf_mlcl.data.own import IMAGE_ENDINGS, READERS

    if not given.strip():
        raise ValueError("An empty text has no labels: give a text, a file, a folder, or - for standard input.")
    if given == "-":
        return [line.rstrip("\n") for line in sys.stdin if line.strip()]
    path = Path(given)
    endings = IMAGE_ENDINGS if kind == "image" else (".txt",)
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except OSError:  # a text may be too long for a name
        is_folder = is_file = False
    if is_folder:
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in endings)
        return [row for file in files for row in expand(str(file), kind)]
    if is_file:
        if any(ending.lower() in READERS for ending in path.suffixes):
            return _column(path, kind, text_column)
        if kind == "image":
            return [given]
        if path.suffix.lower() in IMAGE_ENDINGS:
            raise ValueError(f"This classifier takes texts; {given} is an image.")
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if kind == "image":
        raise ValueError(f"{given!r} is not a file or a folder, but this classifier takes images.")
    if path.suffix.lower() in (*READERS, *IMAGE_ENDINGS, ".txt"):
        raise ValueError(f"The file {given!r} is not there.")
    return [given]


def _column(path: Path, kind: str, column: str | None) -> list[str]:
    from hf_mlcl.data.own import content_of

    return content_of(path, kind, column)


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= LONGEST else flat[: LONGEST - 1] + "…"


def _write_csv(
    output: str, found: Sequence[dict[str, Any]], names: Sequence[str], probabilities: Any, decisions: Any
) -> None:
    """Write the whole file or none of it."""
    with whole_file(output) as draft, draft.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["input", "labels", *names])
        for one, row, decided in zip(found, probabilities, decisions, strict=True):
            labels = "|".join(name for name, is_chosen in zip(names, decided, strict=True) if is_chosen)
            writer.writerow([one["input"], labels, *(f"{value:.6f}" for value in row)])
