"""Models for others: exports that load without this package, cards, and the way to the Hub.

`export_encoder` and `export_classifier` write what transformers, sentence-transformers and timm load by themselves,
`export_onnx` a graph for programs without torch. `write_model_card` tells what a model is, `push_folder` uploads it.

Names are imported when they are first used, since each brings libraries that the others do not need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hf_mlcl.hub.exporting import export_classifier, export_encoder
    from hf_mlcl.hub.model_card import DataFacts, LossFacts, ModelReport, SplitScores, report_of_model, write_model_card
    from hf_mlcl.hub.onnx import export_onnx
    from hf_mlcl.hub.push import intended_files, push_folder

_HOME = {
    "DataFacts": "model_card",
    "LossFacts": "model_card",
    "ModelReport": "model_card",
    "SplitScores": "model_card",
    "export_classifier": "exporting",
    "export_encoder": "exporting",
    "export_onnx": "onnx",
    "intended_files": "push",
    "push_folder": "push",
    "report_of_model": "model_card",
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
    "push_folder",
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
