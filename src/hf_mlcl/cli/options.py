"""Options that several commands have, and what is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Model = Annotated[
    str | None, typer.Option(help="Folder or Hub id of a classifier; the one that you trained last if not set.")
]
Data = Annotated[str, typer.Argument(help="As for `train`: file, folder, Hub dataset, or a corpus by name.")]
DataDir = Annotated[str | None, typer.Option(help="Folder with the official files of a corpus.")]
Size = Annotated[str | None, typer.Option(help="full or small version of a corpus; as in training if not set.")]
Split = Annotated[
    str | None, typer.Option(help="train, validation, test, or all; what the classifier has not seen if not set.")
]
TextColumn = Annotated[
    str | None,
    typer.Option(
        help="Column with texts or image paths; as in training, or recognised, if not set.", rich_help_panel="Data"
    ),
]
LabelColumns = Annotated[
    str | None,
    typer.Option(help="Column(s) with labels, separated by commas; likewise if not set.", rich_help_panel="Data"),
]
LabelDelimiter = Annotated[
    str | None, typer.Option(help="What separates labels in one column; likewise if not set.", rich_help_panel="Data")
]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust_remote_code", help="Run Python files that come with the model; none run otherwise.")
]
FURTHER: dict[str, Any] = {
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
    "epilog": "Any other argument of an experiment or of HF's Trainer may follow, such as --bf16 --pooling mean "
    "--weight_decay 0.1 --push_to_hub --hub_model_id me/reviews, or --config FILE with any of them. --check shows all.",
}
"""For commands that hand further arguments on to the training."""


def further_settings(argv: Sequence[str]) -> dict[str, Any]:
    """Arguments of the training, as they came; wrong ones are an error of the command's."""
    from hf_mlcl.experiments.parsing import parse_settings

    try:
        return parse_settings(argv)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def names(given: str | None) -> list[str] | None:
    """Names that are separated by commas."""
    return None if given is None else [name.strip() for name in given.split(",")]


def columns(text: str | None, labels: str | None, delimiter: str | None) -> dict[str, Any]:
    """What `read_own_data` is told of columns."""
    return {"text_column": text, "label_columns": names(labels), "label_delimiter": delimiter}
