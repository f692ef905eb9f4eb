"""Models for others: exports that load without this package, cards, and the way to the Hub.

`export_encoder` and `export_classifier` write what transformers, sentence-transformers and timm load by themselves,
`export_onnx` a graph for programs without torch; `export_model` does it for a saved model, whole folders with cards.
`write_model_card` tells what a model is, `push_folder` uploads it in the form that others load.

Names are imported when they are first used, since each brings libraries that the others do not need.
"""

from hf_mlcl._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
