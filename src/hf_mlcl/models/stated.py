"""What a model's own files say: how tokens become one vector, what texts begin with, how images are prepared."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from PIL import Image
from transformers import AutoImageProcessor
from transformers.utils import cached_file

from hf_mlcl.data.images import Preprocessing
from hf_mlcl.models.families import Pooling
from hf_mlcl.models.loading import load

logger = logging.getLogger(__name__)

MODES: dict[str, Pooling] = {
    **dict.fromkeys(("cls", "cls_token"), "first"),
    **dict.fromkeys(("mean", "mean_tokens"), "mean"),
    **dict.fromkeys(("lasttoken", "last_token"), "last"),
}
"""Their names, in new files and in old ones, for what we have too."""
PROMPT = "classification"
"""Name of the prompt for our task, in any case of letters, where a model has prompts for several tasks."""

INTERPOLATION: dict[str, Any] = {name: name for name in ("nearest", "bilinear", "bicubic")} | {"lanczos": "bicubic"}
"""By their names in timm and Pillow; tensors have no Lanczos, which bicubic comes nearest to."""


def stated_pooling(name: str | os.PathLike[str], **where: Any) -> Pooling | None:
    """How its files say that tokens become one vector; None where they do not, or where we cannot."""
    stated = _read(name, f"{_pooling_folder(name, **where)}/config.json", **where)
    if not isinstance(stated, dict):
        return None
    # Files of newer versions name the mode, or several; older ones have a flag for each.
    named = stated.get("pooling_mode")
    flags = [key.removeprefix("pooling_mode_") for key, value in stated.items() if value is True]
    flags = [flag for flag in flags if flag != "include_prompt"]
    modes = (named if isinstance(named, list) else [named]) if named else flags
    if len(modes) == 1 and modes[0] in MODES:
        return MODES[modes[0]]
    if modes:
        logger.warning("%s asks for pooling by %s, which is not available here.", name, " and ".join(map(str, modes)))
    return None


def stated_prompts(name: str | os.PathLike[str], **where: Any) -> tuple[dict[str, str], str]:
    """Its prompts by name, and the one for classification: the default one, that of this name, or none."""
    stated = _read(name, "config_sentence_transformers.json", **where)
    found = stated.get("prompts") if isinstance(stated, dict) else None
    if not isinstance(found, dict):
        return {}, ""
    prompts = {str(key): value for key, value in found.items() if isinstance(value, str)}
    ours = next((key for key in prompts if key.lower() == PROMPT), None)
    default = stated.get("default_prompt_name") or ours
    return prompts, prompts.get(str(default), "")


def stated_preprocessing(name: str | os.PathLike[str], config: Any, **kwargs: Any) -> Preprocessing:
    """How a model's own files say that images are prepared; as the study does it where they say nothing.

    Images are resized to a square in any case: what they would crop off may hold objects that labels speak of. Further
    arguments are those of `hf_mlcl.models.loading.load`.
    """
    usual = Preprocessing()
    if config.model_type == "timm_wrapper":
        stated = dict(config.pretrained_cfg or {})
        size = int(stated["input_size"][-1]) if stated.get("fixed_input_size") else usual.size
        how = INTERPOLATION.get(str(stated.get("interpolation")), usual.interpolation)
        return Preprocessing(size, tuple(stated.get("mean", usual.mean)), tuple(stated.get("std", usual.std)), how)
    vision = getattr(config, "vision_config", config)  # of a model that reads texts too
    size = getattr(vision, "image_size", None) or usual.size  # of transformers, which take no other
    usual = usual._replace(size=int(size if isinstance(size, int) else size[0]))
    try:
        found: Any = load(AutoImageProcessor, name, **kwargs)
    except (OSError, ValueError):  # it has none
        return usual
    sides = [getattr(found, which, None) or {} for which in ("crop_size", "size")]
    size = next((side[key] for side in sides for key in ("height", "shortest_edge") if side.get(key)), usual.size)
    how = INTERPOLATION.get(Image.Resampling(int(found.resample)).name.lower(), usual.interpolation)
    if not found.do_normalize:
        return Preprocessing(int(size), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), how)
    return Preprocessing(int(size), tuple(found.image_mean), tuple(found.image_std), how)


def _pooling_folder(name: str | os.PathLike[str], **where: Any) -> str:
    modules = _read(name, "modules.json", **where)
    for module in modules if isinstance(modules, list) else ():
        if isinstance(module, dict) and str(module.get("type")).endswith("Pooling"):
            return Path(str(module.get("path"))).name or "1_Pooling"
    return "1_Pooling"


def _read(name: str | os.PathLike[str], file: str, **where: Any) -> Any:
    """The content of a JSON file; None where it is not there or says nothing."""
    try:
        return json.loads(Path(cached_file(os.fspath(name), file, **where)).read_text(encoding="utf-8"))
    except (OSError, TypeError, ValueError):
        return None
