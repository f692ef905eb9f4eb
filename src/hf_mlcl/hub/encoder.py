"""Encoders for people without this package: the plain backbone, as other libraries load it."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import TimmWrapperConfig

from hf_mlcl.files import staged
from hf_mlcl.models import FeatureBackbone, MLCLModel
from hf_mlcl.models.backbones import feature_size

PROTOTYPES_FILE = "prototypes.safetensors"
ABOUT_OTHER_WEIGHTS = ("tag", "license", "origin_url", "paper_ids", "paper_name", "notes")
"""What timm's description of an architecture says about the weights that it would download."""


def export_encoder(
    model: MLCLModel,
    folder: str | os.PathLike[str],
    processor: Any = None,
    *,
    max_length: int | None = None,
    prototypes: bool = True,
) -> Path:
    """Write an encoder as the plain backbone that it is, with no trace of this package.

    - A text encoder becomes a folder that ``AutoModel`` and ``SentenceTransformer`` load. The latter needs the
      tokenizer; its pooling is that of the model, so its vectors are our features.
    - An image encoder becomes a folder that ``timm.create_model("local-dir:FOLDER", num_classes=0)`` (or
      ``"hf-hub:..."``) and ``AutoModel`` load.
    - Prototypes and the projection into their space come beside it in ``prototypes.safetensors``; see
      `load_prototypes`.

    Args:
        model: The trained encoder.
        folder: Where to write. Files of the same names are replaced, once all could be made.
        processor: Its tokenizer or image processor.
        max_length: Tokens at which texts are cut, as in training; the tokenizer's ``model_max_length`` if not given,
            and never more than the backbone has positions for.
        prototypes: Whether to write them. A loss that does not use them has left them as they were drawn.

    Returns:
        The folder.

    Examples:
        >>> import tempfile
        >>> from transformers import AutoModel
        >>> model = MLCLModel.from_backbone("resnet10t", ["cat", "dog"], pretrained=False)
        >>> folder = export_encoder(model, tempfile.mkdtemp())
        >>> type(AutoModel.from_pretrained(folder)).__name__
        'TimmWrapperModel'
    """
    if not isinstance(model, MLCLModel):
        raise ValueError(f"model must be an MLCLModel, got {type(model).__name__}. Classifiers: export_classifier.")
    if isinstance(model.backbone, FeatureBackbone):
        raise ValueError(
            "model reads precomputed features, and no other library has its backbone. Share it with "
            "model.save_pretrained, or its computation with export_onnx."
        )
    with staged(folder) as stage:
        if isinstance(model.backbone.config, TimmWrapperConfig):
            save_timm(model.backbone.timm_model, model.backbone.config, stage, processor)
        else:
            model.backbone.save_pretrained(stage)
            if processor is not None:
                length = save_tokenizer(processor, model, stage, max_length)
                _save_sentence_transformer(model, stage, length)
        if prototypes:
            _save_prototypes(model, stage / PROTOTYPES_FILE)
    return Path(folder)


