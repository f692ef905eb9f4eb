"""Everything between a corpus and a trainer: rows, tokenizer or image processor, collators and the model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import DatasetDict
from huggingface_hub import constants as hub
from huggingface_hub import scan_cache_dir
from transformers import AutoTokenizer, BertConfig

from hf_mlcl import MLCLConfig, MLCLModel
from hf_mlcl.data import (
    ImageCollator,
    TextCollator,
    image_processor,
    image_transform,
    list_corpora,
    load_corpus,
    read_own_data,
    tokenize,
    with_cleaning,
    word_tokenizer,
)
from hf_mlcl.data.download import hub_is_reachable
from hf_mlcl.data.registry import chosen_options
from hf_mlcl.experiments.arguments import SMALL_BACKBONE, ExperimentArguments
from hf_mlcl.models.loading import load, problem
from hf_mlcl.training import ContrastiveTrainingArguments

DEFAULT_BACKBONES = {"text": "roberta-base", "image": "timm/resnet50.tv_in1k"}
SAMPLE_SEED = 42
"""Of the rows that max_train_samples keeps: runs with different training seeds shall see the same data."""


@dataclass
class Inputs:
    """What a trainer is made of."""

    model: MLCLModel
    data: DatasetDict  # rows for the collators
    processor: Any  # tokenizer or image processor, saved with the model
    train_collator: Any  # augments images
    eval_collator: Any
    modality: str  # "text" or "image"


def load_data(
    experiment: ExperimentArguments, training: ContrastiveTrainingArguments, strict: bool = False
) -> DatasetDict:
    """The corpus of an experiment, the first process first, so that the others find it in the cache.

    With `strict` the first bad image or unknown label is an error, instead of being left out.
    """
    if experiment.corpus is None:
        raise ValueError("corpus is missing: name one of list_corpora(), or data of your own.")
    with training.main_process_first(desc="loading the corpus"):
        if experiment.corpus in list_corpora():
            options = corpus_options(experiment.corpus, experiment.size, experiment.corpus_options, training.seed)
            return load_corpus(
                experiment.corpus, size=experiment.size, data_dir=experiment.data_dir, strict=strict, **options
            )
        columns = ("text_column", "label_columns", "label_delimiter", "test_file")
        return read_own_data(
            experiment.corpus, strict=strict, **{name: getattr(experiment, name) for name in columns}
        ).splits


def corpus_options(corpus: str, size: str, given: Any, seed: int) -> dict[str, Any]:
    """What an experiment tells `load_corpus` beside size and folder; an error for what it cannot do.

    Examples:
        >>> corpus_options("voc2007", "small", {"draw_seed": "seed"}, seed=3)
        {'draw_seed': 3}
    """
    options = dict(given or {})
    if options.get("draw_seed") == "seed":
        options["draw_seed"] = seed
    if options.get("difficult") == "ignore":
        raise ValueError(
            "corpus_options: difficult='ignore' marks labels that are neither present nor absent, but an experiment "
            "scores every label of every image. Use 'present' or 'absent', or load_corpus and the column `ignored`."
        )
    try:
        return chosen_options(corpus, size, options)
    except ValueError as error:
        raise ValueError(f"corpus_options: {error}") from error


def prepare_inputs(
    data: DatasetDict, experiment: ExperimentArguments, training: ContrastiveTrainingArguments
) -> Inputs:
    """Model, batches and processor for splits with a column ``text`` or ``image`` and lists of ids as ``labels``."""
    most = {"train": experiment.max_train_samples}
    data = DatasetDict(
        {split: sample_rows(rows, most.get(split, experiment.max_eval_samples)) for split, rows in data.items()}
    )
    label_names = data["train"].features["labels"].feature.names
    if "image" in data["train"].column_names:
        return _image_inputs(data, label_names, experiment)
    with training.main_process_first(desc="tokenising"):
        return _text_inputs(data, label_names, experiment)


def sample_rows(rows: Any, most: int | None) -> Any:
    """At most `most` rows, drawn with a fixed seed: a smaller number gives a part of a larger."""
    return rows if most is None or most >= len(rows) else rows.shuffle(seed=SAMPLE_SEED).select(range(most))


def training_steps(rows: int, training: ContrastiveTrainingArguments) -> int:
    """Steps that a training on so many rows takes."""
    if training.max_steps > 0:
        return int(training.max_steps)
    batch = training.train_batch_size * training.world_size
    batches = rows // batch if training.drop_last_train_batch else math.ceil(rows / batch)
    updates = max(1, math.ceil(batches / training.gradient_accumulation_steps))
    steps: int = math.ceil(training.num_train_epochs * updates)
    return steps


def _text_inputs(data: DatasetDict, label_names: list[str], experiment: ExperimentArguments) -> Inputs:
    name = experiment.backbone or DEFAULT_BACKBONES["text"]
    if name == SMALL_BACKBONE:
        tokenizer = word_tokenizer(data["train"]["text"])
        model = _small_text_encoder(len(tokenizer), label_names, experiment)
    else:
        model = _from_backbone(name, label_names, experiment, pooling=experiment.pooling)
        tokenizer = _tokenizer(name, experiment.trust_remote_code)
    if experiment.clean_text:
        tokenizer = with_cleaning(tokenizer)
    tokenizer.model_max_length = experiment.max_length  # a pipeline with truncation=True then cuts as training did
    cut, plain = (
        TextCollator(tokenizer, len(label_names), pad_to_multiple_of=8, max_length=most)
        for most in (experiment.max_train_length, None)
    )
    tokens = tokenize(data, tokenizer, experiment.max_length)
    return Inputs(model, tokens, tokenizer, cut, plain, "text")


def _image_inputs(data: DatasetDict, label_names: list[str], experiment: ExperimentArguments) -> Inputs:
    name, size = experiment.backbone or DEFAULT_BACKBONES["image"], experiment.image_size
    if name == SMALL_BACKBONE:
        model = MLCLModel.from_backbone("resnet10t", label_names, pretrained=False, **_heads(experiment))
    else:
        model = _from_backbone(name, label_names, experiment)
    augmented, plain = (
        ImageCollator(image_transform(size, train=train, augmentation=experiment.augmentation), len(label_names))
        for train in (True, False)
    )
    return Inputs(model, data, image_processor(size), augmented, plain, "image")


def _heads(experiment: ExperimentArguments) -> dict[str, Any]:
    return {"projection_bias": experiment.projection_bias, "classifier_dropout": experiment.classifier_dropout}


def _small_text_encoder(vocabulary: int, label_names: list[str], experiment: ExperimentArguments) -> MLCLModel:
    """Two layers of BERT, which learn from nothing in minutes on a CPU."""
    backbone = BertConfig(
        vocab_size=vocabulary,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=max(512, experiment.max_length),
        pad_token_id=0,
    )
    names = {"id2label": dict(enumerate(label_names)), "label2id": {name: i for i, name in enumerate(label_names)}}
    return MLCLModel(MLCLConfig(backbone_config=backbone, pooling="mean", **names, **_heads(experiment)))


def _from_backbone(name: str, label_names: list[str], experiment: ExperimentArguments, **settings: Any) -> MLCLModel:
    if experiment.backbone_weights is not None:
        settings["weights"] = experiment.backbone_weights
    settings |= {"pretrained": experiment.pretrained, "trust_remote_code": experiment.trust_remote_code}
    with _naming_backbone(name, OSError, ValueError):
        return MLCLModel.from_backbone(name, label_names, **_heads(experiment), **settings)


def _tokenizer(name: str, trust_remote_code: bool) -> Any:
    with _naming_backbone(name, Exception):  # whatever is wrong with its files
        return load(AutoTokenizer, name, trust_remote_code=trust_remote_code)


@contextmanager
def without_vain_attempts(name: str) -> Iterator[None]:
    """Where the Hub cannot be reached, look into the cache only: its library would try again for a minute or more."""
    before = hub.HF_HUB_OFFLINE
    hub.HF_HUB_OFFLINE = before or not (Path(name).is_dir() or hub_is_reachable())
    try:
        yield
    finally:
        hub.HF_HUB_OFFLINE = before


@contextmanager
def _naming_backbone(name: str, *errors: type[Exception]) -> Iterator[None]:
    """What is wrong with a backbone's files is told with the ways out."""
    try:
        with without_vain_attempts(name):
            yield
    except errors as error:
        raise ValueError(_no_backbone(name, error)) from error


def _no_backbone(name: str, error: Exception) -> str:
    try:  # models that earlier downloads have left need no network
        found = sorted(repo.repo_id for repo in scan_cache_dir().repos if repo.repo_type == "model")
    except Exception:  # there is no cache, or one that cannot be read: then there is nothing to offer
        found = []
    cached = f" In the cache: {', '.join(found[:8])}{', …' if len(found) > 8 else ''}." if found else ""
    return (
        f"The backbone {name!r} is not available: {problem(error.__cause__ or error)}\n"
        f"Give --backbone a local folder with its weights and tokenizer, the name of a model on the Hub while you are "
        f"online, a timm architecture (with --backbone_weights FILE, or --pretrained False for random weights), or "
        f"{SMALL_BACKBONE!r}: a small encoder that learns from nothing and needs no download.{cached}"
    )
