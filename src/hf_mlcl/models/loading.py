"""Loading what others wrote: their code runs only if one asks for it, and nothing damaged loads in silence."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig
from transformers.dynamic_module_utils import get_class_from_dynamic_module
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

CLASSIFIER_FOLDER = "classifier"
"""In the output folder of a training."""
LONGEST_MESSAGE = 800
NAMED_WEIGHTS = 5
ARGUMENTS_OF_FILES = ("checkpoint_path", "pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir")
"""Arguments of timm's ``create_model`` that make it read files or download them."""


def place(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Those arguments of ``from_pretrained`` that say where a model lies."""
    names = ("revision", "token", "cache_dir", "subfolder", "local_files_only")
    return {name: kwargs[name] for name in names if name in kwargs}


def model_within(folder: str | os.PathLike[str], part: str = CLASSIFIER_FOLDER) -> str:
    """The classifier, or another part, within the output folder of a training; anything else as it is."""
    inner = Path(folder) / part
    return str(inner) if (inner / "config.json").is_file() else os.fspath(folder)


def load(auto: Any, name: str | os.PathLike[str], *, trust_remote_code: bool = False, **kwargs: Any) -> Any:
    """``auto.from_pretrained``: the one way in which this package loads configurations, models and processors.

    Without `trust_remote_code`, transformers would ask on standard input whether to run the Python files that a folder
    or repository names, and take the first line of somebody's data for the answer. Here it is False unless one says
    otherwise, and nobody is asked.
    """
    try:
        found = auto.from_pretrained(name, trust_remote_code=bool(trust_remote_code), **kwargs)
    except ValueError as error:
        if trust_remote_code or "trust_remote_code" not in str(error):
            raise
        raise ValueError(
            f"{os.fspath(name)} needs Python code that comes with it, which does not run unless you trust it: "
            f"trust_remote_code=True"
        ) from error
    if isinstance(found, PreTrainedConfig):
        check_timm(found)
        if not trust_remote_code:
            check_kernels(name, **place(kwargs))
    return found


def check_kernels(name: str | os.PathLike[str], **where: Any) -> None:
    """Refuse a configuration that names attention of somebody's repository: its kernels are code that would run."""
    left: list[tuple[str, Any]] = [("", PreTrainedConfig.get_config_dict(name, **where)[0])]
    while left:
        key, value = left.pop()
        if isinstance(value, Mapping):
            left += [(key if "_implementation" in key else str(inner), item) for inner, item in value.items()]
        elif "_implementation" in key and isinstance(value, str) and "/" in value:
            raise ValueError(
                f"{os.fspath(name)} needs code of {value!r} ({key} in its config.json), which does not run unless you "
                f"trust it: trust_remote_code=True"
            )


def check_timm(config: PreTrainedConfig) -> None:
    """Refuse the configuration of a timm model that would make timm open or download files, pickles among them."""
    if config.model_type != "timm_wrapper":
        return
    import timm

    if not isinstance(config.architecture, str) or not timm.is_model(config.architecture):
        raise ValueError(f"architecture must be the name of a timm model, but is {config.architecture!r}.")
    files = [name for name in config.model_args or {} if name in ARGUMENTS_OF_FILES]
    if files:
        raise ValueError(f"model_args must describe the architecture only, but has {', '.join(files)}.")


def problem(error: BaseException) -> str:
    """What an error of a library says, in one line of readable length."""
    if isinstance(error, StrictDataclassError) and error.__cause__ is not None:
        error = error.__cause__
    text = textwrap.shorten(str(error), LONGEST_MESSAGE, placeholder="…")
    if not text or not isinstance(error, OSError | ValueError):
        text = f"{type(error).__name__}: {text}"
    hint = " (on the command line: --trust_remote_code)" if "trust_remote_code" in str(error) else ""
    return text.rstrip(".") + hint


def make_backbone_known(config: Any, model: Any) -> None:
    """Let models around a backbone of these classes, its own code, be saved and loaded in this process."""
    kind = config.model_type
    if kind in CONFIG_MAPPING and CONFIG_MAPPING[kind] is not config:
        raise ValueError(
            f"its code redefines {kind!r}, a model type of transformers, with which a saved model would be loaded. "
            f"Give the configuration in its code a model_type of its own."
        )
    AutoConfig.register(kind, config, exist_ok=True)
    AutoModel.register(config, model, exist_ok=True)


def trust_backbone(name: str | os.PathLike[str], **where: Any) -> None:
    """Run the code of the backbone within one of our models, so that its configuration can be read."""
    backbone = PreTrainedConfig.get_config_dict(name, **where)[0].get("backbone_config")
    settings = backbone if isinstance(backbone, Mapping) else {}
    code = settings.get("auto_map")
    if not isinstance(code, Mapping) or settings.get("model_type") in CONFIG_MAPPING:
        return
    config, model = (get_class_from_dynamic_module(code[auto], name, **where) for auto in ("AutoConfig", "AutoModel"))
    config.register_for_auto_class()  # so that it goes along when the model is saved again
    model.register_for_auto_class("AutoModel")
    make_backbone_known(config, model)


def check_weights(name: Any, found: Mapping[str, Any], *, foreign: bool = False) -> None:
    """Refuse a model that did not get exactly the weights it has: what is missing would be drawn at random.

    `found` is what ``from_pretrained(..., output_loading_info=True)`` tells. Of a `foreign` model, which is not ours,
    weights that it does not use are no sign of damage.
    """
    sizes = [f"{key} {list(stored)} for {list(own)}" for key, stored, own in found.get("mismatched_keys", ())]
    wrong = {
        "missing": sorted(found.get("missing_keys", ())),
        "not of this model": [] if foreign else sorted(found.get("unexpected_keys", ())),
        "of another size": sorted(sizes),
    }
    said = "; ".join(f"{_some(keys)} {what}" for what, keys in wrong.items() if keys)
    if said:
        raise ValueError(f"The weights in {name} do not fit its config.json: {said}. Save or download it again.")


def check_finite(name: Any, model: nn.Module) -> None:
    """Refuse a model with weights that are no numbers: all of its scores would be none either."""
    broken = [key for key, weight in model.named_parameters() if not torch.isfinite(weight).all()]
    if broken:
        what = f"The weights in {name} hold NaN or infinite values ({_some(broken)})"
        raise ValueError(f"{what}: its training has diverged, or the file is damaged.")


def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a safetensors file, and its metadata."""
    try:
        with safe_open(path, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118 - no dict
    except SafetensorError as error:
        raise unreadable_weights(path, error) from error


def unreadable_weights(name: str | os.PathLike[str], error: SafetensorError) -> ValueError:
    """An error that names the file of a folder which is no whole safetensors file."""
    broken = []
    for file in [Path(name)] if Path(name).is_file() else sorted(Path(name).glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt"):
                pass
        except (OSError, SafetensorError):
            broken.append(str(file))
    return ValueError(
        f"{' and '.join(broken) or f'The weights of {name}'} cannot be read ({error}): the file is damaged or was not "
        "written to its end. Save or download it again."
    )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_WEIGHTS} more" if len(names) > NAMED_WEIGHTS else ""
    return ", ".join(names[:NAMED_WEIGHTS]) + more
