"""Hamming loss: a module of the `evaluate` library over `hf_mlcl.metrics`."""

from typing import Any

import hf_mlcl.metrics.evaluate_module


class HammingLoss(hf_mlcl.metrics.evaluate_module.Module):
    """The share of all example x label decisions that are wrong, as a plain fraction.

    Args:
        predictions: For each example a row with a 0 or 1 for each label.
        references: The true labels in the same form.

    Returns: hamming_loss: A float between 0 and 1, lower is better.
    """

    def _compute(self, predictions: Any, references: Any) -> dict[str, Any]:
        return {"hamming_loss": hf_mlcl.metrics.hamming_loss(references, predictions)}


if __name__ == "__main__":
    HammingLoss.show()
