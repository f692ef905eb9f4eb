"""Multi-label F1: a module of the `evaluate` library over `hf_mlcl.metrics`."""

from typing import Any

import hf_mlcl.metrics.evaluate_module


class MultilabelF1(hf_mlcl.metrics.evaluate_module.Module):
    """F1, precision and recall of multi-label predictions.

    Micro averages pool all decisions, macro averages give every label the same weight: rare labels show in the macro
    average only. A label that is neither predicted nor present counts 0, as in scikit-learn with `zero_division=0`.

    Args:
        predictions: For each example a row with a 0 or 1 for each label.
        references: The true labels in the same form.
        average: "micro", "macro" or None for one number per label.

    Returns: f1, precision, recall: A float each, or a list with one for each label.
    """

    def _compute(self, predictions: Any, references: Any, average: Any = "macro") -> dict[str, Any]:
        metrics = {
            "f1": hf_mlcl.metrics.f1(references, predictions, average=average),
            "precision": hf_mlcl.metrics.precision(references, predictions, average=average),
            "recall": hf_mlcl.metrics.recall(references, predictions, average=average),
        }
        return {name: value if average else value.tolist() for name, value in metrics.items()}


if __name__ == "__main__":
    MultilabelF1.show()
