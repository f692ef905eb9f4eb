"""Alignment and uniformity: a module of the `evaluate` library over `hf_mlcl.metrics`."""

from typing import Any

import datasets
import evaluate

import hf_mlcl.metrics

_DESCRIPTION = """
Alignment is the mean squared distance of two examples that carry exactly the same labels (examples without a label
form no pair); uniformity is the logarithm of the mean of exp(-t d^2) over all pairs. Features are L2-normalised first.
"""

_INPUTS = """
Args:
    predictions: One row an example: its features.
    references: Its labels, 0 or 1 each.
    t: Sharpness of the kernel, 2 in the study.
    max_rows: Measure uniformity on at most this many examples; None takes all.

Returns:
    alignment, uniformity: Floats, lower is better; alignment is NaN where no two examples have the same labels.

Example:
    >>> import evaluate
    >>> from hf_mlcl.metrics import module_path
    >>> metric = evaluate.load(module_path("alignment_uniformity"))
    >>> metric.compute(predictions=[[1.0, 0.0], [0.0, 1.0]], references=[[1, 0], [1, 0]])
    {'alignment': 2.0, 'uniformity': -4.0}
"""

_CITATION = """
@inproceedings{wang2020understanding,
    title = {Understanding Contrastive Representation Learning through Alignment and Uniformity on the Hypersphere},
    author = {Wang, Tongzhou and Isola, Phillip},
    booktitle = {International Conference on Machine Learning},
    year = {2020},
}
"""


class AlignmentUniformity(evaluate.Metric):  # type: ignore[misc]  # `evaluate` has no types
    """Alignment and uniformity; the arguments are described in its `inputs_description`."""

    def _info(self) -> Any:
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=datasets.Features(
                {
                    "predictions": datasets.Sequence(datasets.Value("float64")),
                    "references": datasets.Sequence(datasets.Value("int8")),
                }
            ),
            reference_urls=["https://arxiv.org/abs/2005.10242"],
        )

    def _compute(
        self, predictions: Any, references: Any, t: float = 2.0, max_rows: int | None = None
    ) -> dict[str, Any]:
        return {
            "alignment": hf_mlcl.metrics.alignment(predictions, references),
            "uniformity": hf_mlcl.metrics.uniformity(predictions, t=t, max_rows=max_rows),
        }


if __name__ == "__main__":  # the form in which a Space shows the metric
    from evaluate.utils import launch_gradio_widget

    launch_gradio_widget(AlignmentUniformity())
