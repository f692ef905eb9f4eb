from .analysis import (
    FrequencyCurve as FrequencyCurve,
    f1_by_frequency as f1_by_frequency,
    label_centroids as label_centroids,
    most_similar_labels as most_similar_labels,
    project_2d as project_2d,
    prototype_similarities as prototype_similarities,
    space_quality as space_quality,
)
from .best import BestHeads as BestHeads, fit_best_heads as fit_best_heads, name_priors as name_priors
from .config import LinearEvaluationConfig as LinearEvaluationConfig
from .feature_cache import FeatureCache as FeatureCache, feature_key as feature_key
from .gradients import (
    GradientStudy as GradientStudy,
    gradient_study as gradient_study,
    prr_by_temperature as prr_by_temperature,
)
from .linear import (
    LabelChoice as LabelChoice,
    LinearEvaluationResult as LinearEvaluationResult,
    linear_evaluate as linear_evaluate,
)
from .thresholds import (
    ThresholdChoice as ThresholdChoice,
    choose_thresholds as choose_thresholds,
    cross_fitted_score as cross_fitted_score,
    fit_temperature as fit_temperature,
    tune_thresholds as tune_thresholds,
)
