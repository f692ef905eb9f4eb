"""Evaluation on plain arrays: features -> linear heads -> thresholds -> metrics, and a look into the space.

`linear` holds the study's linear evaluation and `best` the heads for users; `thresholds` and `temperature` turn
probabilities into decisions, `feature_cache` keeps features on disk. `analysis` and `gradients` look into the space,
and `figures` draws what they see (it is not imported here, because matplotlib is slow to load).
"""

from hf_mlcl.evaluation.analysis import (
    FrequencyCurve,
    Neighbours,
    RunComparison,
    SpaceQuality,
    compare_runs,
    f1_by_frequency,
    label_centroids,
    most_similar_labels,
    nearest_neighbours,
    project_2d,
    prototype_similarities,
    space_quality,
)
from hf_mlcl.evaluation.best import BestHeads, fit_best_heads
from hf_mlcl.evaluation.config import GridPoint, LinearEvaluationConfig
from hf_mlcl.evaluation.feature_cache import FeatureCache, feature_key
from hf_mlcl.evaluation.gradients import GradientStudy, gradient_study, prr_by_temperature
from hf_mlcl.evaluation.label_names import name_priors
from hf_mlcl.evaluation.linear import LabelChoice, LinearEvaluationResult, linear_evaluate
from hf_mlcl.evaluation.temperature import fit_temperature
from hf_mlcl.evaluation.thresholds import (
    CrossFittedScore,
    ThresholdChoice,
    choose_thresholds,
    cross_fitted_score,
    tune_thresholds,
)

__all__ = [
    "BestHeads",
    "CrossFittedScore",
    "FeatureCache",
    "FrequencyCurve",
    "GradientStudy",
    "GridPoint",
    "LabelChoice",
    "LinearEvaluationConfig",
    "LinearEvaluationResult",
    "Neighbours",
    "RunComparison",
    "SpaceQuality",
    "ThresholdChoice",
    "choose_thresholds",
    "compare_runs",
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
    "nearest_neighbours",
    "project_2d",
    "prototype_similarities",
    "prr_by_temperature",
    "space_quality",
    "tune_thresholds",
]
