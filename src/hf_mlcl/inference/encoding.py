"""From texts and images to vectors, in batches: what scores by prototypes and retrieval start from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor
from transformers import AutoImageProcessor, AutoProcessor, AutoTokenizer
from transformers.image_processing_base import ImageProcessingMixin
from transformers.image_utils import load_image

from hf_mlcl.data.collators import TextImageCollator
from hf_mlcl.models.loading import check_finite, load, place, problem
from hf_mlcl.models.modeling import MLCLModel

Inputs = Any
"""A text or an image (a PIL image, a path or an address), or a sequence of them.

Of a model that reads both, a string is a text, a PIL image or `pathlib.Path` an image, and both together are
``{"text": ..., "image": ...}``.
"""


class Encoder:
    """An `MLCLModel` with what prepares its inputs.

    Args:
        model: The encoder. It stays on its device and in its mode.
        processor: The tokenizer of a text encoder; for images an image processor, or a transform from a PIL image to a
            tensor such as `hf_mlcl.data.image_transform()`; for both a processor with the two, such as
            `transformers.CLIPProcessor`. Texts are cut at the tokenizer's ``model_max_length``, which
            `hf_mlcl.data.tokenize` sets to where training cuts.
        batch_size: Texts or images at a time.

    Examples:
        >>> from PIL import Image
        >>> from hf_mlcl.data import image_transform
        >>> model = MLCLModel.from_backbone("resnet10t", ["cat", "dog"], pretrained=False)
        >>> encoder = Encoder(model, image_transform(size=32))
        >>> encoder.features([Image.new("RGB", (40, 30)), Image.new("L", (8, 8))]).shape
        torch.Size([2, 512])
        >>> encoder.embeddings(Image.new("RGB", (40, 30))).shape  # a single one gives a single row
        torch.Size([1, 256])
    """

    def __init__(self, model: MLCLModel, processor: Any, *, batch_size: int = 64) -> None:
        if not isinstance(model, MLCLModel):
            raise ValueError(f"model must be an MLCLModel, got {type(model).__name__}.")
        if not callable(processor):
            raise ValueError(
                f"processor must be a tokenizer, an image processor or a transform of images, got {processor!r}."
            )
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
        self.model, self.processor, self.batch_size = model, processor, batch_size

    @classmethod
    def from_pretrained(
        cls, name: str | os.PathLike[str], *, batch_size: int = 64, trust_remote_code: bool = False, **kwargs: Any
    ) -> Encoder:
        """A trained encoder with its tokenizer or image processor, from a folder or the Hub.

        Python files that come with it run only with `trust_remote_code`; further arguments are for
        ``MLCLModel.from_pretrained``.
        """
        model = MLCLModel.from_pretrained(name, trust_remote_code=trust_remote_code, **kwargs)
        check_finite(name, model)
        kind = AutoImageProcessor if model.main_input_name == "pixel_values" else AutoTokenizer
        kind = AutoProcessor if reads_both(model.config) else kind
        try:
            processor = load(kind, name, trust_remote_code=trust_remote_code, **place(kwargs))
        except Exception as error:  # whatever is wrong with its files
            raise ValueError(
                f"{name} has no {_KINDS[kind]}. Save it there with processor.save_pretrained, or pass both: "
                f"Encoder(model, processor). {problem(error)}"
            ) from error
        return cls(model, processor, batch_size=batch_size)

    def features(self, inputs: Inputs) -> Tensor:
        """The backbone's representation (rows, hidden), in float32 on the CPU."""
        return self._encode(inputs, "features")

    def embeddings(self, inputs: Inputs) -> Tensor:
        """The projected features (rows, projection_dim), float32 on the CPU."""
        return self._encode(inputs, "embeddings")

    @torch.no_grad()
    def _encode(self, inputs: Inputs, what: str) -> Tensor:
        rows = [inputs] if is_single(inputs) else inputs
        if len(rows) == 0:
            raise ValueError("inputs is empty: give at least one text or image.")
        found, was_training = [], self.model.training
        self.model.eval()
        try:
            for start in range(0, len(rows), self.batch_size):
                batch = self._prepare(rows[start : start + self.batch_size])
                moved = {name: value.to(self.model.device) for name, value in batch.items()}
                found.append(self.model(**moved)[what].float().cpu())
        finally:
            self.model.train(was_training)
        result = torch.cat(found)
        broken = (~result.isfinite().all(dim=1)).nonzero().flatten().tolist()
        if broken:
            raise ValueError(
                f"The {what} of {len(broken)} of {len(result)} inputs are not finite, first of input {broken[0]}: "
                f"the weights are damaged, or the model's dtype ({self.model.dtype}) has too small a range for them."
            )
        return result

    def _prepare(self, rows: Sequence[Any]) -> dict[str, Tensor]:
        if reads_both(self.model.config):
            return text_image_batch(self.processor, rows)
        if self.model.main_input_name == "pixel_values":
            images = [load_image(_named(row)).convert("RGB") for row in rows]
            if isinstance(self.processor, ImageProcessingMixin):
                return {"pixel_values": self.processor(images, return_tensors="pt")["pixel_values"]}
            return {"pixel_values": torch.stack([self.processor(image) for image in images])}
        for row in rows:
            if not isinstance(row, str):
                raise ValueError(f"This model reads texts, but one of the inputs is {type(row).__name__}.")
        length = token_limit(self.model.backbone, self.processor.model_max_length)
        tokens = self.processor(list(rows), padding=True, truncation=True, max_length=length, return_tensors="pt")
        return {name: tokens[name] for name in ("input_ids", "attention_mask", "token_type_ids") if name in tokens}


def token_limit(backbone: Any, wanted: int) -> int:
    """The number of tokens at which texts are cut: `wanted`, but never more than a backbone has positions for."""
    # Not every encoder has a limit; RoBERTa and its kin begin to count after padding.
    positions = getattr(backbone.config, "max_position_embeddings", None) or 10**9
    padding = getattr(getattr(backbone, "embeddings", None), "padding_idx", None)
    return int(min(wanted, positions if padding is None else positions - padding - 1))


def is_single(inputs: Inputs) -> bool:
    """Whether it is one text or image, and not a sequence of them."""
    return isinstance(inputs, str | os.PathLike | Image | Mapping)


def reads_both(config: Any) -> bool:
    """Whether a model of this configuration reads rows with texts, images or both."""
    return len(config.modalities or ()) == 2


def text_image_batch(processor: Any, rows: Sequence[Any]) -> dict[str, Tensor]:
    """A batch of texts, images, or both, for a model that reads both; see `Inputs`."""

    def transform(image: Any) -> Tensor:
        return processor.image_processor(load_image(image).convert("RGB"), return_tensors="pt")["pixel_values"][0]

    found = [
        row if isinstance(row, Mapping) else {"text": row} if isinstance(row, str) else {"image": row} for row in rows
    ]
    named = [{**row, "image": _named(row.get("image"))} for row in found]
    return TextImageCollator(processor.tokenizer, transform, num_labels=0)(named)


def _named(image: Any) -> Any:
    return os.fspath(image) if isinstance(image, os.PathLike) else image


_KINDS = {AutoTokenizer: "tokenizer", AutoImageProcessor: "image processor", AutoProcessor: "processor of both"}
