"""From a list of rows to a batch: padded tokens, stacked pixels or both, with labels as rows of zeros and ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from hf_mlcl.data.labels import encode_labels

Row = Mapping[str, Any]


Labels = int | Sequence[str]
"""How many labels there are, or what they are called, in the order of their ids."""


class _Labelled:
    """What all have in common: labels stand in a column, or, where they have names, in a column of 0 and 1 for each."""

    num_labels: Labels
    label_column: str

    @property
    def columns(self) -> list[str]:
        """The columns that it reads beside the model's inputs."""
        content = [getattr(self, name) for name in ("text_column", "image_column") if hasattr(self, name)]
        return [*content, self.label_column, *self._names]

    @property
    def _names(self) -> list[str]:
        return [] if isinstance(self.num_labels, int) else list(self.num_labels)

    def _labels(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        """The multi-hot labels of a batch; nothing for rows without labels, which can be predicted as well."""
        names, column = self._names, self.label_column
        if column in rows[0]:
            cells = [row[column] for row in rows]
        elif names and all(name in rows[0] for name in names):
            cells = [[_flag(row[name], name) for name in names] for row in rows]
        else:
            return {}
        return {"labels": torch.from_numpy(encode_labels(cells, self.num_labels, column))}


def _flag(value: Any, column: str) -> bool:
    if value not in (0, 1):  # also True, 1.0 and the like
        raise ValueError(f"Column {column!r} is that of a label, but holds {value!r}; expected 0 or 1 in every row.")
    return bool(value)


@dataclass
class TextCollator(_Labelled):
    """Pads tokenised rows to the longest of the batch and encodes their labels.

    Args:
        tokenizer: The tokenizer that made the rows; knows how to pad.
        num_labels: Number of labels; or their names, in the order of their ids, for rows that hold names. The trainer
            puts the names of its model here.
        pad_to_multiple_of: Round the length up to a multiple; 8 suits tensor cores.
        label_column: Column with labels: lists of ids or names, names in one text (``"sport|music"``), or multi-hot
            rows. Without it, columns of 0 and 1 that are called as the labels are read.
        max_length: Tokens of a row to keep; the one that says that the text ends, if there is such a one, among them.

    Examples:
        >>> from hf_mlcl.data import word_tokenizer
        >>> rows = [{"input_ids": [5, 6], "labels": [2]}, {"input_ids": [7], "labels": []}]
        >>> batch = TextCollator(word_tokenizer(["a cat"]), num_labels=3)(rows)
        >>> batch["input_ids"].tolist(), batch["labels"].tolist()
        ([[5, 6], [7, 0]], [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    """

    tokenizer: Any
    num_labels: Labels
    pad_to_multiple_of: int | None = None
    label_column: str = "labels"
    max_length: int | None = None

    def __call__(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        """Make a batch."""
        inputs = [
            name for name in dict.fromkeys((*self.tokenizer.model_input_names, "token_type_ids")) if name in rows[0]
        ]
        if not inputs:
            raise ValueError(
                f"The rows have the columns {', '.join(rows[0])}, but none of the tokenizer's inputs "
                f"({', '.join(self.tokenizer.model_input_names)}). Tokenise the corpus first: "
                f"hf_mlcl.data.tokenize(corpus, tokenizer)."
            )
        unpadded = {name: [row[name] for row in rows] for name in inputs}
        if self.max_length is not None:
            kept = [self._kept(row["input_ids"]) for row in rows]
            unpadded = {
                name: [[values[i] for i in places] for values, places in zip(column, kept, strict=True)]
                for name, column in unpadded.items()
            }
        batch = self.tokenizer.pad(unpadded, pad_to_multiple_of=self.pad_to_multiple_of, return_tensors="pt")
        return {**batch, **self._labels(rows)}

    def _kept(self, tokens: Sequence[int]) -> list[int]:
        """Which tokens of a row are kept, for all of its inputs alike."""
        most, places = self.max_length or 0, list(range(len(tokens)))
        if len(tokens) <= most:
            return places
        special = self.tokenizer.all_special_ids
        if self.tokenizer.truncation_side == "left":
            return [0, *places[1 - most :]] if tokens[0] in special else places[-most:]
        return [*places[: most - 1], places[-1]] if tokens[-1] in special else places[:most]


@dataclass
class ImageCollator(_Labelled):
    """Decodes, transforms and stacks images and encodes their labels.

    The work is done here and not in the dataset because a collator runs in the workers of the `DataLoader`.

    Args:
        transform: Makes a tensor of an image, such as `image_transform(train=True)`. Images of a batch need one size.
        num_labels: As in `TextCollator`, also `label_column`.
        image_column: Column with images.
        label_column: Column with labels.
        views: With 2, each image is transformed twice and the batch has shape (batch, 2, 3, height, width): both views
            become anchors, as in SupCon.

    Examples:
        >>> from PIL import Image
        >>> from hf_mlcl.data import image_transform
        >>> collate = ImageCollator(image_transform(size=8), num_labels=2)
        >>> batch = collate([{"image": Image.new("L", (20, 10)), "labels": [1]}])
        >>> batch["pixel_values"].shape, batch["labels"]
        (torch.Size([1, 3, 8, 8]), tensor([[0., 1.]]))
    """

    transform: Callable[[Any], Tensor]
    num_labels: Labels
    image_column: str = "image"
    label_column: str = "labels"
    views: int = 1

    def __call__(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        """Make a batch."""
        if self.image_column not in rows[0]:
            raise ValueError(
                f"The rows have the columns {', '.join(rows[0]) or '(none)'}, but no {self.image_column!r}. Name "
                f"the column with image_column; HF's own Trainer also needs remove_unused_columns=False."
            )
        pixels = torch.stack([self.transform(row[self.image_column]) for row in rows for _ in range(self.views)])
        if self.views > 1:
            pixels = pixels.view(len(rows), self.views, *pixels.shape[1:])
        return {"pixel_values": pixels, **self._labels(rows)}


@dataclass
class TextImageCollator(_Labelled):
    """Makes batches of rows with a text, an image or both, for models that read both (CLIP, SigLIP).

    What a row lacks is filled with an empty text or a black image, and ``modality_mask`` (rows, 2) tells the model not
    to count it. Texts are cut at the tokenizer's ``model_max_length``.

    Args:
        tokenizer: Makes tokens of texts.
        transform: Makes a tensor of an image, such as `image_transform()`.
        num_labels: Number of labels.
        text_column: Column with texts; None and blank ones are missing.
        image_column: Column with images; None is missing.
        label_column: Column with lists of label ids.

    Examples:
        >>> from PIL import Image
        >>> from hf_mlcl.data import image_transform, word_tokenizer
        >>> collate = TextImageCollator(word_tokenizer(["a cat"]), image_transform(size=8), num_labels=2)
        >>> batch = collate([{"text": "a cat", "image": None}, {"image": Image.new("L", (20, 10))}])
        >>> batch["modality_mask"].tolist(), batch["pixel_values"].shape
        ([[1, 0], [0, 1]], torch.Size([2, 3, 8, 8]))
    """

    tokenizer: Any
    transform: Callable[[Any], Tensor]
    num_labels: Labels
    text_column: str = "text"
    image_column: str = "image"
    label_column: str = "labels"

    def __call__(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        """Make a batch."""
        texts = [row.get(self.text_column) or "" for row in rows]
        images = [row.get(self.image_column) for row in rows]
        has_text = torch.tensor([bool(text.strip()) for text in texts])
        has_image = torch.tensor([image is not None for image in images])
        if not (has_text | has_image).all():
            raise ValueError(
                f"A row has neither a text in {self.text_column!r} nor an image in {self.image_column!r}. Leave such "
                f"rows out, or name the columns with text_column and image_column; there are {', '.join(rows[0])}."
            )
        tokens = self.tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        # A batch without any image has pixels all the same: both towers then take part on every rank.
        black = Image.new("RGB", (8, 8))
        pixels = torch.stack([self.transform(black if image is None else image) for image in images])
        mask = torch.stack([has_text, has_image], dim=1).long()
        names = [name for name in ("input_ids", "attention_mask") if name in tokens]
        batch = {**{name: tokens[name] for name in names}, "pixel_values": pixels, "modality_mask": mask}
        return {**batch, **self._labels(rows)}


Collator = TextCollator | ImageCollator | TextImageCollator
"""Those of this package, which say what columns they read."""
