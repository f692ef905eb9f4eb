"""Metrics on plain arrays: numpy, torch or lists in, floats and numpy out.

Truth and predictions are multi-hot (rows, labels); scores are logits or probabilities of the same shape. The truth
always comes first, as in scikit-learn. Where scikit-learn defines a metric, ours gives its numbers; it is written again
only to stand 781,000 x 103 scores.

The same metrics as modules of the `evaluate` library: ``evaluate.load(module_path("multilabel_f1"))``.
"""

from hf_mlcl._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
