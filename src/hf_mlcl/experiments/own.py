"""Settings for data of one's own, from their size and the machine."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer

from hf_mlcl.data.own import OwnData
from hf_mlcl.experiments.arguments import SMALL_BACKBONE
from hf_mlcl.experiments.inputs import without_vain_attempts
from hf_mlcl.experiments.recipe import Recipe
from hf_mlcl.models.loading import load

STEPS = 160
"""Steps of fine-tuning to aim at: a good encoder needs few."""
STEPS_FROM_NOTHING = 1500
"""Steps that an encoder takes that has learned nothing yet."""
BATCH = 32
LENGTHS = 2000
"""Texts whose length is measured."""
CHUNK = 64
"""Rows that an encoder computes at a time: fits a GPU with 12 GB, and leaves the batch as it is."""

BACKBONES = {
    ("text", "cpu"): ("sentence-transformers/all-MiniLM-L6-v2", 91),
    ("text", "gpu"): ("sentence-transformers/all-mpnet-base-v2", 438),
    ("image", "cpu"): ("timm/mobilenetv2_100.ra_in1k", 14),
    ("image", "gpu"): ("timm/resnet50.a1_in1k", 103),
}
"""What fine-tunes in minutes on each kind of machine, and the megabytes of its download."""


def default_backbone(kind: str) -> tuple[str, int]:
    """The backbone for texts or images on this machine, and its size in megabytes."""
    return BACKBONES[kind, "gpu" if torch.accelerator.is_available() else "cpu"]


def own_recipe(data: OwnData, corpus: str, backbone: str | None = None) -> Recipe:
    """Settings that suit the data and the machine; every one can be changed.

    A pre-trained encoder is fine-tuned for about 160 steps, between 2 and 16 epochs (1 above 20,000 rows), from where
    its frozen features end: `hf_mlcl.experiments.stages`. A ``"small"`` one learns from nothing, in about 1,500 steps.

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
        "backbone": backbone or default_backbone(data.kind)[0],
        "protocol": "best",
        "per_device_eval_batch_size": 64,
        "save_steps": 0.25,
        "report_to": "none",
        "logging_steps": 25,
        "thresholds": "macro_f1",
    }
    if data.kind == "text":
        settings["max_length"] = _tokens(data, settings["backbone"])
    if backbone == SMALL_BACKBONE:
        settings |= {"learning_rate": 1e-3, "image_size": 64} if data.kind == "image" else {"learning_rate": 1e-3}
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
        "num_train_epochs": _epochs(rows, batch, STEPS, 1 if rows > 20_000 else 2, 16),
        "prototype_init": "names",
    }
    settings |= {"pooling": "auto"} if data.kind == "text" else {"augmentation": "crop", "freeze_batch_norm": True}
    return Recipe(corpus, settings=settings)


def _epochs(rows: int, batch: int, steps: int, fewest: int, most: int) -> int:
    return int(np.clip(round(steps * batch / max(rows, 1)), fewest, most))


def _tokens(data: OwnData, backbone: str) -> int:
    """A length that holds 95 % of the texts, as a multiple of 16 between 32 and 256."""
    texts = list(data.splits["train"]["text"][:LENGTHS])
    lengths = [math.ceil(1.25 * len(text.split())) for text in texts]  # 4 words make about 5 tokens
    if backbone != SMALL_BACKBONE:
        with suppress(Exception), without_vain_attempts(backbone):  # it is loaded for good later, and told then
            lengths = [len(tokens) for tokens in load(AutoTokenizer, backbone)(texts)["input_ids"]]
    return int(np.clip(16 * math.ceil(float(np.quantile(lengths, 0.95)) / 16), 32, 256))
