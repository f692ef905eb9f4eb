"""Adapters in files: an `MLCLModel` without its backbone, and back.

A folder has ``adapter_config.json`` and ``adapter_model.safetensors`` as PEFT writes them for the backbone
(``PeftModel.from_pretrained(AutoModel.from_pretrained(base), folder)`` loads them too), ``heads.safetensors`` with
everything that is not backbone, and our ``config.json``. An adapter means nothing without the weights that it was
trained on, so the folder also names the base model and has some of its weights, which must be found again.
"""

from __future__ import annotations

import copy
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils import ADAPTER_CONFIG_NAME, ADAPTER_SAFE_WEIGHTS_NAME, cached_file

from hf_mlcl.models import adapters
from hf_mlcl.models.adapters import Origin, has_adapter, peft_library
from hf_mlcl.models.configuration import MLCLConfig
from hf_mlcl.models.loading import check_kernels, check_weights, place, read_tensors, trust_backbone

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from hf_mlcl.models.modeling import MLCLModel

HEADS_FILE = "heads.safetensors"
FILES = (ADAPTER_CONFIG_NAME, ADAPTER_SAFE_WEIGHTS_NAME, HEADS_FILE)
OF_PEFT = "base_model.model."
"""What PEFT puts before the name of every weight in its files."""


class WithAdapter(PreTrainedModel):
    """What an `MLCLModel` does otherwise than any model because it may have an adapter."""

    origin: Origin | None = None
    """Where the backbone's weights come from, if they were loaded."""

    def save_pretrained(self, save_directory: str | os.PathLike[str], *args: Any, **kwargs: Any) -> Any:
        """As for any model; of one with an adapter, the adapter and the heads, and not the backbone."""
        if not has_adapter(adapters.adopt(self)):
            return super().save_pretrained(save_directory, *args, **kwargs)
        state, first = kwargs.pop("state_dict", None), kwargs.pop("is_main_process", args[0] if args else True)
        if kwargs:
            raise ValueError(f"A model with an adapter takes no {', '.join(kwargs)} here; push it with push_to_hub.")
        return save_adapter(self, save_directory, state) if first else None

    def push_to_hub(self, *args: Any, **kwargs: Any) -> Any:
        """As for any model; a warning where others could not load what an adapter belongs to."""
        if kwargs.get("as_saved") and has_adapter(self) and self.origin is not None and Path(self.origin.name).is_dir():
            logger.warning(
                "The adapter belongs to a base model in %s, which others do not have: push without as_saved.",
                self.origin.name,
            )
        return super().push_to_hub(*args, **kwargs)

    def add_adapter(self, adapter_config: Any, adapter_name: str | None = None) -> None:
        """Let an adapter of PEFT learn in place of the backbone; as ``from_backbone(..., peft_config=)``."""
        if adapter_name not in (None, "default"):
            raise ValueError(f"A model has one adapter, called default; got adapter_name={adapter_name!r}.")
        adapters.add_adapter(self, adapter_config)

    def load_adapter(self, *args: Any, **kwargs: Any) -> Any:
        """Not here: an adapter belongs to its base model and has heads of its own."""
        raise ValueError("Load a model with its adapter: MLCLModel.from_pretrained(FOLDER).")

    def merged(self) -> Any:
        """A model without adapter that computes the same, and needs no PEFT; this one where it has none."""
        return adapters.merged(self)


