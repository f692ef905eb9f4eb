"""Encoders that were exported as plain backbones, with what makes an `MLCLModel` of them again beside them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import save_file
from transformers import PreTrainedConfig
from transformers.utils import cached_file

from hf_mlcl.models.loading import check_weights, place, read_tensors

if TYPE_CHECKING:
    from hf_mlcl.models.modeling import MLCLModel

PROTOTYPES_FILE = "prototypes.safetensors"
PARTS = {
    "prototypes": "prototypes.weight",
    "projection_hidden": "projection.hidden.weight",
    "projection_hidden_bias": "projection.hidden.bias",
    "projection_out": "projection.out.weight",
    "projection_out_bias": "projection.out.bias",
    "classifier": "classifier.weight",
    "classifier_bias": "classifier.bias",
}
"""What the tensors in the file are called, and what they are called in the model."""
HEADS = (
    *("projection_dim", "projection_bias", "pooling", "normalize_features", "modalities"),
    *("classifier", "classifier_dropout"),
)
"""Settings of `MLCLConfig` that go along."""


def save_prototypes(model: MLCLModel, path: Path) -> None:
    """Write all that an encoder has beside its backbone: prototypes, projection, perhaps a classifier; and names."""
    weights = model.state_dict()
    found = {name: weights[key].cpu().contiguous() for name, key in PARTS.items() if key in weights}
    settings = {name: getattr(model.config, name) for name in HEADS}
    save_file(
        found, path, {"format": "pt", "labels": json.dumps(model.config.label_names), "config": json.dumps(settings)}
    )


def exported_encoder(name: str | os.PathLike[str], kwargs: dict[str, Any]) -> MLCLModel | None:
    """The encoder that `export_encoder` wrote, as it was before; None where something else is there."""
    from hf_mlcl.models.modeling import MLCLModel

    where = place(kwargs)
    try:
        described = PreTrainedConfig.get_config_dict(name, **where)[0]
    except (OSError, ValueError):  # whoever loads it says what is wrong
        return None
    if described.get("model_type") == "mlcl":
        return None
    file = cached_file(os.fspath(name), PROTOTYPES_FILE, _raise_exceptions_for_missing_entries=False, **where)
    if file is None:
        return None
    tensors, facts = read_tensors(file)
    if "config" not in facts:
        raise ValueError(f"{file} has no settings of an encoder in its metadata: export the encoder again.")
    model: MLCLModel = MLCLModel.from_backbone(
        name, json.loads(facts["labels"]), **{**json.loads(facts["config"]), **kwargs}
    )
    weights = {PARTS.get(key, key): value for key, value in tensors.items()}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    own = [key for key in missing if not key.startswith("backbone.")]
    check_weights(file, {"missing_keys": own, "unexpected_keys": unexpected})
    return model
