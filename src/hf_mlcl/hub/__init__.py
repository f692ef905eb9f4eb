"""Models for others: exports that load without this package, cards, and the way to the Hub.

`export_encoder` and `export_classifier` write what transformers, sentence-transformers and timm load by themselves,
`export_onnx` a graph for programs without torch; `export_model` does it for a saved model, whole folders with cards.
`write_model_card` tells what a model is, `push_folder` uploads it in the form that others load.

Names are imported when they are first used, since each brings libraries that the others do not need.
"""

from typing import TYPE_CHECKING

from hf_mlcl._lazy import attach

if TYPE_CHECKING:
    from hf_mlcl.hub.exporting import export_classifier as export_classifier
    from hf_mlcl.hub.exporting import export_encoder as export_encoder
    from hf_mlcl.hub.model_card import DataFacts as DataFacts
    from hf_mlcl.hub.model_card import LossFacts as LossFacts
    from hf_mlcl.hub.model_card import ModelReport as ModelReport
    from hf_mlcl.hub.model_card import SplitScores as SplitScores
    from hf_mlcl.hub.model_card import report_of_model as report_of_model
    from hf_mlcl.hub.model_card import write_model_card as write_model_card
    from hf_mlcl.hub.onnx import export_onnx as export_onnx
    from hf_mlcl.hub.publishing import export_model as export_model
    from hf_mlcl.hub.push import intended_files as intended_files
    from hf_mlcl.hub.push import push_folder as push_folder

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "exporting": ["export_classifier", "export_encoder"],
        "model_card": ["DataFacts", "LossFacts", "ModelReport", "SplitScores", "report_of_model", "write_model_card"],
        "onnx": ["export_onnx"],
        "publishing": ["export_model"],
        "push": ["intended_files", "push_folder"],
    },
)
