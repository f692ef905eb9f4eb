"""``hf-mlcl export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from hf_mlcl.cli.options import AsJson, TrustRemoteCode
from hf_mlcl.cli.output import print_json, quiet_libraries, say


def export(
    model: Annotated[
        str,
        typer.Argument(help="Folder or Hub id of an encoder or classifier; of a training's folder, its classifier."),
    ],
    to: Annotated[
        Literal["transformers", "sentence-transformers", "timm", "onnx"],
        typer.Option(help="The library that shall load it."),
    ] = "transformers",
    output_dir: Annotated[str | None, typer.Option(help="Where to write; MODEL-LIBRARY if not set.")] = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Write a trained model for people without hf-mlcl, with its card.

    transformers: a classifier for pipelines, or an encoder for AutoModel. sentence-transformers: the encoder of texts.
    timm: a classifier or encoder of images. onnx: onnx/model.onnx, where sentence-transformers and optimum look for it.
    """
    from hf_mlcl.experiments.inputs import without_vain_attempts
    from hf_mlcl.hub import export_model

    quiet_libraries()
    folder = Path(output_dir or f"{Path(model).name or 'model'}-{to}")
    if output_dir is None and folder.exists():
        raise ValueError(f"{folder} is there already. Say where to write: --output_dir.")
    with without_vain_attempts(model):
        export_model(model, folder, to, trust_remote_code=trust_remote_code)
    if as_json:
        print_json({"folder": str(folder), "to": to, "files": sorted(path.name for path in folder.iterdir())})
    else:
        say(f"Written to {folder}; README.md there shows how to load it.")
