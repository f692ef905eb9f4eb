"""Loading what others wrote: their code runs only if one asks for it, and nothing damaged loads in silence."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.dynamic_module_utils import get_class_from_dynamic_module
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

LONGEST_MESSAGE = 800
NAMED_WEIGHTS = 5
"""Weights that a message names."""

WHERE = ("revision", "token", "cache_dir", "subfolder", "local_files_only")
"""Arguments of ``from_pretrained`` that say where a model lies."""

ARGUMENTS_OF_FILES = ("checkpoint_path", "pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir")
"""Arguments of timm's ``create_model`` that make it read files or download them."""


def load(auto: Any, name: str | os.PathLike[str], *, trust_remote_code: bool = False, **kwargs: Any) -> Any:
    """``auto.from_pretrained``: the one way in which this package loads configurations, models and processors.

    Without `trust_remote_code`, transformers would ask on standard input whether to run the Python files that a folder
    or repository names, and take the first line of somebody's data for the answer. Here it is False unless one says
    otherwise, and nobody is asked.

    Args:
        auto: A class such as ``AutoConfig`` or ``AutoTokenizer``.
        name: Folder or Hub id.
        trust_remote_code: Whether to run code that comes with the model.
        **kwargs: For ``from_pretrained``.

    Examples:
        >>> import json, pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> config = {"model_type": "new", "auto_map": {"AutoConfig": "code.Config"}}
        >>> _ = (folder / "config.json").write_text(json.dumps(config))
        >>> load(AutoConfig, folder)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        ValueError: ... needs Python code that comes with it, which does not run unless you trust it: ...
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
            check_kernels(name, **{key: kwargs[key] for key in WHERE if key in kwargs})
    return found


def check_kernels(name: str | os.PathLike[str], **where: Any) -> None:
    """Refuse a configuration that names attention of somebody's repository: its kernels are code that would run.

    Args:
        name: Folder or Hub id.
        **where: ``revision``, ``token`` and the like.
    """
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
    r"""What an error of a library says, in one line of readable length.

    Examples:
        >>> problem(OSError("no file\nnamed config.json"))
        'no file named config.json'
    """
    if isinstance(error, StrictDataclassError) and error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split())
    text = text if len(text) <= LONGEST_MESSAGE else f"{text[: LONGEST_MESSAGE - 1]}…"
    text = text if isinstance(error, OSError | ValueError) and text else f"{type(error).__name__}: {text}"
    hint = " (on the command line: --trust_remote_code)" if "trust_remote_code" in str(error) else ""
    return text.rstrip(".") + hint


# Code -----------------------------------------------------------------------------------------------------------------


def make_backbone_known(backbone: PreTrainedModel) -> None:
    """Let models around a backbone with code of its own be saved and loaded in this process.

    Raises:
        ValueError: If its code calls itself by the name of a model of transformers, which would be loaded instead.
    """
    kind = type(backbone.config)
    if kind.model_type in CONFIG_MAPPING and CONFIG_MAPPING[kind.model_type] is not kind:
        raise ValueError(
            f"its code redefines {kind.model_type!r}, a model type of transformers, with which a saved model would be "
            f"loaded. Give the configuration in its code a model_type of its own."
        )
    AutoConfig.register(kind.model_type, kind, exist_ok=True)
    AutoModel.register(kind, type(backbone), exist_ok=True)


def trust_backbone(name: str | os.PathLike[str], **where: Any) -> None:
    """Run the code of the backbone within one of our models, so that its configuration can be read.

    Args:
        name: Folder or Hub id of the model.
        **where: ``revision``, ``token`` and the like.
    """
    backbone = PreTrainedConfig.get_config_dict(name, **where)[0].get("backbone_config")
    settings = backbone if isinstance(backbone, Mapping) else {}
    code = settings.get("auto_map")
    if not isinstance(code, Mapping) or settings.get("model_type") in CONFIG_MAPPING:
        return
    config, model = (get_class_from_dynamic_module(code[auto], name, **where) for auto in ("AutoConfig", "AutoModel"))
    config.register_for_auto_class()  # so that it goes along when the model is saved again
    model.register_for_auto_class("AutoModel")
    AutoConfig.register(settings["model_type"], config, exist_ok=True)
    AutoModel.register(config, model, exist_ok=True)


# Weights --------------------------------------------------------------------------------------------------------------


def check_weights(name: Any, found: Mapping[str, Any], *, foreign: bool = False) -> None:
    """Refuse a model that did not get exactly the weights it has: what is missing would be drawn at random.

    Args:
        name: Folder or Hub id, for the message.
        found: What ``from_pretrained(..., output_loading_info=True)`` tells.
        foreign: Of a model that is not ours, weights that it does not use are no sign of damage.

    Examples:
        >>> check_weights("run/classifier", {"missing_keys": {"heads.bias"}})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        ValueError: The weights in run/classifier do not fit its config.json: heads.bias missing. Save or download ...
    """
    sizes = [f"{key} {list(stored)} for {list(own)}" for key, stored, own in found.get("mismatched_keys", ())]
    wrong = {
        "missing": sorted(found.get("missing_keys", ())),
        "not of this model": [] if foreign else sorted(found.get("unexpected_keys", ())),
        "of another size": sorted(sizes),
    }
    said = [f"{_some(keys)} {what}" for what, keys in wrong.items() if keys]
    if said:
        raise ValueError(
            f"The weights in {name} do not fit its config.json: {'; '.join(said)}. Save or download it again."
        )


def check_finite(name: Any, model: nn.Module) -> None:
    """Refuse a model with weights that are no numbers: all of its scores would be none either."""
    broken = [key for key, weight in model.named_parameters() if not torch.isfinite(weight).all()]
    if broken:
        raise ValueError(
            f"The weights in {name} hold NaN or infinite values ({_some(broken)}): its training has diverged, or the "
            f"file is damaged."
        )


def unreadable_weights(name: str | os.PathLike[str], error: SafetensorError) -> ValueError:
    """An error that names the file of a folder which is no whole safetensors file."""
    files = [Path(name)] if Path(name).is_file() else sorted(Path(name).glob("*.safetensors"))
    broken = [str(file) for file in files if not _opens(file)]
    return ValueError(
        f"{', '.join(broken) or f'The weights of {name}'} cannot be read ({error}): the file is damaged or was not "
        f"written to its end. Save or download it again."
    )


def _opens(file: Path) -> bool:
    try:
        with safe_open(file, framework="pt"):
            return True
    except (OSError, SafetensorError):
        return False


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_WEIGHTS} more" if len(names) > NAMED_WEIGHTS else ""
    return ", ".join(names[:NAMED_WEIGHTS]) + more
