"""A trained encoder at work without a classifier: scores by prototypes, and the nearest training examples."""

from hf_mlcl.inference.encoding import Encoder
from hf_mlcl.inference.retrieval import ExampleIndex
from hf_mlcl.inference.zero_shot import PrototypeClassifier

__all__ = ["Encoder", "ExampleIndex", "PrototypeClassifier"]
