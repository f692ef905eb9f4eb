"""Settings for data of one's own, from their size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hf_mlcl.data.own import OwnData
from hf_mlcl.experiments.arguments import SMALL_BACKBONE
from hf_mlcl.experiments.inputs import DEFAULT_BACKBONES
from hf_mlcl.experiments.recipe import Recipe

STEPS = 1500
"""Training steps to aim at: few rows are seen often, many rows a few times."""
CHUNK = 64
"""Rows that a pre-trained encoder computes at a time: fits a GPU with 12 GB, and leaves the batch as it is."""


def own_recipe(data: OwnData, corpus: str, backbone: str | None = None) -> Recipe:
    """Settings that suit the size of the data; every one can be changed.

    Contrastive losses get a batch of about a twentieth of the rows, between 16 and 256, since they learn from pairs;
    losses on logits at most 32. The number of epochs makes about 1,500 steps, between 3 and 40 epochs. The classifier
    decides by thresholds that are tuned on validation, so that rare labels are found.

    Args:
        data: The data.
        corpus: What to call them.
        backbone: The backbone; the study's for texts or images if not given.

    Examples:
        >>> from hf_mlcl.data import load_corpus
        >>> data = OwnData(load_corpus("toy_text"), "text", "text", "built in", "as given")
        >>> settings = own_recipe(data, "toy_text", backbone="small").for_loss("reg")
        >>> settings["global_batch_size"], settings["num_train_epochs"], settings["max_length"]
        (128, 40, 80)
    """
    rows = len(data.splits["train"])
    batch = int(np.clip(2 ** round(math.log2(max(rows / 20, 1))), 16, 256))
    small = backbone == SMALL_BACKBONE
    settings: dict[str, Any] = {
        "backbone": backbone or DEFAULT_BACKBONES[data.kind],
        "per_device_eval_batch_size": 128,
        "save_total_limit": 1,
        "report_to": "none",
        "logging_steps": 25,
        "thresholds": "macro_f1",
    }
    if data.kind == "text":
        settings |= {"max_length": _tokens(data), "learning_rate": 1e-3 if small else 5e-5}
    elif small:
        settings |= {"image_size": 64, "learning_rate": 1e-3}
    else:
        settings |= {"learning_rate": 3e-3, "optim": "sgd", "optim_args": "momentum=0.9"}
    linear = {"linear_learning_rates": [0.1, 0.01]} if small else {}
    contrastive = {"global_batch_size": batch, "num_train_epochs": _epochs(rows, batch), "save_steps": 0.1, **linear}
    if not small and batch > CHUNK:
        contrastive["embedding_chunk_size"] = CHUNK
    logit = {
        "global_batch_size": min(batch, 32),
        "num_train_epochs": _epochs(rows, min(batch, 32)),
        "eval_strategy": "epoch",
    }
    return Recipe(corpus, settings=settings, contrastive=contrastive, logit=logit)


def _epochs(rows: int, batch: int) -> int:
    return int(np.clip(round(STEPS * batch / max(rows, 1)), 3, 40))


def _tokens(data: OwnData) -> int:
    """A length that holds 95 % of the texts, as a multiple of 16 between 32 and 256 (4 words make about 5 tokens)."""
    words = [len(text.split()) for text in data.splits["train"]["text"][:5000]]
    return int(np.clip(16 * math.ceil(1.25 * float(np.quantile(words, 0.95)) / 16), 32, 256))
