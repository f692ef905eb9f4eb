"""Alignment and uniformity: a module of the `evaluate` library over `hf_mlcl.metrics`."""

from typing import Any

import hf_mlcl.metrics.evaluate_module


class AlignmentUniformity(hf_mlcl.metrics.evaluate_module.Module):
    """Alignment and uniformity of a feature space, on L2-normalised features.

    Alignment is the mean squared distance of two examples that carry exactly the same labels (examples without a label
    form no pair); uniformity is the logarithm of the mean of exp(-t d^2) over all pairs.

    Args:
        predictions: For each example a row with its features.
        references: Its labels, 0 or 1 each.
        t: Sharpness of the kernel, 2 in the study.
        max_rows: Measure uniformity on at most this many examples; None takes all.

    Returns: alignment, uniformity: Lower is better; alignment is NaN where no two examples have the same labels.
    """

    predictions_type = "float64"
    citation_text = """
@inproceedings{wang2020understanding,
    title = {Understanding Contrastive Representation Learning through Alignment and Uniformity on the Hypersphere},
    author = {Wang, Tongzhou and Isola, Phillip},
    booktitle = {International Conference on Machine Learning},
    year = {2020},
}
"""
    reference_url = "https://arxiv.org/abs/2005.10242"

    def _compute(
        self, predictions: Any, references: Any, t: float = 2.0, max_rows: int | None = None
    ) -> dict[str, Any]:
        return {
            "alignment": hf_mlcl.metrics.alignment(predictions, references),
            "uniformity": hf_mlcl.metrics.uniformity(predictions, t=t, max_rows=max_rows),
        }


if __name__ == "__main__":
    AlignmentUniformity.show()
