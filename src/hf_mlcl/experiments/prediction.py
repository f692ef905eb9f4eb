"""Predictions of a saved classifier for texts and images."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

CLASSIFIER_FOLDER = "classifier"
SINGLE_LABEL = "single_label"
"""Entry of a classifier's configuration: its probabilities are sigmoids, but a row has one label, the most probable."""


class Predictor:
    """A saved classifier, ready to predict.

    Args:
        model: A folder with a classifier, the output folder of an experiment, or a model on the Hub.
        batch_size: Texts or images at a time.
        device: Such as ``"cpu"`` or ``"cuda:0"``; the best there is if not given.

    Attributes:
        label_names: The labels, in the order of their ids.
        thresholds: Of each label, as saved with the classifier; 0.5 where nothing else is.
        kind: ``"text"`` or ``"image"``.
        single_label: Whether a row has exactly one label: the most probable one.
    """

    def __init__(self, model: str | os.PathLike[str], batch_size: int = 32, device: str | None = None) -> None:
        from transformers import AutoConfig, pipeline

        import hf_mlcl.models  # noqa: F401  # makes the Auto classes know our classifiers
        from hf_mlcl.data.download import hub_is_reachable

        self.model = str(classifier_folder(model))
        try:
            if not Path(self.model).is_dir() and not hub_is_reachable():
                raise ValueError("it is no folder here, and the Hub cannot be reached")
            config = AutoConfig.from_pretrained(self.model)
            architecture = (config.architectures or ["unknown"])[0]
            if not architecture.endswith(("ForSequenceClassification", "ForImageClassification")):
                raise ValueError(f"it holds a {architecture}, which does not classify")
            self.kind = "image" if architecture.endswith("ForImageClassification") else "text"
            self._pipeline: Any = pipeline(
                f"{self.kind}-classification", model=self.model, batch_size=batch_size, device=device
            )
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{str(model)!r} is not a classifier that can be loaded: {error}. Give the output folder of a "
                f"training, its {CLASSIFIER_FOLDER}/, or a classifier on the Hub."
            ) from error
        self.label_names: list[str] = [config.id2label[number] for number in range(config.num_labels)]
        self.thresholds: list[float] = getattr(config, "thresholds", None) or [0.5] * config.num_labels
        self.single_label = config.problem_type == "single_label_classification" or getattr(config, SINGLE_LABEL, False)

    def probabilities(self, rows: Sequence[Any]) -> npt.NDArray[np.float32]:
        """The probability of every label (rows, labels).

        Args:
            rows: Texts; or images, as PIL images or paths.
        """
        options: dict[str, Any] = {"top_k": None, "truncation": True}
        if self.kind == "image":
            options = {"top_k": len(self.label_names)}
        number = {name: index for index, name in enumerate(self.label_names)}
        result = np.zeros((len(rows), len(self.label_names)), dtype=np.float32)
        for row, found in enumerate(self._pipeline(list(rows), **options) if len(rows) else ()):
            for one in found:
                result[row, number[one["label"]]] = one["score"]
        return result

    def decide(self, probabilities: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
        """Which labels a row is given: those that reach their threshold, or the single most probable one."""
        if self.single_label:
            return np.asarray(np.eye(len(self.label_names), dtype=bool)[probabilities.argmax(axis=1)])
        return np.asarray(probabilities >= np.asarray(self.thresholds, dtype=np.float32))


def classifier_folder(model: str | os.PathLike[str]) -> Path | str:
    """The classifier within an experiment's output folder; anything else as it is."""
    inner = Path(model) / CLASSIFIER_FOLDER
    return inner if (inner / "config.json").is_file() else os.fspath(model)


def newest_classifier(folder: str | os.PathLike[str] = "outputs") -> Path | None:
    """The classifier that was saved last anywhere below a folder.

    Args:
        folder: Where to look.
    """
    found = Path(folder).glob(f"**/{CLASSIFIER_FOLDER}/config.json")
    newest = max(found, key=lambda path: path.stat().st_mtime, default=None)
    return None if newest is None else newest.parent
