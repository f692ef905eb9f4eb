"""Models for others: exports that load without this package, cards, and the way to the Hub.

`export_encoder` and `export_classifier` write what transformers, sentence-transformers and timm load by themselves,
`export_onnx` a graph for programs without torch. `write_model_card` tells what a model is, `push_folder` uploads it.

Names are imported when they are first used, since each brings libraries that the others do not need.
"""

from typing import TYPE_CHECKING

from hf_mlcl._lazy import attach

if TYPE_CHECKING:
    from hf_mlcl.hub.classifier import export_classifier as export_classifier
    from hf_mlcl.hub.encoder import export_encoder as export_encoder
    from hf_mlcl.hub.encoder import load_prototypes as load_prototypes
    from hf_mlcl.hub.facts import DataFacts as DataFacts
    from hf_mlcl.hub.facts import LossFacts as LossFacts
    from hf_mlcl.hub.facts import ModelReport as ModelReport
    from hf_mlcl.hub.facts import SplitScores as SplitScores
    from hf_mlcl.hub.facts import report_of_model as report_of_model
    from hf_mlcl.hub.model_card import write_model_card as write_model_card
    from hf_mlcl.hub.onnx import export_onnx as export_onnx
    from hf_mlcl.hub.push import intended_files as intended_files
    from hf_mlcl.hub.push import push_folder as push_folder
    from hf_mlcl.hub.push import push_model as push_model

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "classifier": ["export_classifier"],
        "encoder": ["export_encoder", "load_prototypes"],
        "model_card": ["write_model_card"],
        "onnx": ["export_onnx"],
        "push": ["intended_files", "push_folder", "push_model"],
        "facts": ["DataFacts", "LossFacts", "ModelReport", "SplitScores", "report_of_model"],
    },
)
