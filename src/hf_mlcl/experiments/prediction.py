"""Predictions of a saved classifier for texts and images."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import transformers
from safetensors import SafetensorError
from transformers import BatchFeature
from transformers.image_utils import load_image

from hf_mlcl.data import download, encode_labels
from hf_mlcl.evaluation.feature_cache import feature_key
from hf_mlcl.experiments.output_folder import OutputFolder
from hf_mlcl.experiments.results import METRICS_FILE, ExperimentResult
from hf_mlcl.files import PLAN_FILE, RUNS_FOLDER
from hf_mlcl.inference.encoding import reads_both, text_image_batch
from hf_mlcl.metrics import DecisionRule
from hf_mlcl.models import MLCLConfig
from hf_mlcl.models.loading import (
    CLASSIFIER_FOLDER,
    check_finite,
    check_weights,
    load,
    model_within,
    problem,
    trust_backbone,
    unreadable_weights,
)
from hf_mlcl.models.pipelines import probabilities_of


class Prediction(NamedTuple):
    """What a classifier says of one row."""

    row: Any  # as it came
    probabilities: npt.NDArray[np.float32] | None = None  # of every label; None where there is an error
    error: str | None = None  # why there are none, and how to fix it


class Predictor:
    """A saved classifier, ready to predict.

    Args:
        model: A folder with a classifier, the output folder of an experiment, or a model on the Hub.
        batch_size: Texts or images at a time.
        device: Such as ``"cpu"`` or ``"cuda:0"``; the best there is if not given.
        trust_remote_code: Whether to run Python files that come with the model.

    Attributes:
        label_names: The labels, in the order of their ids.
        rule: What it decides by, as saved with the classifier: `rule.decide(probabilities)`.
        modality: ``"text"``, ``"image"``, or ``"text+image"`` for rows with either or both, as `Encoder` takes them.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        batch_size: int = 32,
        device: str | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        self.model = model_within(model)
        self.batch_size = batch_size
        try:
            if not Path(self.model).is_dir() and not download.hub_is_reachable():
                raise ValueError("it is no folder here, and the Hub cannot be reached")
            self._load(device, trust_remote_code)
        except Exception as error:  # a folder that somebody else wrote can break the libraries anywhere
            raise ValueError(
                f"{str(model)!r} is not a classifier that can be loaded: {problem(error)}. Give the output folder of a "
                f"training, its {CLASSIFIER_FOLDER}/, or a classifier on the Hub."
            ) from error

    def _load(self, device: str | None, trust: bool) -> None:
        if trust:
            trust_backbone(self.model)
        config = load(transformers.AutoConfig, self.model, trust_remote_code=trust)
        architecture = str((config.architectures or ["unknown"])[0])
        if not architecture.endswith(("ForSequenceClassification", "ForImageClassification")):
            raise ValueError(f"it holds a {architecture}, which does not classify")
        images = architecture.endswith("ForImageClassification")
        kind, processor = transformers.AutoModelForSequenceClassification, transformers.AutoTokenizer
        if images:
            kind, processor = transformers.AutoModelForImageClassification, transformers.AutoImageProcessor
        self.modality = "image" if images else "text"
        if isinstance(config, MLCLConfig) and reads_both(config):
            self.modality, processor = "text+image", transformers.AutoProcessor
        self.label_names: list[str] = [str(config.id2label[number]) for number in range(config.num_labels)]
        self.rule = DecisionRule.of(config)
        try:
            found, weights = load(kind, self.model, trust_remote_code=trust, config=config, output_loading_info=True)
        except SafetensorError as error:
            raise unreadable_weights(self.model, error) from error
        check_weights(self.model, weights, foreign=not isinstance(config, MLCLConfig))
        check_finite(self.model, found)
        self._processor = load(processor, self.model, trust_remote_code=trust)
        if self.modality == "text" and self._processor.pad_token is None:
            self.batch_size = 1  # nothing to fill shorter texts with
        best = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "cpu"
        self._classifier: Any = found.to(best if device is None else device).eval()

    def predictions(self, rows: Iterable[Any]) -> Iterator[list[Prediction]]:
        """Predict texts or images (PIL images or paths) as they come, a batch at a time; a `Prediction` stays as it is.

        Nothing is kept, and a row that fails stops no other.
        """
        rest = iter(rows)
        while batch := list(itertools.islice(rest, self.batch_size)):
            good = [row for row in batch if not isinstance(row, Prediction)]
            found = iter(self._predict(good) if good else [])
            yield [row if isinstance(row, Prediction) else next(found) for row in batch]

    def probabilities(self, rows: Sequence[Any]) -> npt.NDArray[np.float32]:
        """The probability of every label (rows, labels); a ValueError names a row that cannot be predicted."""
        result = np.zeros((len(rows), len(self.label_names)), dtype=np.float32)
        for number, found in enumerate(itertools.chain.from_iterable(self.predictions(rows))):
            if found.probabilities is None:
                raise ValueError(f"Row {number + 1} cannot be predicted: {found.error}.")
            result[number] = found.probabilities
        return result

    def contents(self, rows: Any) -> Sequence[Any]:
        """What it reads of a `datasets.Dataset`, decoded when it is asked for; a ValueError if it has nothing of it."""
        return contents_of(rows, self.modality)

    def readable(self, rows: Any) -> Any:
        """Of a `datasets.Dataset` with texts and images, the rows that have what it reads; the others are counted."""
        from hf_mlcl.experiments.inputs import readable_rows

        found = readable_rows({"rows": rows}, self.modality, "The classifier")["rows"]
        if len(rows) and not len(found):
            raise ValueError(f"The classifier reads {self.modality}s, but none of the {len(rows)} rows has one.")
        return found

    def truth(self, rows: Any) -> npt.NDArray[np.bool_]:
        """The labels of a `datasets.Dataset`, multi-hot, as this classifier knows them; a ValueError if it does not."""
        names = rows.features["labels"].feature.names
        named = [[names[number] for number in labels] for labels in rows["labels"]]
        unknown = sorted({name for row in named for name in row} - set(self.label_names))
        if unknown:
            raise ValueError(
                f"The data have labels that the classifier does not know: {', '.join(unknown[:5])}. It knows "
                f"{', '.join(self.label_names[:10])}{', …' if len(self.label_names) > 10 else ''}."
            )
        return encode_labels(named, self.label_names) > 0

    def features(self, rows: Sequence[Any]) -> npt.NDArray[np.float32]:
        """The backbone's features (rows, hidden), by which neighbours are found."""
        return self.features_and_probabilities(rows)[0]

    def features_and_probabilities(
        self, rows: Sequence[Any]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """The encoder's features (rows, size), and the probability of every label, from one pass.

        Texts of a length are taken together, so that little is filled up.
        """
        if not isinstance(self._classifier.config, MLCLConfig):
            raise ValueError(f"{self.model} is a model of another kind, whose features are not known.")
        lengths = [len(row) if self.modality == "text" else 0 for row in rows]
        order = np.argsort(lengths, kind="stable")
        found: list[tuple[Any, Any]] = []
        with torch.inference_mode():
            for start in range(0, len(rows), self.batch_size):
                inputs = self._inputs([rows[int(i)] for i in order[start : start + self.batch_size]])
                features = self._classifier.features_of(dict(inputs))
                logits = self._classifier.logits_of(features)
                found.append((features.float().cpu(), probabilities_of(logits, self._classifier.config).cpu()))
        back = np.argsort(order)
        features, probabilities = (torch.cat(part).numpy()[back] for part in zip(*found, strict=True))
        return features, probabilities

    def feature_key(self, data: str) -> str:
        """What the features of data with this fingerprint follow from: the weights, and how rows become inputs."""
        processing = {"config": self._classifier.config.to_dict(), "processor": str(self._processor)}
        return feature_key(self._classifier.state_dict(), data, processing)

    def _predict(self, rows: list[Any]) -> list[Prediction]:
        """Predict rows together, and one by one if that fails, to find out which of them it is."""
        try:
            with torch.inference_mode():
                logits = self._classifier(**self._inputs(rows)).logits
            every = probabilities_of(logits, self._classifier.config).cpu().numpy()
        except Exception as error:  # of a tokenizer, an image's format or the model, depending on the row
            if len(rows) == 1:
                return [Prediction(rows[0], None, problem(error))]
            return [found for row in rows for found in self._predict([row])]
        return [
            Prediction(row, scores) if np.isfinite(scores).all() else Prediction(row, None, "its scores are not finite")
            for row, scores in zip(rows, every, strict=True)
        ]

    def _inputs(self, rows: list[Any]) -> Any:
        if self.modality == "text+image":
            inputs: Any = BatchFeature(text_image_batch(self._processor, rows))
        elif self.modality == "image":
            inputs = self._processor(images=[load_image(row) for row in rows], return_tensors="pt")
            inputs = inputs.to(self._classifier.dtype)
        else:
            inputs = self._processor(rows, padding=len(rows) > 1, truncation=True, return_tensors="pt")
        return inputs.to(self._classifier.device)


def contents_of(rows: Any, modality: str) -> Sequence[Any]:
    """Texts or images of a `datasets.Dataset`; for a model that reads both, rows with one or both of them."""
    columns = [name for name in modality.split("+") if name in rows.column_names]
    if not columns:
        raise ValueError(f"The classifier takes {modality}s, but the data have {rows.column_names[0]}s.")
    found: Sequence[Any] = rows.select_columns(columns) if modality == "text+image" else rows[columns[0]]
    return found


def newest_classifier(folder: str | os.PathLike[str] = "outputs") -> Path | None:
    """The classifier that was saved last anywhere below a folder, or right beside it; never that of a study's run."""
    inner = f"{CLASSIFIER_FOLDER}/config.json"
    every = itertools.chain(Path(folder).glob(f"**/{inner}"), Path(folder).absolute().parent.glob(f"*/{inner}"))
    found = [path for path in every if path.is_file() and not _is_of_study(path)]
    newest = max(found, key=lambda path: path.stat().st_mtime, default=None)
    return None if newest is None else newest.parent


def _is_of_study(path: Path) -> bool:
    return any(up.name == RUNS_FOLDER and (up.parent / PLAN_FILE).exists() for up in path.parents)


def training_result(model: str | os.PathLike[str]) -> ExperimentResult | None:
    """What came of the experiment that a classifier came from, where its folder tells it."""
    folder = Path(model_within(model)).parent
    if not (folder / METRICS_FILE).is_file():
        return None
    try:
        result = ExperimentResult.load(folder)
        if not isinstance(result.settings, dict):
            raise TypeError(f"its settings are {result.settings!r}")
        return result
    except Exception as error:  # of JSON or of what it holds: the file is not what training has written
        raise ValueError(
            f"{folder / METRICS_FILE}, which says what the classifier was trained on, cannot be read "
            f"({type(error).__name__}: {' '.join(str(error).split())}). Restore it, or move it away to score every row."
        ) from error


def training_settings(model: str | os.PathLike[str]) -> dict[str, Any]:
    """The settings of that experiment, as far as they are known; also of one that was interrupted."""
    result = training_result(model)
    folder = Path(model_within(model))
    return result.settings if result else OutputFolder(folder.parent).published(folder.name)
