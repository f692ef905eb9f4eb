"""Texts and images in one model: CLIP, SigLIP and the like, whose two towers give vectors of one space.

A row has a text, an image, or both. Its features are the vector of its text, the vector of its image, and two numbers
that say which of them it has: what is missing is zero, and a linear layer learns from the two numbers what to make of
that. Vectors have the length that numbers of size 1 would give them (the square root of their dimension): towers are
compared by angles, so their own lengths mean nothing, and neither tower shall outweigh the other.

With one modality only, the features are the vector of that tower, and the other one rests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from hf_mlcl.models.families import Modality

INPUTS = {"text": "input_ids", "image": "pixel_values"}


def joined_features(backbone: Any, inputs: Mapping[str, Tensor], modalities: Sequence[Modality]) -> Tensor:
    """The features of a batch of tokens, pixels or both, from the towers of `modalities`.

    What is not given, all rows lack; ``modality_mask`` (rows, 2) says it row by row: a 1 for a text, a 1 for an image.
    """
    missing = [INPUTS[name] for name in modalities if INPUTS[name] not in inputs]
    if len(missing) == len(modalities):
        raise ValueError(f"{' and '.join(missing)} is missing: this model reads {' and '.join(modalities)}s.")
    towers = {"text": text_vectors, "image": image_vectors}
    vectors = {name: towers[name](backbone, inputs) for name in modalities if INPUTS[name] in inputs}
    some = next(iter(vectors.values()))
    if len(modalities) == 1:
        return some
    names, mask = get_args(Modality), inputs.get("modality_mask")
    if mask is None:
        mask = torch.tensor([[name in vectors for name in names]], device=some.device).expand(len(some), -1)
    mask = mask.to(some.dtype)
    parts = [vectors.get(name, torch.zeros_like(some)) * mask[:, i : i + 1] for i, name in enumerate(names)]
    return torch.cat([*parts, mask], dim=1)


def name_features(backbone: Any, inputs: Mapping[str, Tensor], modalities: Sequence[Modality]) -> Tensor:
    """Where the names of labels lie among the features: what the text tower makes of them stands for both towers."""
    vectors = text_vectors(backbone, inputs)
    return vectors if len(modalities) == 1 else torch.cat([vectors, vectors, vectors.new_zeros(len(vectors), 2)], 1)


def text_vectors(backbone: Any, inputs: Mapping[str, Tensor]) -> Tensor:
    """What the text tower gives, (rows, size)."""
    ids, mask = inputs["input_ids"], inputs.get("attention_mask")
    config = backbone.config.text_config
    if config.model_type == "siglip_text_model":
        # It reads the last place of a text that was filled up to its full length, and was trained without a mask.
        ids, mask = F.pad(ids, (0, config.max_position_embeddings - ids.shape[1]), value=config.pad_token_id), None
    return _scaled(backbone.get_text_features(input_ids=ids, attention_mask=mask))


def image_vectors(backbone: Any, inputs: Mapping[str, Tensor]) -> Tensor:
    """What the image tower gives, (rows, size)."""
    return _scaled(backbone.get_image_features(pixel_values=inputs["pixel_values"]))


def _scaled(outputs: Any) -> Tensor:
    vectors = outputs.pooler_output
    return F.normalize(vectors, dim=1) * math.sqrt(vectors.shape[1])
