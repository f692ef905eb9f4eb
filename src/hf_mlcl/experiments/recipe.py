"""What a recipe states: the settings of the study for one corpus, or those that suit data of your own."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import torch

from hf_mlcl.data import load_tokenizer
from hf_mlcl.data.own import OwnData
from hf_mlcl.experiments.arguments import SMALL_BACKBONE
from hf_mlcl.experiments.inputs import without_vain_attempts
from hf_mlcl.losses import hyperparameters, on_logits_only

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Recipe:
    """The settings of one corpus.

    A setting is a field of `ExperimentArguments` or `ContrastiveTrainingArguments`, or the name of a hyperparameter of
    losses (``alpha``), which goes to those losses that have it. Where the study tried several values they stand in a
    tuple, and the first is used unless another is asked for.

    Attributes:
        corpus: The corpus's name.
        loss: The loss that the recipe trains with by default.
        settings: What holds for every loss and size.
        contrastive: What holds where a contrastive loss takes part.
        logit: What holds for losses on logits.
        small: What changes for ``size="small"``.
        contrastive_small: What changes for contrastive losses on the small version.
        logit_small: What changes for losses on logits on the small version.

    Examples:
        >>> recipe = Recipe("aapd", contrastive={"learning_rate": (5e-5, 2e-5), "alpha": 0.0}, logit={"optim": "sgd"})
        >>> recipe.for_loss("reg")
        {'learning_rate': 5e-05, 'loss_kwargs': {'alpha': 0.0}}
        >>> recipe.for_loss("zlpr")
        {'optim': 'sgd'}
        >>> [point["learning_rate"] for point in recipe.grid("reg")]
        [5e-05, 2e-05]
    """

    corpus: str
    loss: str = "reg"
    settings: Settings = field(default_factory=dict)
    contrastive: Settings = field(default_factory=dict)
    logit: Settings = field(default_factory=dict)
    small: Settings = field(default_factory=dict)
    contrastive_small: Settings = field(default_factory=dict)
    logit_small: Settings = field(default_factory=dict)

    def for_loss(self, loss: str, size: str = "full") -> dict[str, Any]:
        """The settings for a loss, the first of several."""
        return self.grid(loss, size)[0]

    def grid(self, loss: str, size: str = "full") -> list[dict[str, Any]]:
        """The settings for a loss, or several joined with ``+``: one for each combination that the study tried."""
        kind = "logit" if on_logits_only(loss) else "contrastive"
        chosen = {**self.settings, **getattr(self, kind)}
        if size == "small":
            chosen |= {**self.small, **getattr(self, f"{kind}_small")}
        tried = [value if isinstance(value, tuple) else (value,) for value in chosen.values()]
        points = [_with_hyperparameters(loss, dict(zip(chosen, values, strict=True))) for values in product(*tried)]
        return [point for number, point in enumerate(points) if point not in points[:number]]


def study_recipe(corpus: str) -> Recipe:
    """The recipe of a corpus: the study's settings for it."""
    from hf_mlcl.recipes import RECIPES

    if corpus not in RECIPES:
        raise ValueError(f"There is no recipe for {corpus!r}. There are: {', '.join(sorted(RECIPES))}.")
    recipe: Recipe = importlib.import_module(f"hf_mlcl.recipes.{RECIPES[corpus]}").RECIPE
    return recipe


