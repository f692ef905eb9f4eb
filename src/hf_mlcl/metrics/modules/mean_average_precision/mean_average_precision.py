"""Mean average precision: a module of the `evaluate` library over `hf_mlcl.metrics`."""

from typing import Any

import datasets
import evaluate

import hf_mlcl.metrics

_DESCRIPTION = """
The mean over labels of average precision: how well each label's scores rank the examples that carry it before
the others. Examples with equal scores share a rank, as in scikit-learn.
"""

_INPUTS = """
Args:
    predictions: One row an example, a score for each label: logits or probabilities.
    references: The true labels, 0 or 1.
    absent: What a label counts that no example carries: 0 as in scikit-learn; NaN leaves it out.

Returns:
    mean_average_precision: A float between 0 and 1, higher is better.

Example:
    >>> import evaluate
    >>> from hf_mlcl.metrics import module_path
    >>> metric = evaluate.load(module_path("mean_average_precision"))
    >>> metric.compute(predictions=[[0.9, 0.1], [0.8, 0.7]], references=[[1, 0], [1, 1]])
    {'mean_average_precision': 1.0}
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


class MeanAveragePrecision(evaluate.Metric):  # type: ignore[misc]  # `evaluate` has no types
    """Mean average precision; the arguments are described in its `inputs_description`."""

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
            reference_urls=["https://arxiv.org/abs/2412.00101"],
        )

    def _compute(self, predictions: Any, references: Any, absent: float = 0.0) -> dict[str, Any]:
        score = hf_mlcl.metrics.mean_average_precision(references, predictions, absent=absent)
        return {"mean_average_precision": score}


if __name__ == "__main__":  # the form in which a Space shows the metric
    from evaluate.utils import launch_gradio_widget

    launch_gradio_widget(MeanAveragePrecision())
