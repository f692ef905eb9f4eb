"""Models for others: exports that load without this package, cards, and the way to the Hub.

`export_encoder` and `export_classifier` write what transformers, sentence-transformers and timm load by themselves,
`export_onnx` a graph for programs without torch. `write_model_card` tells what a model is, `push_folder` uploads it.

Names are imported when they are first used, since each brings libraries that the others do not need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hf_mlcl.hub.classifier import export_classifier
    from hf_mlcl.hub.encoder import export_encoder, load_prototypes
    from hf_mlcl.hub.facts import DataFacts, LossFacts, ModelReport, SplitScores, report_of_model
    from hf_mlcl.hub.model_card import write_model_card
    from hf_mlcl.hub.onnx import export_onnx
    from hf_mlcl.hub.push import intended_files, push_folder, push_model

_HOME = {
    "DataFacts": "facts",
    "LossFacts": "facts",
    "ModelReport": "facts",
    "SplitScores": "facts",
    "export_classifier": "classifier",
    "export_encoder": "encoder",
    "export_onnx": "onnx",
    "intended_files": "push",
    "load_prototypes": "encoder",
    "push_folder": "push",
    "push_model": "push",
    "report_of_model": "facts",
    "write_model_card": "model_card",
}

__all__ = [
    "DataFacts",
    "LossFacts",
    "ModelReport",
    "SplitScores",
    "export_classifier",
    "export_encoder",
    "export_onnx",
    "intended_files",
    "load_prototypes",
    "push_folder",
    "push_model",
    "report_of_model",
    "write_model_card",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"hf_mlcl.hub.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
