"""Data of your own: settings that suit them and the machine, and a classifier in one call."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from hf_mlcl.data import load_tokenizer
from hf_mlcl.data.own import OwnData, read_own_data
from hf_mlcl.data.own_files import Source, source_name
from hf_mlcl.experiments.arguments import SMALL_BACKBONE
from hf_mlcl.experiments.inputs import OWN_DATA, backbone_reads, without_vain_attempts
from hf_mlcl.experiments.parsing import build_experiment, check_kind
from hf_mlcl.experiments.recipe import Recipe
from hf_mlcl.experiments.results import ExperimentResult
from hf_mlcl.experiments.running import run_experiment

LOSS = "reg+two_way"
"""Of pre-trained encoders; the evidence is in docs/results.md."""
STEPS = {"text": 80, "image": 160, "text+image": 80}
"""Steps of fine-tuning to aim at: a good encoder needs few."""
STEPS_FROM_NOTHING = 1500
"""Steps that an encoder takes that has learned nothing yet."""
BATCH = 32
TRAIN_TOKENS = 128
"""Tokens that fine-tuning reads of a text where there is no GPU: half the time of 256. The classifier reads all."""
LENGTHS = 2000
"""Texts whose length is measured."""

BACKBONES = {
    ("text", "cpu"): ("sentence-transformers/all-MiniLM-L6-v2", 91),
    ("text", "gpu"): ("sentence-transformers/all-mpnet-base-v2", 438),
    ("image", "cpu"): ("timm/mobilenetv2_100.ra_in1k", 14),
    ("image", "gpu"): ("timm/resnet50.a1_in1k", 103),
    ("text+image", "cpu"): ("openai/clip-vit-base-patch32", 605),
    ("text+image", "gpu"): ("openai/clip-vit-base-patch16", 599),
}
"""What fine-tunes in minutes on each kind of machine, and the megabytes of its download."""


def read_for(source: Source, settings: Mapping[str, Any], strict: bool = False) -> OwnData:
    """Data of your own by the columns that the settings of a training name, `as_read` by its backbone."""
    columns: Any = {name: settings.get(name) for name in OWN_DATA}
    data = read_own_data(source, strict=strict, **columns)
    return as_read(data, settings.get("backbone"), bool(settings.get("trust_remote_code")))


def as_read(data: OwnData, backbone: str | None, trust_remote_code: bool = False) -> OwnData:
    """The data as a backbone takes them: texts with images are texts alone for an encoder of texts."""
    if data.modality != "text+image" or backbone is None:
        return data
    known = backbone_reads(backbone, ("text", "image"), trust_remote_code)
    if len(known) != 1:
        return data
    column = (data.beside_column if known[0] == "text" else None) or data.content_column
    return replace(data, modality=known[0], content_column=column, beside_column=None)


def default_backbone(modality: str) -> tuple[str, int]:
    """The backbone for texts or images on this machine, and its size in megabytes."""
    return BACKBONES[modality, "gpu" if torch.accelerator.is_available() else "cpu"]


def own_recipe(data: OwnData, corpus: str, backbone: str | None = None, max_train_samples: int | None = None) -> Recipe:
    """Settings that suit the data and the machine; every one can be changed.

    A pre-trained encoder is fine-tuned for about 80 steps (texts) or 160 (images), between 2 and 16 epochs (1 above
    20,000 rows), with `LOSS`, from where its frozen features end: `hf_mlcl.experiments.stages`. A ``"small"`` one
    learns from nothing, in about 1,500 steps.

    Args:
        data: The data.
        corpus: What to call them.
        backbone: The backbone; a small sentence encoder or image model if not given, a larger one where there is a GPU.
        max_train_samples: Training rows that will be kept, if not all.

    Examples:
        >>> from hf_mlcl.data import load_corpus
        >>> data = OwnData(load_corpus("toy_text"), "text", "text", "built in", "as given")
        >>> recipe = own_recipe(data, "toy_text")
        >>> settings = recipe.for_loss(recipe.loss)
        >>> recipe.loss, settings["protocol"], settings["global_batch_size"], settings["num_train_epochs"]
        ('reg+two_way', 'best', 32, 2)
    """
    rows = min(len(data.splits["train"]), max_train_samples or sys.maxsize)
    settings: dict[str, Any] = {
        "backbone": backbone or default_backbone(data.modality)[0],
        "protocol": "best",
        "per_device_eval_batch_size": 64,
        "save_steps": 0.25,
        "report_to": "none",
        "logging_steps": 25,
        "thresholds": "macro_f1",
        "single_label": data.single_label,
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
        return Recipe(corpus, settings=settings, contrastive=contrastive, logit=logit, loss_in_folder=False)
    devices = int(os.environ.get("WORLD_SIZE", 0)) or max(torch.cuda.device_count(), 1)
    batch = max(min(BATCH, rows) // devices, 1) * devices
    settings |= {
        "learning_rate": 1e-4,
        "head_learning_rate": 1e-3,
        "warmup_steps": 0.1,
        "global_batch_size": batch,
        "num_train_epochs": _epochs(rows, batch, STEPS[data.modality], 1 if rows > 20_000 else 2, 16),
        "prototype_init": "names",
        "normalize_features": "auto",
    }
    if data.modality != "text":
        settings |= {"augmentation": "crop", "freeze_batch_norm": True}
        if data.modality == "text+image":
            settings["learning_rate"] = 2e-5  # CLIP forgets at higher ones
    else:
        settings |= {"pooling": "auto", "train_sampling_strategy": "group_by_length", "freeze_embeddings": True}
        settings["bf16"] = "auto"  # for texts only: on a CPU, convolutions of images gain nothing by it
        if not torch.accelerator.is_available():
            settings["max_train_length"] = TRAIN_TOKENS
    return Recipe(corpus, LOSS, settings=settings, loss_in_folder=False)


def train_classifier(
    data: Source, output_dir: str | os.PathLike[str], *, quiet: bool = False, **settings: Any
) -> ExperimentResult:
    """A classifier for data of your own in one call: what ``hf-mlcl train`` does.

    Args:
        data: What `read_own_data` takes: a file, a folder, a dataset on the Hub or in memory, a pandas DataFrame.
        output_dir: Folder of the result; `result.folder / "classifier"` opens in pipelines.
        quiet: Whether nothing is printed.
        **settings: Any field of `ExperimentArguments` or `ContrastiveTrainingArguments`, such as ``minutes=10``.

    Examples:
        >>> import pandas, tempfile
        >>> rows = [(f"a {word} {number}", word) for word in ("cat", "dog", "cow") for number in range(40)]
        >>> settings = {"backbone": "small", "max_steps": 2, "use_cpu": True, "export": False, "disable_tqdm": True}
        >>> table = pandas.DataFrame(rows, columns=["text", "tags"])
        >>> result = train_classifier(table, tempfile.mkdtemp(), quiet=True, **settings)
        >>> sorted(path.name for path in (result.folder).glob("[!.]*"))
        ['classifier', 'encoder', 'metrics.json', 'test_decisions.npz']
    """
    own = read_for(data, settings)
    check_kind(settings, own.modality, own.single_label)
    recipe = own_recipe(own, source_name(data), settings.get("backbone"), settings.get("max_train_samples"))
    experiment, training = build_experiment(recipe, {**settings, "output_dir": os.fspath(output_dir)})
    return run_experiment(experiment, training, own.splits, quiet=quiet)


def _epochs(rows: int, batch: int, steps: int, fewest: int, most: int) -> int:
    return int(np.clip(round(steps * batch / max(rows, 1)), fewest, most))


def _tokens(data: OwnData, backbone: str) -> int:
    """A length that holds 95 % of the texts, as a multiple of 16 between 32 and 256."""
    texts = [text for text in data.splits["train"]["text"][:LENGTHS] if text] or [""]
    lengths = [math.ceil(1.25 * len(text.split())) for text in texts]  # 4 words make about 5 tokens
    if backbone != SMALL_BACKBONE:
        with suppress(Exception), without_vain_attempts(backbone):  # it is loaded for good later, and told then
            lengths = [len(tokens) for tokens in load_tokenizer(backbone)(texts)["input_ids"]]
    return int(np.clip(16 * math.ceil(float(np.quantile(lengths, 0.95)) / 16), 32, 256))
