"""What every export begins with: a model that holds still, and inputs to compare it with what was written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import TimmWrapperConfig

from hf_mlcl.models import MLCLForImageClassification, MLCLForSequenceClassification, MLCLModel

OURS = (MLCLModel, MLCLForSequenceClassification, MLCLForImageClassification)


@contextmanager
def ready_for_export(model: Any) -> Iterator[None]:
    """One of our models in evaluation mode and on the CPU, without gradients, for as long as an export takes."""
    if not isinstance(model, OURS):
        names = ", ".join(kind.__name__ for kind in OURS)
        raise ValueError(f"The model to export must be one of {names}; got {type(model).__name__}.")
    if model.config.modalities is not None:
        raise ValueError(
            f"{type(model.backbone).__name__} with texts, images or both has no counterpart in another library: load "
            f"it with hf_mlcl. export_encoder writes its backbone, which AutoModel loads."
        )
    if model.dtype != torch.float32:
        raise ValueError(f"model must be in float32 to be exported, but is in {model.dtype}: call model.float() first.")
    was_training, device = model.training, model.device
    model.eval().cpu()
    try:
        with torch.no_grad():
            yield
    finally:
        model.to(device).train(was_training)


def example_inputs(model: Any, rows: int, length: int, image_size: int | None = None) -> dict[str, Tensor]:
    """Inputs to compare models on: texts of up to `length` tokens, images or vectors.

    Sizes that are free differ between an even and an odd number of rows.
    """
    random, config = torch.Generator().manual_seed(length), model.backbone.config
    if model.main_input_name == "feature_values":
        return {"feature_values": torch.randn(rows, config.feature_dim, generator=random)}
    if model.main_input_name == "pixel_values":
        side = (image_size, image_size) if image_size is not None else _fixed_size(model.backbone)
        height, width = side or ((96, 128) if rows % 2 else (64, 64))
        return {"pixel_values": torch.randn(rows, 3, height, width, generator=random)}
    ids = torch.randint(min(5, config.vocab_size - 1), config.vocab_size, (rows, length), generator=random)
    mask = (torch.arange(length) < torch.tensor([[length - 2 * row] for row in range(rows)])).long()
    return {"input_ids": ids, "attention_mask": mask}


def _fixed_size(backbone: Any) -> tuple[int, int] | None:
    """Height and width of the images that a model was made for, where it takes no others."""
    if not isinstance(backbone.config, TimmWrapperConfig):
        size = getattr(backbone.config, "image_size", None)  # of vision transformers; others take any
        return (size, size) if isinstance(size, int) else tuple(size) if size else None
    described = backbone.timm_model.pretrained_cfg
    if not described.get("fixed_input_size"):
        return None
    embedding = getattr(backbone.timm_model, "patch_embed", None)  # it knows of an img_size= given
    return getattr(embedding, "img_size", None) or tuple(described["input_size"][1:])