def trained_state(model: MLCLModel, state_dict: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """A model's weights; of one with an adapter all but those of the backbone, the adapter's as ``adapter.*``."""
    state = model.state_dict() if state_dict is None else state_dict
    if not has_adapter(model):
        return dict(state)
    of_backbone, heads = _parted(state, "backbone.")
    (adapter,) = model.backbone.peft_config
    found = peft_library().get_peft_model_state_dict(
        model.backbone, state_dict=of_backbone, adapter_name=adapter, save_embedding_layers=False
    )
    return {f"adapter.{name}": value for name, value in found.items()} | heads


def load_trained_state(
    model: MLCLModel, state: Mapping[str, Tensor], name: Any = "the state", *, new_sizes: bool = False
) -> None:
    """Give a model what `trained_state` gave; every weight must be there, and of the same size.

    With `new_sizes`, heads of another size stay as they are.
    """
    own = trained_state(model)
    other = {key for key in own.keys() & state.keys() if own[key].shape != state[key].shape}
    allowed = {key for key in other if new_sizes and not key.startswith("adapter.")}
    found = {
        "missing_keys": own.keys() - state.keys(),
        "unexpected_keys": state.keys() - own.keys(),
        "mismatched_keys": [(key, state[key].shape, own[key].shape) for key in other - allowed],
    }
    check_weights(name, found)
    of_adapter, heads = _parted({key: value for key, value in state.items() if key not in allowed}, "adapter.")
    model.load_state_dict(heads, strict=False)
    if has_adapter(model):
        (adapter,) = model.backbone.peft_config
        peft_library().set_peft_model_state_dict(model.backbone, of_adapter, adapter_name=adapter)


def _parted(state: Mapping[str, Tensor], prefix: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The weights whose names begin with a prefix, without it; and the others."""
    part = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
    return part, {name: value for name, value in state.items() if not name.startswith(prefix)}


def save_adapter(model: MLCLModel, folder: str | os.PathLike[str], state_dict: Any = None) -> None:
    """Write the adapter and the heads of a model."""
    state, origin = trained_state(model, state_dict), adapters.checked_origin(model)
    adapter, heads = _parted({name: value.detach().cpu().contiguous() for name, value in state.items()}, "adapter.")
    Path(folder).mkdir(parents=True, exist_ok=True)
    (config,) = copy.deepcopy(model.backbone.peft_config).values()
    config.inference_mode = True  # as PEFT itself writes it
    config.save_pretrained(os.fspath(folder))
    adapter = {OF_PEFT + name: value for name, value in adapter.items()}
    save_file(adapter, Path(folder, ADAPTER_SAFE_WEIGHTS_NAME), {"format": "pt"})
    save_file(heads, Path(folder, HEADS_FILE), {"format": "pt", "origin": json.dumps(origin._asdict())})
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)


class Stored(NamedTuple):
    """What a folder with an adapter holds."""

    config: Any
    state: dict[str, Tensor]
    origin: Origin


def find_adapter(name: str | os.PathLike[str], **where: Any) -> bool:
    """Whether a folder, or a model on the Hub, is an adapter that `save_adapter` has written."""
    missing = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_gated_repo": False}
    missing["_raise_exceptions_for_connection_errors"] = False  # what is wrong is told when its weights are loaded
    return cached_file(os.fspath(name), HEADS_FILE, **where, **missing) is not None


def read_adapter(name: str | os.PathLike[str], **where: Any) -> Stored:
    """Read what `save_adapter` has written, without the base model."""
    config, adapter, heads = (cached_file(os.fspath(name), file, **where) for file in FILES)
    settings = json.loads(Path(config).read_text(encoding="utf-8"))
    settings["inference_mode"] = False
    if settings.get("megatron_config") is not None:  # with it, PEFT would import a module that the file names
        raise ValueError(f"{config} has a megatron_config, which is not supported.")
    known = peft_library().PeftConfig.from_peft_type(**settings)
    state = {f"adapter.{key.removeprefix(OF_PEFT)}": value for key, value in read_tensors(adapter)[0].items()}
    of_heads, facts = read_tensors(heads)
    try:
        origin = Origin(**json.loads(facts["origin"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{heads} does not say which base model it belongs to. Save or download it again.") from error
    return Stored(known, {**state, **of_heads}, origin)


def load_model(
    kind: type[MLCLModel],
    name: str | os.PathLike[str],
    *,
    backbone: str | os.PathLike[str] | PreTrainedModel | None = None,
    trust_remote_code: bool | None = False,
    new_sizes: bool = False,
    **kwargs: Any,
) -> MLCLModel:
    """An `MLCLModel` with an adapter, from its folder and its base model; the arguments are ``from_pretrained``'s."""
    where = place(kwargs)
    if trust_remote_code:
        trust_backbone(name, **where)
    elif not isinstance(kwargs.get("config"), MLCLConfig):
        check_kernels(name, **where)
    stored = read_adapter(name, **where)
    passed = (*where, "adapter_kwargs", "_from_auto", "config")  # the latter three by the Auto classes
    rest = {key: value for key, value in kwargs.items() if key not in passed}
    config = kwargs.get("config")
    if config is None:
        config, rest = MLCLConfig.from_pretrained(name, return_unused_kwargs=True, **where, **rest)
    base = _base(kind, name, stored.origin, backbone, config, bool(trust_remote_code), {**rest, **where})
    model = kind.around(config, base)
    model.origin = stored.origin
    adapters.add_adapter(model, stored.config)
    load_trained_state(model, stored.state, name, new_sizes=new_sizes)
    return model.eval()


def _base(
    kind: type[MLCLModel], name: Any, origin: Origin, given: Any, config: Any, trust: bool, kwargs: dict[str, Any]
) -> PreTrainedModel:
    """The backbone that an adapter was trained on."""
    from hf_mlcl.models.backbones import load_backbone

    wanted = origin.name if given is None else given
    kwargs = {key: value for key, value in kwargs.items() if key not in ("revision", "subfolder")}
    if origin.revision is not None and given is None:
        kwargs["revision"] = origin.revision
    quantisation = getattr(config.backbone_config, "quantization_config", None)  # of quantised backbones only
    if quantisation is not None:
        kwargs.setdefault("quantization_config", quantisation)
    try:
        if isinstance(wanted, PreTrainedModel):
            backbone, _ = load_backbone(wanted, pooling=config.pooling)
        elif origin.mlcl and given is None:
            backbone = kind.from_pretrained(wanted, trust_remote_code=trust, **kwargs).backbone
        else:
            backbone, _ = load_backbone(wanted, pooling=config.pooling, trust_remote_code=trust, **kwargs)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{os.fspath(name)} is an adapter of the base model {origin.name!r}, which could not be loaded. Give the "
            f"base model, or its new place: from_pretrained(..., backbone=FOLDER). {error}"
        ) from error
    if changed := origin.differs_from(backbone):
        raise ValueError(
            f"{os.fspath(name)} is an adapter of the base model {origin.name!r}, but {changed} has other values in "
            f"{wanted if isinstance(wanted, str) else 'the backbone that was given'}: its vectors would be wrong. Give "
            "the base model that it was trained on: from_pretrained(..., backbone=FOLDER)."
        )
    return backbone