def load_prototypes(folder: str | os.PathLike[str]) -> tuple[list[str], dict[str, Tensor]]:
    """What `export_encoder` wrote beside an encoder.

    The file is plain safetensors with the labels' names as JSON under ``labels`` in its metadata, so that anybody can
    read it. ``projection_out @ relu(projection_hidden @ feature)`` is the embedding of a feature; its cosine similarity
    to a row of ``prototypes`` scores that label.

    Args:
        folder: The encoder's folder.

    Returns:
        The labels' names, and the tensors ``prototypes``, ``projection_hidden`` and ``projection_out``.
    """
    from safetensors import safe_open

    path = Path(folder) / PROTOTYPES_FILE
    if not path.is_file():
        raise ValueError(f"There are no prototypes in {Path(folder)}: export_encoder writes {PROTOTYPES_FILE}.")
    with safe_open(path, framework="pt") as file:
        names: list[str] = json.loads(file.metadata()["labels"])
        return names, {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # it is no dict


def _save_prototypes(model: MLCLModel, path: Path) -> None:
    from safetensors.torch import save_file

    tensors = {
        "prototypes": model.prototypes.weight,
        "projection_hidden": model.projection.hidden.weight,
        "projection_out": model.projection.out.weight,
    }
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(stored, path, {"format": "pt", "labels": json.dumps(model.config.label_names)})


# Images ---------------------------------------------------------------------------------------------------------------


def save_timm(
    model: Any, config: TimmWrapperConfig, folder: Path, processor: Any, labels: list[str] | None = None
) -> None:
    """Write a timm model in timm's own layout, which transformers reads as well."""
    from timm.models import save_for_hf

    model = copy.copy(model)  # whose description is changed, while its weights are shared
    described = {key: value for key, value in dict(model.pretrained_cfg).items() if key not in ABOUT_OTHER_WEIGHTS}
    model.pretrained_cfg = {**described, **_preprocessing(processor)}
    model.pretrained_cfg["architecture"] = config.architecture
    settings: dict[str, Any] = {}
    if labels:
        settings = {"label_names": labels, "problem_type": "multi_label_classification"}
    if processor is not None and not hasattr(processor, "data_config"):  # timm's own is in config.json already
        processor.save_pretrained(folder)
        # transformers would otherwise take timm's transform for a local folder, and what was saved for the Hub's.
        settings["image_processor_type"] = type(processor).__name__
    save_for_hf(model, str(folder), settings, model_args=config.model_args, safe_serialization=True)


def _preprocessing(processor: Any) -> dict[str, Any]:
    """An image processor's settings in timm's words, so that timm's transform prepares images alike."""
    if processor is None:
        return {}
    if hasattr(processor, "data_config"):  # timm's, in transformers' clothes
        return dict(processor.data_config)
    wanted = getattr(processor, "size", None)
    size = _as_dict(wanted)
    if not {"height", "width"} <= size.keys():
        raise ValueError(
            f"processor must resize images to a fixed height and width, but its size is {wanted}. Use "
            "hf_mlcl.data.image_processor(size)."
        )
    return {
        "input_size": (3, size["height"], size["width"]),
        "test_input_size": (3, size["height"], size["width"]),
        "crop_pct": 1.0,
        "test_crop_pct": 1.0,
        "crop_mode": "squash",
        "interpolation": {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}[int(processor.resample)],
        "mean": tuple(processor.image_mean),
        "std": tuple(processor.image_std),
    }


def _as_dict(size: Any) -> dict[str, Any]:
    return dict(size) if isinstance(size, Mapping) else {k: v for k, v in vars(size or object).items() if v is not None}


# Texts ----------------------------------------------------------------------------------------------------------------


def save_tokenizer(tokenizer: Any, model: Any, folder: Path, max_length: int | None) -> int:
    """Write the tokenizer with the length at which it cuts, and return that length."""
    if not hasattr(tokenizer, "model_max_length"):
        raise ValueError(f"processor must be the tokenizer of a text encoder, got {type(tokenizer).__name__}.")
    if max_length is not None and max_length < 1:
        raise ValueError(f"max_length must be at least 1, got {max_length}.")
    config = model.backbone.config
    positions = getattr(config, "max_position_embeddings", None) or 10**9
    if hasattr(model.backbone, "embeddings") and hasattr(model.backbone.embeddings, "padding_idx"):
        positions -= model.backbone.embeddings.padding_idx + 1  # RoBERTa and its kin begin to count after padding
    length = int(min(max_length or tokenizer.model_max_length, positions))
    before = tokenizer.model_max_length
    try:
        tokenizer.model_max_length = length
        tokenizer.save_pretrained(folder)
    finally:
        tokenizer.model_max_length = before
    return length


def _save_sentence_transformer(model: MLCLModel, folder: Path, max_length: int) -> None:
    """The few files that make a SentenceTransformer of a backbone, in the layout that all its versions read."""
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    mean = model.config.pooling == "mean"
    pooling = {
        "word_embedding_dimension": feature_size(model.backbone),
        "pooling_mode_cls_token": not mean,
        "pooling_mode_mean_tokens": mean,
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
    }
    (folder / "1_Pooling").mkdir()
    for name, content in {
        "modules.json": modules,
        "1_Pooling/config.json": pooling,
        "sentence_bert_config.json": {"max_seq_length": max_length, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "prompts": {},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
    }.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")