def _with_hyperparameters(loss: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Move the hyperparameters of losses to ``loss_kwargs``; those that the loss does not have are left out."""
    known = hyperparameters(loss)
    named = {name: settings.pop(name) for name in ("alpha", "beta") if name in settings}
    taken = {name: value for name, value in named.items() if name in known}
    return {**settings, "loss_kwargs": taken} if taken else settings


STEPS = {"text": 80, "image": 160, "text+image": 80}
"""Steps of fine-tuning to aim at: a good encoder needs few."""
STEPS_FROM_NOTHING = 1500
"""Steps that an encoder takes that has learned nothing yet."""
BATCH = 32
TRAIN_TOKENS = 128
"""Tokens that fine-tuning reads of a text where there is no GPU: half the time of 256. The classifier reads all."""
LENGTHS = 2000
"""Texts whose length is measured."""
CHUNK = 64
"""Rows that an encoder computes at a time: fits a GPU with 12 GB, and leaves the batch as it is."""

BACKBONES = {
    ("text", "cpu"): ("sentence-transformers/all-MiniLM-L6-v2", 91),
    ("text", "gpu"): ("sentence-transformers/all-mpnet-base-v2", 438),
    ("image", "cpu"): ("timm/mobilenetv2_100.ra_in1k", 14),
    ("image", "gpu"): ("timm/resnet50.a1_in1k", 103),
    ("text+image", "cpu"): ("openai/clip-vit-base-patch32", 605),
    ("text+image", "gpu"): ("openai/clip-vit-base-patch16", 599),
}
"""What fine-tunes in minutes on each kind of machine, and the megabytes of its download."""


def default_backbone(modality: str) -> tuple[str, int]:
    """The backbone for texts or images on this machine, and its size in megabytes."""
    return BACKBONES[modality, "gpu" if torch.accelerator.is_available() else "cpu"]


def own_recipe(data: OwnData, corpus: str, backbone: str | None = None) -> Recipe:
    """Settings that suit the data and the machine; every one can be changed.

    A pre-trained encoder is fine-tuned for about 80 steps (texts) or 160 (images), between 2 and 16 epochs (1 above
    20,000 rows), from where its frozen features end: `hf_mlcl.experiments.stages`. A ``"small"`` one learns from
    nothing, in about 1,500 steps.

    Args:
        data: The data.
        corpus: What to call them.
        backbone: The backbone; a small sentence encoder or image model if not given, a larger one where there is a GPU.

    Examples:
        >>> from hf_mlcl.data import load_corpus
        >>> data = OwnData(load_corpus("toy_text"), "text", "text", "built in", "as given")
        >>> settings = own_recipe(data, "toy_text").for_loss("reg")
        >>> settings["protocol"], settings["global_batch_size"], settings["num_train_epochs"]
        ('best', 32, 2)
    """
    rows = len(data.splits["train"])
    settings: dict[str, Any] = {
        "backbone": backbone or default_backbone(data.modality)[0],
        "protocol": "best",
        "per_device_eval_batch_size": 64,
        "save_steps": 0.25,
        "report_to": "none",
        "logging_steps": 25,
        "thresholds": "macro_f1",
    }
    if data.modality == "text":
        settings["max_length"] = _tokens(data, settings["backbone"])
    if backbone == SMALL_BACKBONE:
        settings |= {"learning_rate": 1e-3, "image_size": 64} if data.modality != "text" else {"learning_rate": 1e-3}
        batch = int(np.clip(2 ** round(math.log2(max(rows / 20, 1))), 16, 256))
        contrastive, logit = (
            {"global_batch_size": size, "num_train_epochs": _epochs(rows, size, STEPS_FROM_NOTHING, 3, 40)}
            for size in (batch, min(batch, 32))
        )
        return Recipe(corpus, settings=settings, contrastive=contrastive, logit=logit)
    devices = int(os.environ.get("WORLD_SIZE", 0)) or max(torch.cuda.device_count(), 1)
    batch = max(min(BATCH, rows) // devices, 1) * devices
    settings |= {
        "learning_rate": 1e-4,
        "head_learning_rate": 1e-3,
        "warmup_steps": 0.1,
        "global_batch_size": batch,
        "num_train_epochs": _epochs(rows, batch, STEPS[data.modality], 1 if rows > 20_000 else 2, 16),
        "prototype_init": "names",
    }
    if data.modality != "text":
        settings |= {"augmentation": "crop", "freeze_batch_norm": True}
        if data.modality == "text+image":
            settings["learning_rate"] = 2e-5  # CLIP forgets at higher ones
    else:
        settings |= {"pooling": "auto", "train_sampling_strategy": "group_by_length", "freeze_embeddings": True}
        if not torch.accelerator.is_available():
            settings["max_train_length"] = TRAIN_TOKENS
    return Recipe(corpus, settings=settings)


def _epochs(rows: int, batch: int, steps: int, fewest: int, most: int) -> int:
    return int(np.clip(round(steps * batch / max(rows, 1)), fewest, most))


def _tokens(data: OwnData, backbone: str) -> int:
    """A length that holds 95 % of the texts, as a multiple of 16 between 32 and 256."""
    texts = list(data.splits["train"]["text"][:LENGTHS])
    lengths = [math.ceil(1.25 * len(text.split())) for text in texts]  # 4 words make about 5 tokens
    if backbone != SMALL_BACKBONE:
        with suppress(Exception), without_vain_attempts(backbone):  # it is loaded for good later, and told then
            lengths = [len(tokens) for tokens in load_tokenizer(backbone)(texts)["input_ids"]]
    return int(np.clip(16 * math.ceil(float(np.quantile(lengths, 0.95)) / 16), 32, 256))
