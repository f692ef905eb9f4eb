"""Backbones: text encoders, timm models and precomputed features, each as the `PreTrainedModel` it is."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import timm
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel, TimmWrapperConfig
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.models.auto.modeling_auto import MODEL_MAPPING

from hf_mlcl.models.configuration import FeatureBackboneConfig
from hf_mlcl.models.families import Pooling, PoolingError, auto_pooling, check_pooling, is_causal
from hf_mlcl.models.loading import load, make_backbone_known, place, problem, unreadable_weights
from hf_mlcl.models.stated import stated_pooling

logger = logging.getLogger(__name__)


class FeatureBackbone(PreTrainedModel):
    """A residual MLP over vectors that some other model computed; see `MLCLModel.from_features`."""

    config_class = FeatureBackboneConfig
    base_model_prefix = "features"
    main_input_name = "feature_values"

    def __init__(self, config: FeatureBackboneConfig) -> None:
        super().__init__(config)
        dim = config.feature_dim
        self.blocks = nn.ModuleList()
        for _ in range(config.num_layers):
            layers = [nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU(), nn.Dropout(config.dropout)]
            self.blocks.append(nn.Sequential(*layers, nn.Linear(dim, dim)))
        self.post_init()

    def forward(self, feature_values: Tensor, **kwargs: Any) -> BaseModelOutputWithPooling:
        """Each block adds to what it is given."""
        hidden = feature_values.to(self.dtype) if self.config.num_layers else feature_values
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return BaseModelOutputWithPooling(last_hidden_state=hidden, pooler_output=hidden)


AutoConfig.register("mlcl_features", FeatureBackboneConfig)
AutoModel.register(FeatureBackboneConfig, FeatureBackbone)


def backbone_from_config(
    config: PreTrainedConfig, trust_remote_code: bool = False, *, pooling: Pooling | None = None, **kwargs: Any
) -> PreTrainedModel:
    """A backbone with random weights, without the pooling layer if `pooling` does not use it."""
    with _without_pooler(config, pooling) as arguments:
        backbone = AutoModel.from_config(config, trust_remote_code=trust_remote_code, **arguments, **kwargs)
    if isinstance(config, TimmWrapperConfig) and not any(parameter.is_meta for parameter in backbone.parameters()):
        # transformers draws all weights from one normal distribution; timm knows how its models want to start.
        initial = timm.create_model(config.architecture, num_classes=0, **(config.model_args or {}))
        backbone.timm_model.load_state_dict(initial.state_dict())
    return backbone


def load_backbone(
    name: str | os.PathLike[str] | PreTrainedModel,
    *,
    pooling: Pooling | Literal["auto"] = "auto",
    pretrained: bool = True,
    weights: str | Path | None = None,
    trust_remote_code: bool = False,
    **kwargs: Any,
) -> tuple[PreTrainedModel, Pooling]:
    """A backbone by name, or the one that is given, and its pooling; the arguments are those of `from_backbone`."""
    if not isinstance(name, str | os.PathLike):
        defaults = {"pretrained": (pretrained, True), "weights": (weights, None)}
        further = [*kwargs, *(key for key, (given, usual) in defaults.items() if given != usual)]
        backbone = _given_backbone(name, further)
        # What it was loaded from, if anything, is in the cache: nothing is fetched for it now.
        return backbone, _chosen_pooling(pooling, backbone.config, backbone.name_or_path, local_files_only=True)
    name = os.fspath(name)
    is_folder = Path(name).is_dir()
    if not is_folder and "/" not in name and timm.is_model(name):
        if kwargs:
            raise ValueError(f"A timm architecture takes pretrained= and weights= only; got {', '.join(kwargs)}.")
        backbone = _timm_backbone(name, pretrained, weights)
        return backbone, _chosen_pooling(pooling, backbone.config)
    if weights is not None:
        raise ValueError(f"weights is for a timm architecture such as 'resnet50'; {name!r} brings its own.")
    # transformers would take the stored dtype, but small updates vanish in half precision; bf16=True casts by itself.
    kwargs.setdefault("dtype", kwargs.pop("torch_dtype", torch.float32))
    try:
        config = load(AutoConfig, name, trust_remote_code=trust_remote_code, **place(kwargs))
        if config.model_type == "mlcl":
            raise ValueError("It is an MLCLModel already: load it with MLCLModel.from_pretrained.")
        pooled = _chosen_pooling(pooling, config, name, **place(kwargs))
        if pretrained:
            backbone = _with_weights(name, config, pooled, trust_remote_code, kwargs)
        else:
            chosen = {key: kwargs[key] for key in ("attn_implementation", "dtype") if kwargs.get(key, "auto") != "auto"}
            backbone = backbone_from_config(config, trust_remote_code, pooling=pooled, **chosen)
        if is_folder or not pretrained:  # once a folder is gone, its name would be taken for an id of the Hub
            backbone.config.name_or_path = ""
        if backbone.is_remote_code():
            make_backbone_known(type(backbone.config), type(backbone))
        elif hasattr(backbone.config, "auto_map"):
            del backbone.config.auto_map  # transformers' own code was taken: whoever loads it needs no other
        return backbone, pooled
    except PoolingError:
        raise
    except Exception as error:  # whatever is wrong with the folder of somebody else
        raise ValueError(
            f"The backbone {name!r} could not be loaded. Expected: a model id of the Hub (online), a local folder with "
            f"config.json and safetensors weights, or a timm architecture such as 'resnet50'. {problem(error)}"
        ) from error


def _chosen_pooling(
    pooling: Pooling | Literal["auto"], config: PreTrainedConfig, name: str = "", **where: Any
) -> Pooling:
    """The pooling that was asked for, if it can be; with "auto" what the model's own files say, or its architecture."""
    stated = stated_pooling(name, **where) if pooling == "auto" and name else None
    if stated == "first" and is_causal(config):  # a mistake in its files
        stated = None
    chosen = stated or (auto_pooling(config) if pooling == "auto" else pooling)
    check_pooling(config, chosen)
    return chosen


