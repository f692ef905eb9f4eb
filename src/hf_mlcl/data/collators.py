"""From a list of rows to a batch: padded tokens or stacked pixels, with labels as rows of zeros and ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hf_mlcl.data.labels import encode_labels

Row = Mapping[str, Any]


def _labels(rows: Sequence[Row], num_labels: int, column: str) -> dict[str, Tensor]:
    """The multi-hot labels of a batch; nothing for rows without labels, so that unlabelled data can be predicted."""
    if column not in rows[0]:
        return {}
    return {"labels": torch.from_numpy(encode_labels([row[column] for row in rows], num_labels, column))}


@dataclass
class TextCollator:
    """Pads tokenised rows to the longest of the batch and encodes their labels.

    Args:
        tokenizer: The tokenizer that made the rows; knows how to pad.
        num_labels: Number of labels.
        pad_to_multiple_of: Round the length up to a multiple; 8 suits tensor cores.
        label_column: Column with lists of label ids.
        max_length: Tokens of a row to keep, its last one (which often says that the text ends) among them.

    Examples:
        >>> from hf_mlcl.data import word_tokenizer
        >>> rows = [{"input_ids": [5, 6], "labels": [2]}, {"input_ids": [7], "labels": []}]
        >>> batch = TextCollator(word_tokenizer(["a cat"]), num_labels=3)(rows)
        >>> batch["input_ids"].tolist(), batch["labels"].tolist()
        ([[5, 6], [7, 0]], [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    """

    tokenizer: Any
    num_labels: int
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
        unpadded = {name: [self._cut(row[name]) for row in rows] for name in inputs}
        batch = self.tokenizer.pad(unpadded, pad_to_multiple_of=self.pad_to_multiple_of, return_tensors="pt")
        return {**batch, **_labels(rows, self.num_labels, self.label_column)}

    def _cut(self, tokens: list[int]) -> list[int]:
        whole = self.max_length is None or len(tokens) <= self.max_length
        return tokens if whole else [*tokens[: self.max_length - 1], tokens[-1]]  # type: ignore[operator]


@dataclass
class ImageCollator:
    """Decodes, transforms and stacks images and encodes their labels.

    The work is done here and not in the dataset because a collator runs in the workers of the `DataLoader`.

    Args:
        transform: Makes a tensor of an image, such as `image_transform(train=True)`. Images of a batch need one size.
        num_labels: Number of labels.
        image_column: Column with images.
        label_column: Column with lists of label ids.
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
    num_labels: int
    image_column: str = "image"
    label_column: str = "labels"
    views: int = 1

    def __call__(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        """Make a batch."""
        if self.image_column not in rows[0]:
            raise ValueError(
                f"The rows have the columns {', '.join(rows[0]) or '(none)'}, but no {self.image_column!r}. With the "
                f"Trainer, pass remove_unused_columns=False; else name the column with image_column."
            )
        pixels = torch.stack([self.transform(row[self.image_column]) for row in rows for _ in range(self.views)])
        if self.views > 1:
            pixels = pixels.view(len(rows), self.views, *pixels.shape[1:])
        return {"pixel_values": pixels, **_labels(rows, self.num_labels, self.label_column)}
