"""Hamming loss: a module of the `evaluate` library over `hf_mlcl.metrics`."""

from typing import Any

import datasets
import evaluate

import hf_mlcl.metrics

_DESCRIPTION = """
The share of all example x label decisions that are wrong, as a plain fraction.
"""

_INPUTS = """
Args:
    predictions: One row an example, a 0 or 1 for each label.
    references: The true labels in the same form.

Returns:
    hamming_loss: A float between 0 and 1, lower is better.

Example:
    >>> import evaluate
    >>> from hf_mlcl.metrics import module_path
    >>> metric = evaluate.load(module_path("hamming_loss"))
    >>> metric.compute(predictions=[[1, 1], [1, 1]], references=[[1, 0], [1, 1]])
    {'hamming_loss': 0.25}
"""

_CITATION = """
@misc{audibert2024multilabel,
    title = {Multi-Label Contrastive Learning: A Comprehensive Study},
    author = {Audibert, Alexandre and Gauffre, Aurélien and Amini, Massih-Reza},
    year = {2024},
    eprint = {2412.00101},
    archivePrefix = {arXiv},
}
"""


class HammingLoss(evaluate.Metric):  # type: ignore[misc]  # `evaluate` has no types
    """Hamming loss; the arguments are described in its `inputs_description`."""

    def _info(self) -> Any:
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=datasets.Features(
                {
                    "predictions": datasets.Sequence(datasets.Value("int8")),
                    "references": datasets.Sequence(datasets.Value("int8")),
                }
            ),
            reference_urls=["https://arxiv.org/abs/2412.00101"],
        )

    def _compute(self, predictions: Any, references: Any) -> dict[str, Any]:
        return {"hamming_loss": hf_mlcl.metrics.hamming_loss(references, predictions)}


if __name__ == "__main__":  # the form in which a Space shows the metric
    from evaluate.utils import launch_gradio_widget

    launch_gradio_widget(HammingLoss())
