"""What the folders in `modules` share: a metric of the `evaluate` library that is described by its docstring."""

from typing import Any

import datasets
import evaluate

STUDY = """
@misc{audibert2024multilabel,
    title = {Multi-Label Contrastive Learning: A Comprehensive Study},
    author = {Audibert, Alexandre and Gauffre, Aurélien and Amini, Massih-Reza},
    year = {2024},
    eprint = {2412.00101},
    archivePrefix = {arXiv},
}
"""


class Module(evaluate.Metric):  # type: ignore[misc]  # `evaluate` has no types
    """A metric over rows of numbers; a subclass states its metric in `_compute` and its arguments in its docstring."""

    predictions_type = "int8"
    citation_text = STUDY
    reference_url = "https://arxiv.org/abs/2412.00101"

    def _info(self) -> Any:
        description, args, inputs = str(type(self).__doc__).partition("Args:")
        columns = {"predictions": self.predictions_type, "references": "int8"}
        return evaluate.MetricInfo(
            description=description,
            citation=self.citation_text,
            inputs_description=args + inputs,
            features=datasets.Features({k: datasets.Sequence(datasets.Value(v)) for k, v in columns.items()}),
            reference_urls=[self.reference_url],
        )

    @classmethod
    def show(cls) -> None:
        """The form in which a Space shows the metric."""
        from evaluate.utils import launch_gradio_widget

        launch_gradio_widget(cls())
