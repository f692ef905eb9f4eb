"""Training examples of a classifier with their features: those nearest to a text or an image, and their labels."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError
from PIL import Image

from hf_mlcl.experiments.prediction import Predictor, training_settings
from hf_mlcl.experiments.results import DATA_FINGERPRINT, DATA_SOURCE
from hf_mlcl.files import whole_file
from hf_mlcl.inference import ExampleIndex
from hf_mlcl.training.batches import evenly

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

EXAMPLES_FILE = "examples.parquet"
MOST = 2000
"""Examples that are kept; of more rows they are drawn evenly."""
THUMBNAIL = 160
"""Pixels of the longer side of an image that is kept."""


@dataclass(frozen=True)
class Examples:
    """Examples, the nearest of which are found by the features of a classifier."""

    content: list[Any]  # texts, or small JPEG images
    labels: list[list[str]]  # names
    index: ExampleIndex  # of their features
    names: list[str]  # what to call each in a line: the text, or the image's file

    @classmethod
    def of(cls, predictor: Predictor, rows: Dataset, most: int = MOST) -> Examples:
        """Encode rows with a column ``text`` or ``image`` and one of labels."""
        if predictor.modality == "text+image":
            raise ValueError("Nearest examples are for classifiers of texts or of images; this one reads both.")
        if predictor.modality not in rows.column_names:
            raise ValueError(f"The classifier takes {predictor.modality}s, but the data have {rows.column_names[0]}s.")
        chosen = evenly(rows, most)
        known = chosen.features["labels"].feature.names
        inputs = list(chosen[predictor.modality])
        images = predictor.modality == "image"
        return cls(
            [_thumbnail(one) for one in inputs] if images else inputs,
            [[known[label] for label in row] for row in chosen["labels"]],
            ExampleIndex(predictor.features(inputs)),
            [Path(one.filename or f"row {i}").name for i, one in enumerate(inputs)] if images else inputs,
        )

    def nearest(self, predictor: Predictor, inputs: Sequence[Any], count: int) -> list[list[dict[str, Any]]]:
        """For each text or image the nearest examples: ``example``, ``labels``, ``similarity`` and ``row`` in here."""
        found = self.index.search(predictor.features(list(inputs)), min(count, len(self.content)))
        return [
            [
                {"example": self.names[i], "labels": self.labels[i], "similarity": round(float(s), 4), "row": int(i)}
                for i, s in zip(rows, similarity, strict=True)
            ]
            for rows, similarity in zip(found.rows, found.similarity, strict=True)
        ]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a Parquet file, all of it or nothing."""
        features = self.index.features.numpy()
        table = {"content": self.content, "labels": self.labels, "name": self.names, "features": list(features)}
        with whole_file(path) as draft:
            pq.write_table(pa.table(table), draft)

    @classmethod
    def beside(cls, model: str) -> Examples | None:
        """What `hf-mlcl push --space` left in a training's output folder, or sent to the Hub; None without any."""
        if Path(model).is_dir():
            path = Path(model) / EXAMPLES_FILE
            return cls.load(path) if path.is_file() else None
        try:
            return cls.load(hf_hub_download(model, EXAMPLES_FILE))
        except EntryNotFoundError:
            return None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Examples:
        """Read what `save` has written."""
        table = pq.read_table(path).to_pydict()
        index = ExampleIndex(np.asarray(table["features"], dtype=np.float32))
        return cls(table["content"], table["labels"], index, table["name"])


def training_rows(model: str | os.PathLike[str], data: str | None = None) -> Dataset:
    """The training rows of a classifier, found again by what its folder tells; or those of other data."""
    from hf_mlcl.data.own import data_fingerprint, read_own_data
    from hf_mlcl.data.registry import list_corpora, load_corpus
    from hf_mlcl.experiments.inputs import OWN_DATA, corpus_options, sample_rows

    settings = training_settings(model)
    corpus = data or settings.get("corpus")
    if corpus is None:
        raise ValueError(f"It is not known what {os.fspath(model)} was trained on. Name the data: --examples DATA.")
    if corpus in list_corpora():
        size = str(settings.get("size", "full"))
        options = corpus_options(corpus, size, settings.get("corpus_options"), int(settings.get("seed", 42)))
        rows = load_corpus(corpus, size=size, data_dir=settings.get("data_dir"), **options)["train"]
        return rows if data else sample_rows(rows, settings.get("max_train_samples"))
    if data:
        return read_own_data(data).splits["train"]
    columns: Any = {name: settings.get(name) for name in OWN_DATA}
    splits = read_own_data(settings.get(DATA_SOURCE, corpus), **columns).splits
    if settings.get(DATA_FINGERPRINT, "") != data_fingerprint(splits):
        logger.warning("%s has changed since the training: some examples may not have been trained on.", corpus)
    return sample_rows(splits["train"], settings.get("max_train_samples"))


def _thumbnail(image: Any) -> bytes:
    small, file = image.convert("RGB"), io.BytesIO()
    small.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
    small.save(file, "JPEG", quality=80)
    return file.getvalue()
