"""Adapters of PEFT (LoRA and its kin) on the backbone of an `MLCLModel`.

The backbone's own weights stay as they are; the adapter, the projection, the prototypes and the classifier learn, and
they are all that a checkpoint holds. ``from_backbone(..., peft_config=)``, ``model.add_adapter(config)`` and
``get_peft_model(model, config)`` end in the same place: an `MLCLModel` whose backbone has PEFT's layers in it.
"""

from __future__ import annotations

import copy
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from hf_mlcl.models.modeling import MLCLModel

KNOWN_WEIGHTS = 32
"""Weights of a base model that are remembered: one of each of so many tensors."""


class Origin(NamedTuple):
    """Where the weights of a backbone come from.

    Attributes:
        name: Hub id, folder or timm architecture; empty where they cannot be loaded again.
        revision: Of a model on the Hub, where one was given.
        mlcl: Whether it is an `MLCLModel`, whose backbone is meant.
        weights: Some of them, by name.
    """

    name: str
    revision: str | None
    mlcl: bool
    weights: dict[str, float]

    @classmethod
    def of(cls, backbone: PreTrainedModel, name: str, revision: str | None = None, mlcl: bool = False) -> Origin:
        """The origin of a backbone that was loaded from `name`."""
        name = os.path.abspath(name) if name and Path(name).is_dir() else name
        return cls(name, revision, mlcl, _some_weights(backbone))

    def differs_from(self, backbone: PreTrainedModel) -> str | None:
        """Name of a weight that a backbone does not have as it was; None where all are found again."""
        found = _some_weights(backbone, list(self.weights))
        rounding = torch.finfo(backbone.dtype).eps  # half precision may be loaded, or left, for single
        for name, value in self.weights.items():
            if name not in found or abs(found[name] - value) > rounding * max(abs(value), 1e-3):
                return name
        return None


def has_adapter(model: Any) -> bool:
    """Whether a model of ours has PEFT's layers, by any of the ways in which they get there."""
    # The flag is transformers' own, which has no public name; the attribute is what get_peft_model leaves.
    return model.backbone._hf_peft_config_loaded or "peft_config" in vars(model)


def lora(rank: int) -> Any:
    """LoRA as recipes use it: PEFT's layers for the architecture, all linear ones where it does not know it."""
    return peft_library().LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0)


def add_adapter(model: MLCLModel, config: Any) -> None:
    """Put a new adapter on a model's backbone, whose own weights stay as they are from then on."""
    peft, backbone = peft_library(), model.backbone
    if not isinstance(config, peft.PeftConfig) or config.is_prompt_learning or config.is_adaption_prompt:
        raise ValueError(
            f"peft_config must be a configuration of PEFT for layers of the backbone, such as LoraConfig(r=16), DoRA "
            f"(use_dora=True) or IA3Config(); got {type(config).__name__}, which has no weights to merge."
        )
    if has_adapter(model):
        raise ValueError("The model has an adapter already, and can have one. Merge it first: model = model.merged().")
    origin, config = checked_origin(model), copy.deepcopy(config)
    tuner = peft.PEFT_TYPE_TO_TUNER_MAPPING[config.peft_type]
    if config.target_modules is None and backbone.config.model_type not in tuner.target_module_mapping:
        config.target_modules = "all-linear"
    if config.target_modules == "all-linear":
        if not any(isinstance(part, nn.Linear | Conv1D) for part in backbone.modules()):
            raise ValueError(
                f"LoRA takes linear layers, and the backbone {type(backbone).__name__} has none. Name convolutions for "
                "it, in Python: from_backbone(..., peft_config=LoraConfig(r=16, target_modules=r'.*conv2'))."
            )
        config.exclude_modules = _never_called(backbone) or None
    if is_quantised(backbone):
        peft.prepare_model_for_kbit_training(backbone, use_gradient_checkpointing=False)
    try:
        backbone.add_adapter(config)
    except Exception as error:  # whatever PEFT does not like
        backbone._hf_peft_config_loaded = False  # which transformers sets too early
        raise ValueError(f"peft_config does not fit the backbone {type(backbone).__name__}: {error}") from error
    config.base_model_name_or_path, config.revision = origin.name, origin.revision
    _check_called(backbone)
    _check_unchanged(origin, backbone)


def checked_origin(model: MLCLModel) -> Origin:
    """Where the backbone comes from; an error where nobody could load it again for an adapter."""
    origin = model.origin
    if origin is None or not origin.name:
        raise ValueError(
            "An adapter is saved without the backbone, but nobody could load this one again: it was not loaded from a "
            "model on the Hub or from a folder (random weights, weights= of a timm architecture, precomputed "
            "features). Save it, model.save_backbone(FOLDER), and begin from there: from_backbone(FOLDER, ...)."
        )
    _check_unchanged(origin, model.backbone)
    return origin


