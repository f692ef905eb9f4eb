"""Multi-label F1: a module of the `evaluate` library over `hf_mlcl.metrics`."""

from typing import Any

import datasets
import evaluate

import hf_mlcl.metrics

_DESCRIPTION = """
F1, precision and recall of multi-label predictions. Micro averages pool all decisions, macro averages give every label
the same weight: rare labels show in the macro average only. A label that is neither predicted nor present counts 0,
as in scikit-learn with `zero_division=0`.
"""

_INPUTS = """
Args:
    predictions: One row an example, a 0 or 1 for each label.
    references: The true labels in the same form.
    average: "micro", "macro" or None for one number a label.

Returns:
    f1, precision, recall: A float each, or a list with one for each label.

Example:
    >>> import evaluate
    >>> from hf_mlcl.metrics import module_path
    >>> metric = evaluate.load(module_path("multilabel_f1"))
    >>> metric.compute(predictions=[[1, 1], [1, 1]], references=[[1, 0], [1, 1]], average="macro")["precision"]
    0.75
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


class MultilabelF1(evaluate.Metric):  # type: ignore[misc]  # `evaluate` has no types
    """Multi-label F1; the arguments are described in its `inputs_description`."""

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

    def _compute(self, predictions: Any, references: Any, average: Any = "macro") -> dict[str, Any]:
        metrics = {
            "f1": hf_mlcl.metrics.f1(references, predictions, average=average),
            "precision": hf_mlcl.metrics.precision(references, predictions, average=average),
            "recall": hf_mlcl.metrics.recall(references, predictions, average=average),
        }
        return {name: value if average else value.tolist() for name, value in metrics.items()}


if __name__ == "__main__":  # the form in which a Space shows the metric
    from evaluate.utils import launch_gradio_widget

    launch_gradio_widget(MultilabelF1())
