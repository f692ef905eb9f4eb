"""The metrics of the `evaluate` library that the folders in `modules` hand out, each described by its docstring."""

from pathlib import Path
from typing import Any

import datasets
import evaluate

from hf_mlcl import metrics

_MODULES = Path(__file__).parent / "modules"


def list_modules() -> list[str]:
    """Names of the `evaluate` modules that come with the package."""
    return sorted(folder.name for folder in _MODULES.iterdir() if (folder / f"{folder.name}.py").is_file())


def module_path(name: str) -> str:
    """Folder of one of the `list_modules`, to be loaded by `evaluate` offline or pushed to the Hub as a Space.

    Examples:
        >>> metric = evaluate.load(module_path("hamming_loss"))
        >>> metric.compute(references=[[1, 0], [1, 1]], predictions=[[1, 1], [1, 1]])
        {'hamming_loss': 0.25}
    """
    if name not in list_modules():
        raise ValueError(f"`name` must be one of {', '.join(list_modules())}, but is {name!r}.")
    return str(_MODULES / name)


class _Module(evaluate.Metric):  # type: ignore[misc]  # `evaluate` has no types
    predictions_type = "int8"
    paper = "Multi-Label Contrastive Learning: A Comprehensive Study (Audibert et al., 2024)"
    reference_url = "https://arxiv.org/abs/2412.00101"

    def _info(self) -> Any:
        description, args, inputs = str(type(self).__doc__).partition("Args:")
        columns = {"predictions": self.predictions_type, "references": "int8"}
        return evaluate.MetricInfo(
            description=description,
            citation=self.paper,
            inputs_description=args + inputs,
            features=datasets.Features({k: datasets.Sequence(datasets.Value(v)) for k, v in columns.items()}),
            reference_urls=[self.reference_url],
        )

    @classmethod
    def show(cls) -> None:
        """The form in which a Space shows the metric."""
        from evaluate.utils import launch_gradio_widget

        launch_gradio_widget(cls())


class HammingLoss(_Module):
    """The share of all example x label decisions that are wrong, as a plain fraction: lower is better.

    Args:
        predictions: For each example a row with a 0 or 1 for each label.
        references: The true labels in the same form.
    """

    def _compute(self, predictions: Any, references: Any) -> dict[str, Any]:
        return {"hamming_loss": metrics.hamming_loss(references, predictions)}


class MeanAveragePrecision(_Module):
    """The mean over labels of average precision: how well its scores rank the examples that carry it before the others.

    It lies between 0 and 1, higher is better. Examples with equal scores share a rank, as in scikit-learn.

    Args:
        predictions: For each example a row with a score for each label: logits or probabilities.
        references: The true labels, 0 or 1.
        absent: What a label counts that no example carries: 0 as in scikit-learn; NaN leaves it out.
    """

    predictions_type = "float64"

    def _compute(self, predictions: Any, references: Any, absent: float = 0.0) -> dict[str, Any]:
        return {"mean_average_precision": metrics.mean_average_precision(references, predictions, absent=absent)}


class MultilabelF1(_Module):
    """F1, precision and recall of multi-label predictions: a float each, or a list with one for each label.

    Micro averages pool all decisions, macro averages give every label the same weight: rare labels show in the macro
    average only. A label that is neither predicted nor present counts 0, as in scikit-learn with `zero_division=0`.

    Args:
        predictions: For each example a row with a 0 or 1 for each label.
        references: The true labels in the same form.
        average: "micro", "macro" or None for one number per label.
    """

    def _compute(self, predictions: Any, references: Any, average: Any = "macro") -> dict[str, Any]:
        found = {
            "f1": metrics.f1(references, predictions, average=average),
            "precision": metrics.precision(references, predictions, average=average),
            "recall": metrics.recall(references, predictions, average=average),
        }
        return {name: value if average else value.tolist() for name, value in found.items()}


class AlignmentUniformity(_Module):
    """Alignment and uniformity of a feature space, on L2-normalised features; lower is better for both.

    Alignment is the mean squared distance of two examples that carry exactly the same labels (examples without a label
    form no pair; NaN where there is none); uniformity is the logarithm of the mean of exp(-t d^2) over all pairs.

    Args:
        predictions: For each example a row with its features.
        references: Its labels, 0 or 1 each.
        t: Sharpness of the kernel, 2 in the study.
        max_rows: Measure uniformity on at most this many examples; None takes all.
    """

    predictions_type = "float64"
    paper = "Understanding Contrastive Representation Learning (Wang and Isola, 2020)"
    reference_url = "https://arxiv.org/abs/2005.10242"

    def _compute(self, predictions: Any, references: Any, t: float = 2.0, max_rows: Any = None) -> dict[str, Any]:
        return {
            "alignment": metrics.alignment(predictions, references),
            "uniformity": metrics.uniformity(predictions, t=t, max_rows=max_rows),
        }