def _with_weights(
    name: str, config: PreTrainedConfig, pooling: Pooling, trust_remote_code: bool, kwargs: dict[str, Any]
) -> PreTrainedModel:
    settings = {"config": config, "use_safetensors": True, "output_loading_info": True, **kwargs}
    try:
        with _without_pooler(config, pooling) as arguments:
            backbone, found = load(AutoModel, name, trust_remote_code=trust_remote_code, **settings, **arguments)
    except SafetensorError as error:
        raise unreadable_weights(name, error) from error
    if missing := sorted(found["missing_keys"]):
        # Checkpoints of other tasks may lack something, and training can make up for it: nobody is stopped.
        logger.warning("%s has no weights for %s: they start at random.", name, ", ".join(missing))
    return backbone


def _given_backbone(backbone: Any, further: list[str]) -> PreTrainedModel:
    """A backbone that came as an object."""
    bare = isinstance(backbone, PreTrainedModel) and backbone.base_model is backbone
    if not bare or backbone.config.model_type == "mlcl":
        raise ValueError(
            f"name must be a Hub id, a folder, a timm architecture ('resnet50', with weights=FILE) or an encoder of "
            f"transformers without heads for a task; got {type(backbone).__name__}. Give the encoder within a model "
            f"with heads: model.base_model (of an MLCLModel, model.backbone)."
        )
    if further:
        raise ValueError(f"A backbone that is given as an object is taken as it is; got {', '.join(further)} as well.")
    return backbone


def _timm_backbone(name: str, pretrained: bool, weights: str | Path | None) -> PreTrainedModel:
    overlay = {"pretrained_cfg_overlay": {"file": str(weights)}} if weights is not None else {}
    try:
        model = timm.create_model(name, pretrained=pretrained, num_classes=0, **overlay)
    except (OSError, RuntimeError, SafetensorError) as error:
        raise ValueError(
            f"The weights of the timm model {name!r} could not be loaded from {weights or 'the Hub'}. Give weights= (a "
            f"safetensors file), pretrained=False for random ones, or check the network. {error}"
        ) from error
    # The image processor reads mean, deviation and size from here.
    config = TimmWrapperConfig(architecture=name, pretrained_cfg=model.pretrained_cfg, num_labels=0)
    backbone = AutoModel.from_config(config, trust_remote_code=False)
    backbone.timm_model.load_state_dict(model.state_dict())
    return backbone


@contextmanager
def _without_pooler(config: PreTrainedConfig, pooling: Pooling | None) -> Iterator[dict[str, bool]]:
    """Arguments that leave out a pooler, which would get no gradient; loading need not report its weights."""
    cls: Any = MODEL_MAPPING.get(type(config), None)
    # What came with code of its own is taken as it is: before that code has run, nobody knows what it takes.
    is_known = inspect.isclass(cls) and not cls.__module__.startswith("transformers_modules")
    if pooling == "pooled" or not is_known or "add_pooling_layer" not in inspect.signature(cls.__init__).parameters:
        yield {}
        return
    before = cls._keys_to_ignore_on_load_unexpected  # private, but the only way to silence the report on some keys
    cls._keys_to_ignore_on_load_unexpected = [*(before or []), r"pooler"]
    try:
        yield {"add_pooling_layer": False}
    finally:
        cls._keys_to_ignore_on_load_unexpected = before
