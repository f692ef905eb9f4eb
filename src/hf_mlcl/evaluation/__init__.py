"""Evaluation on plain arrays: features -> linear heads -> thresholds -> metrics, and a look into the space.

`linear` holds the study's linear evaluation and `best` the heads for users; `thresholds` turns probabilities into
decisions, `feature_cache` keeps features on disk. `analysis` and `gradients` look into the space,
and `figures` draws what they see (it is not imported here, because matplotlib is slow to load).
"""

from hf_mlcl.evaluation.analysis import (
    FrequencyCurve,
    f1_by_frequency,
    label_centroids,
    most_similar_labels,
    project_2d,
    prototype_similarities,
    space_quality,
)
from hf_mlcl.evaluation.best import BestHeads, fit_best_heads, name_priors
from hf_mlcl.evaluation.config import LinearEvaluationConfig
from hf_mlcl.evaluation.feature_cache import FeatureCache, feature_key
from hf_mlcl.evaluation.gradients import GradientStudy, gradient_study, prr_by_temperature
from hf_mlcl.evaluation.linear import LabelChoice, LinearEvaluationResult, linear_evaluate
from hf_mlcl.evaluation.thresholds import (
    ThresholdChoice,
    choose_thresholds,
    cross_fitted_score,
    fit_temperature,
    tune_thresholds,
)

__all__ = [
    "BestHeads",
    "FeatureCache",
    "FrequencyCurve",
    "GradientStudy",
    "LabelChoice",
    "LinearEvaluationConfig",
    "LinearEvaluationResult",
    "ThresholdChoice",
    "choose_thresholds",
    "cross_fitted_score",
    "f1_by_frequency",
    "feature_key",
    "fit_best_heads",
    "fit_temperature",
    "gradient_study",
    "label_centroids",
    "linear_evaluate",
    "most_similar_labels",
    "name_priors",
    "project_2d",
    "prototype_similarities",
    "prr_by_temperature",
    "space_quality",
    "tune_thresholds",
]