def check_trainable(model: MLCLModel) -> None:
    """Refuse a model whose training would not be saved, or could not happen."""
    if not has_adapter(model):
        if is_quantised(model.backbone):
            raise ValueError(
                "The backbone is quantised, and such weights cannot be trained. Let an adapter learn in their place: "
                "from_backbone(..., peft_config=LoraConfig(r=16)), or model.add_adapter(LoraConfig(r=16))."
            )
        return
    checked_origin(model)
    trainable = [name for name, weight in _own_weights(model.backbone).items() if weight.requires_grad]
    if trainable:
        raise ValueError(
            f"The backbone has an adapter, and is saved without its own weights, but {trainable[0]} would be trained. "
            "Freeze it (requires_grad_(False)), or name its module in peft_config: modules_to_save=[...]."
        )


def _check_unchanged(origin: Origin, backbone: PreTrainedModel) -> None:
    if changed := origin.differs_from(backbone):
        raise ValueError(
            f"An adapter is saved without the backbone, but {changed} of this one is not what {origin.name} has: it "
            "was trained before, or peft_config changes it (init_lora_weights). Save the model, load it from there, "
            "and add the adapter then; or let init_lora_weights be True."
        )


def _never_called(backbone: nn.Module) -> list[str]:
    """Layers whose weights torch's own attention uses without calling them: an adapter there would have no effect."""
    return [f"{path}.out_proj" for path, part in backbone.named_modules() if isinstance(part, nn.MultiheadAttention)]


def _check_called(backbone: Any) -> None:
    """Refuse an adapter that has no effect until it is merged, and then a wrong one."""
    if wrong := set(_never_called(backbone)) & {path for path, _ in _layers(backbone)}:
        raise ValueError(
            f"An adapter on {min(wrong)} has no effect, since torch's attention uses that layer without calling it. "
            "Leave it out: exclude_modules=['out_proj'] in peft_config."
        )


def adopt(model: Any) -> Any:
    """The `MLCLModel` in what ``get_peft_model`` has made of it, with the adapter on its backbone alone.

    Heads are trained in full: what PEFT has put around them is merged into them. Anything else comes back as it is.
    """
    from hf_mlcl.models.modeling import MLCLModel

    wrapper = model
    if "peft" in sys.modules and isinstance(model, sys.modules["peft"].PeftModel):
        model = model.get_base_model()
    if not isinstance(model, MLCLModel):
        return wrapper
    if "peft_config" in vars(model):
        _move_to_backbone(model)
    if wrapper is not model:
        if not has_adapter(model):
            raise ValueError("This kind of adapter has no weights to merge: use LoraConfig or another one for layers.")
        wrapper.save_pretrained = model.save_pretrained  # PEFT's own would leave out the heads
    return model


def _move_to_backbone(model: MLCLModel) -> None:
    peft = peft_library()
    if len(model.peft_config) != 1:
        raise ValueError(f"The model has {len(model.peft_config)} adapters, {', '.join(model.peft_config)}; keep one.")
    ((name, config),) = model.peft_config.items()
    origin, config = checked_origin(model), copy.deepcopy(config)
    for path, layer in _layers(model, "backbone"):
        model.set_submodule(path, _unloaded(layer))
    model.requires_grad_(False)
    targets = []
    for path, layer in _layers(model.backbone):
        layer.set_adapter([name])  # and let it learn
        targets += [path] if isinstance(layer, peft.tuners.tuners_utils.BaseTunerLayer) else []
    for part in _heads(model).values():
        part.requires_grad_(True)
    _check_called(model.backbone)
    if not targets:
        raise ValueError("The adapter has no layer of the backbone: its target_modules name others.")
    kept = [part for part in config.modules_to_save or () if any(p.endswith(part) for p, _ in _layers(model.backbone))]
    # By their full names, since patterns were written for the names that layers have in the whole model.
    config.target_modules, config.modules_to_save, config.exclude_modules = targets, kept or None, None
    config.layers_to_transform = config.layers_pattern = None
    config.base_model_name_or_path, config.revision = origin.name, origin.revision
    model.backbone.peft_config = {name: config}
    model.backbone._hf_peft_config_loaded = True
    del model.peft_config


def _heads(model: MLCLModel) -> dict[str, nn.Module]:
    return {name: part for name, part in model.named_children() if name != "backbone"}


