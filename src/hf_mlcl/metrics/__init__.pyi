from .bootstrap import bootstrap_intervals as bootstrap_intervals
from .classification import (
    LabelCounts as LabelCounts,
    decision_metrics as decision_metrics,
    f1 as f1,
    frequency_breakdown as frequency_breakdown,
    frequency_groups as frequency_groups,
    hamming_loss as hamming_loss,
    precision as precision,
    recall as recall,
    subset_accuracy as subset_accuracy,
)
from .decision import DecisionRule as DecisionRule, decide as decide, sigmoid as sigmoid
from .evaluate_modules import list_modules as list_modules, module_path as module_path
from .for_trainer import (
    compute_metrics as compute_metrics,
    compute_single_label_metrics as compute_single_label_metrics,
    make_compute_metrics as make_compute_metrics,
    multilabel_metrics as multilabel_metrics,
    rule_metrics as rule_metrics,
)
from .ranking import (
    average_precision as average_precision,
    expected_calibration_error as expected_calibration_error,
    label_ranking_average_precision as label_ranking_average_precision,
    mean_average_precision as mean_average_precision,
    precision_at_k as precision_at_k,
)
from .representation import alignment as alignment, uniformity as uniformity
