"""Mean average precision: a module of the `evaluate` library over `hf_mlcl.metrics`."""

from typing import Any

import hf_mlcl.metrics.evaluate_module


class MeanAveragePrecision(hf_mlcl.metrics.evaluate_module.Module):
    """The mean over labels of average precision: how well its scores rank the examples that carry it before the others.

    Examples with equal scores share a rank, as in scikit-learn.

    Args:
        predictions: For each example a row with a score for each label: logits or probabilities.
        references: The true labels, 0 or 1.
        absent: What a label counts that no example carries: 0 as in scikit-learn; NaN leaves it out.

    Returns: mean_average_precision: A float between 0 and 1, higher is better.
    """

    predictions_type = "float64"

    def _compute(self, predictions: Any, references: Any, absent: float = 0.0) -> dict[str, Any]:
        score = hf_mlcl.metrics.mean_average_precision(references, predictions, absent=absent)
        return {"mean_average_precision": score}


if __name__ == "__main__":
    MeanAveragePrecision.show()
