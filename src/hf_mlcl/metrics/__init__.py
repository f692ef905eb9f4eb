"""Metrics on plain arrays: numpy, torch or lists in, floats and numpy out.

Truth and predictions are multi-hot (rows, labels); scores are logits or probabilities of the same shape. The truth
always comes first, as in scikit-learn. Where scikit-learn defines a metric, ours gives its numbers; it is written again
only to stand 781,000 x 103 scores.

The same metrics as modules of the `evaluate` library: ``evaluate.load(module_path("multilabel_f1"))``.
"""

from pathlib import Path

from hf_mlcl.metrics.bootstrap import bootstrap_intervals
from hf_mlcl.metrics.classification import (
    LabelCounts,
    decision_metrics,
    f1,
    frequency_breakdown,
    frequency_groups,
    hamming_loss,
    precision,
    recall,
    subset_accuracy,
)
from hf_mlcl.metrics.compute_metrics import (
    compute_metrics,
    compute_single_label_metrics,
    make_compute_metrics,
    multilabel_metrics,
    rule_metrics,
)
from hf_mlcl.metrics.decision import DecisionRule, decide, sigmoid
from hf_mlcl.metrics.ranking import (
    average_precision,
    expected_calibration_error,
    label_ranking_average_precision,
    mean_average_precision,
    precision_at_k,
)
from hf_mlcl.metrics.representation import alignment, uniformity

__all__ = [
    "DecisionRule",
    "LabelCounts",
    "alignment",
    "average_precision",
    "bootstrap_intervals",
    "compute_metrics",
    "compute_single_label_metrics",
    "decide",
    "decision_metrics",
    "expected_calibration_error",
    "f1",
    "frequency_breakdown",
    "frequency_groups",
    "hamming_loss",
    "label_ranking_average_precision",
    "list_modules",
    "make_compute_metrics",
    "mean_average_precision",
    "module_path",
    "multilabel_metrics",
    "precision",
    "precision_at_k",
    "recall",
    "rule_metrics",
    "sigmoid",
    "subset_accuracy",
    "uniformity",
]

_MODULES = Path(__file__).parent / "modules"


def list_modules() -> list[str]:
    """Names of the `evaluate` modules that come with the package."""
    return sorted(folder.name for folder in _MODULES.iterdir() if (folder / f"{folder.name}.py").is_file())


def module_path(name: str) -> str:
    """Folder of one of the `list_modules`, to be loaded by `evaluate` offline or pushed to the Hub as a Space.

    Examples:
        >>> import evaluate
        >>> metric = evaluate.load(module_path("hamming_loss"))
        >>> metric.compute(references=[[1, 0], [1, 1]], predictions=[[1, 1], [1, 1]])
        {'hamming_loss': 0.25}
    """
    if name not in list_modules():
        raise ValueError(f"`name` must be one of {', '.join(list_modules())}, but is {name!r}.")
    return str(_MODULES / name)
