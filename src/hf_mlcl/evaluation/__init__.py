"""Evaluation on plain arrays: features -> linear heads -> thresholds -> metrics, and a look into the space."""

from hf_mlcl.evaluation.config import GridPoint, LinearEvaluationConfig
from hf_mlcl.evaluation.linear import LabelChoice, LinearEvaluationResult, linear_evaluate

__all__ = [
    "GridPoint",
    "LabelChoice",
    "LinearEvaluationConfig",
    "LinearEvaluationResult",
    "linear_evaluate",
]