def _layers(model: nn.Module, but: str | None = None) -> list[tuple[str, Any]]:
    """What PEFT has put around modules, outermost only, with their paths; not those of the child `but`."""
    peft = peft_library()
    kinds = (peft.tuners.tuners_utils.BaseTunerLayer, peft.utils.other.AuxiliaryTrainingWrapper)
    found: list[tuple[str, Any]] = []
    for path, module in model.named_modules():
        inner = bool(found) and path.startswith(f"{found[-1][0]}.")
        if isinstance(module, kinds) and not inner and path.split(".")[0] != but:
            found.append((path, module))
    return found


def _unloaded(layer: Any, merge: bool = True) -> nn.Module:
    """What PEFT has put a layer around, with its effect merged in."""
    if isinstance(layer, peft_library().utils.other.AuxiliaryTrainingWrapper):
        return layer.unload_and_optionally_merge_module(merge=merge, safe_merge=True, adapter_names=None)
    if merge:
        layer.merge(safe_merge=True)
    return layer.get_base_layer()


def merged(model: Any) -> Any:
    """A plain model that computes the same without PEFT; the model itself where it has no adapter.

    A quantised backbone becomes one in floating point, with the values that its quantised weights stand for.
    """
    from hf_mlcl.models.modeling import MLCLModel

    model = adopt(model)
    if not isinstance(model, MLCLModel) or not has_adapter(model):
        return model
    backbone = merged_backbone(copy.deepcopy(model.backbone))
    plain = type(model).around(copy.deepcopy(model.config), backbone)
    for name, part in _heads(model).items():
        plain.set_submodule(name, copy.deepcopy(part).requires_grad_(True))
    plain.report, plain.processor = model.report, model.processor
    return plain.train(model.training)


def merged_backbone(backbone: Any) -> Any:
    """A backbone without its adapter, which is merged into it; in place, if it is not quantised."""
    if is_quantised(backbone):
        logger.warning("Merging into float32: its vectors differ by the rounding of quantised kernels. Score it again.")
        ((name, config),) = backbone.peft_config.items()
        unpack(backbone)
        weights = peft_library().get_peft_model_state_dict(backbone, adapter_name=name, save_embedding_layers=False)
        backbone = _unload(backbone, merge=False).dequantize(torch.float32)
        _forget_quantisation(backbone)
        backbone.add_adapter(config, name)
        peft_library().set_peft_model_state_dict(backbone, weights, adapter_name=name)
    return _unload(backbone, merge=True).requires_grad_(True)


def _unload(backbone: Any, merge: bool) -> Any:
    for path, layer in _layers(backbone):
        backbone.set_submodule(path, _unloaded(layer, merge))
    del backbone.peft_config
    backbone._hf_peft_config_loaded = False
    return backbone


def is_quantised(backbone: Any) -> bool:
    """Whether transformers has quantised the weights while loading them."""
    return getattr(backbone, "is_quantized", False)  # an attribute of quantised models only


def unpack(backbone: Any) -> None:
    """Undo what bitsandbytes does to 4-bit weights when it evaluates on a CPU: they can neither train nor be merged."""
    backbone.state_dict()  # its only public way to do so


def _forget_quantisation(backbone: Any) -> None:
    config = backbone.config
    for holder, attribute in ((backbone, "is_quantized"), (backbone, "hf_quantizer"), (config, "quantization_config")):
        if attribute in vars(holder):
            delattr(holder, attribute)


def _some_weights(backbone: Any, names: list[str] | None = None) -> dict[str, float]:
    """One value of each of some of a backbone's own weights, by the names that they have without an adapter."""
    own = {
        name: weight
        for name, weight in _own_weights(backbone).items()
        if weight.is_floating_point() and not weight.is_meta and not name.startswith("pooler.")
    }
    if names is None:
        names = sorted(own)[:: max(len(own) // KNOWN_WEIGHTS, 1)]
    chosen = {name: own[name].detach() for name in names if name in own}
    return {name: float(weight.flatten()[weight.numel() // 2]) for name, weight in chosen.items() if weight.numel()}


def _own_weights(backbone: Any) -> dict[str, Tensor]:
    around = tuple(f"{path}." for path, _ in _layers(backbone)) if backbone._hf_peft_config_loaded else ()
    found = {}
    for name, weight in backbone.named_parameters():
        plain = name.replace(".base_layer.", ".").replace(".original_module.", ".")
        if plain != name or not name.startswith(around or ("\0",)):
            found[plain] = weight
    return found


def peft_library() -> Any:
    """PEFT, which is loaded when somebody needs it, and need not be there."""
    try:
        import peft
        import peft.tuners.tuners_utils
        import peft.utils.other
    except ImportError as error:
        raise ImportError(f"Adapters need PEFT: pip install 'hf-mlcl[peft]'. {error}") from error
    return peft
