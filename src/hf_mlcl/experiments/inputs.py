"""Everything between a corpus and a trainer: rows, tokenizer or image processor, collators and the model."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import timm
from datasets import DatasetDict
from huggingface_hub import constants as hub
from huggingface_hub import scan_cache_dir
from transformers import AutoConfig, BertConfig, CLIPProcessor
from transformers.models.auto.modeling_auto import MODEL_MAPPING

from hf_mlcl import MLCLConfig, MLCLModel
from hf_mlcl.data import (
    ImageCollator,
    TextCollator,
    TextImageCollator,
    image_processor,
    image_transform,
    list_corpora,
    load_corpus,
    load_tokenizer,
    read_own_data,
    tokenize,
    with_cleaning,
    with_prompt,
    word_tokenizer,
)
from hf_mlcl.data.download import hub_is_reachable
from hf_mlcl.data.images import Preprocessing
from hf_mlcl.data.own import having
from hf_mlcl.data.registry import chosen_options
from hf_mlcl.experiments.arguments import SMALL_BACKBONE, ExperimentArguments
from hf_mlcl.models.adapters import lora
from hf_mlcl.models.families import Modality, PoolingError, reads
from hf_mlcl.models.loading import load, problem
from hf_mlcl.models.stated import stated_preprocessing
from hf_mlcl.training import ContrastiveTrainingArguments

logger = logging.getLogger(__name__)

DEFAULT_BACKBONES = {"text": "roberta-base", "image": "timm/resnet50.tv_in1k"}
SMALL_BERT = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
"""Learns from nothing in minutes on a CPU."""
OWN_DATA = ("text_column", "label_columns", "label_delimiter", "test_file")
"""Settings that say how data of your own are read."""
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
    modality: str  # "text", "image" or "text+image"
    name_tokenizer: Any = None  # for the names of labels, where the model reads texts


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
        return read_own_data(
            experiment.corpus, strict=strict, **{name: getattr(experiment, name) for name in OWN_DATA}
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
    """Model, batches and processor for splits with a column ``text`` or ``image``, or both, and ids as ``labels``."""
    most = {"train": experiment.max_train_samples}
    sampled = {split: sample_rows(rows, most.get(split, experiment.max_eval_samples)) for split, rows in data.items()}
    if "place" in sampled["train"].column_names:  # which is for people
        sampled = {split: rows.remove_columns("place") for split, rows in sampled.items()}
    data = DatasetDict(sampled)
    label_names = data["train"].features["labels"].feature.names
    data, towers = _readable(data, experiment)
    if "image" in data["train"].column_names:
        return _image_inputs(data, label_names, experiment, towers)
    with training.main_process_first(desc="tokenising"):
        return _text_inputs(data, label_names, experiment, towers)


def _readable(data: DatasetDict, experiment: ExperimentArguments) -> tuple[DatasetDict, list[Modality] | None]:
    """The rows and columns that the backbone reads; and of a pair of towers, which of them these are for."""
    kinds: tuple[Modality, ...] = ("text", "image")
    columns = [name for name in kinds if name in data["train"].column_names]
    name = experiment.backbone or DEFAULT_BACKBONES[columns[-1]]
    known = backbone_reads(name, columns, experiment.trust_remote_code)
    if len(known) == 2:
        if experiment.normalize_features == "yes":
            raise ValueError(f"normalize_features is not for {name!r}: the vectors of its two towers have a length.")
        return data, columns
    if len(columns) == 2 and len(known) == 1:
        return DatasetDict(readable_rows(data, known[0], name)), None
    return data, None


def backbone_reads(name: str, columns: Sequence[Modality], trust_remote_code: bool = False) -> Sequence[Modality]:
    """What a backbone takes, ``"text"``, ``"image"`` or both; an error if the data have other columns only."""
    if name == SMALL_BACKBONE or timm.is_model(name):
        return ("image",) if "image" in columns else columns
    with _naming_backbone(name, Exception):
        config = load(AutoConfig, name, trust_remote_code=trust_remote_code)
    known = reads(config)
    if not set(known) & set(columns) and type(config) in MODEL_MAPPING:  # what others read is not known
        raise ValueError(f"The backbone {name!r} reads {known[0]}s, but the data have {columns[0]}s.")
    return known


def readable_rows(splits: Mapping[str, Any], modality: str, reader: str) -> dict[str, Any]:
    """`rows_with` of each split; those that are left out are counted."""
    kept = {split: rows_with(rows, modality) for split, rows in splits.items()}
    before, after = (sum(map(len, rows.values())) for rows in (splits, kept))
    if lost := before - after:
        logger.warning("%s reads %ss: of %d rows, %d rows without any are left out.", reader, modality, before, lost)
    return kept


def rows_with(rows: Any, modality: str) -> Any:
    """Of rows with texts and images, those that have what an encoder of one of them reads, and that alone."""
    other = {"text": "image", "image": "text"}.get(modality)
    if not {modality, other} <= set(rows.column_names):
        return rows
    return rows.select(np.flatnonzero(having(rows, modality))).remove_columns(other)


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


def _text_inputs(
    data: DatasetDict, label_names: list[str], experiment: ExperimentArguments, towers: list[Modality] | None
) -> Inputs:
    name = experiment.backbone or DEFAULT_BACKBONES["text"]
    if name == SMALL_BACKBONE:
        tokenizer = word_tokenizer(data["train"]["text"])
        tokenizer.model_max_length = experiment.max_length
        positions = max(512, experiment.max_length)
        backbone = BertConfig(**SMALL_BERT, vocab_size=len(tokenizer), max_position_embeddings=positions)
        names = {"id2label": dict(enumerate(label_names)), "label2id": {name: i for i, name in enumerate(label_names)}}
        heads = _heads(experiment) | {"normalize_features": experiment.normalize_features != "no"}
        pooling = "mean" if experiment.pooling == "auto" else experiment.pooling
        model = MLCLModel(MLCLConfig(backbone_config=backbone, pooling=pooling, **names, **heads))
        tokenizer = with_prompt(tokenizer, experiment.prompt) if experiment.prompt else tokenizer
    else:
        model = _from_backbone(name, label_names, experiment, modalities=towers)
        tokenizer = _tokenizer(name, experiment, model)
    if experiment.clean_text:
        tokenizer = with_cleaning(tokenizer)
    cut, plain = (
        TextCollator(tokenizer, len(label_names), pad_to_multiple_of=None if towers else 8, max_length=most)
        for most in (experiment.max_train_length, None)
    )
    tokens = tokenize(data, tokenizer, tokenizer.model_max_length)
    return Inputs(model, tokens, tokenizer, cut, plain, "text", tokenizer)


def _tokenizer(name: str, experiment: ExperimentArguments, model: MLCLModel) -> Any:
    """That of the backbone, which cuts texts where training does: pipelines with truncation=True then do so too."""
    with _naming_backbone(name, Exception):  # whatever is wrong with its files
        trust = experiment.trust_remote_code
        tokenizer = load_tokenizer(name, prompt=experiment.prompt, trust_remote_code=trust)
    tokenizer.model_max_length = experiment.max_length
    if model.config.modalities is not None:  # the text towers of such models are short
        positions = model.config.backbone_config.text_config.max_position_embeddings
        tokenizer.model_max_length = min(experiment.max_length, positions)
    return tokenizer


def _image_inputs(
    data: DatasetDict, label_names: list[str], experiment: ExperimentArguments, towers: list[Modality] | None
) -> Inputs:
    name = experiment.backbone or DEFAULT_BACKBONES["image"]
    if name == SMALL_BACKBONE:
        model = MLCLModel.from_backbone("resnet10t", label_names, pretrained=False, **_heads(experiment))
        prepared = Preprocessing()
    else:
        model = _from_backbone(name, label_names, experiment, modalities=towers)
        with without_vain_attempts(name):
            trust = experiment.trust_remote_code
            prepared = stated_preprocessing(name, model.config.backbone_config, trust_remote_code=trust)
    if experiment.image_size is not None:
        prepared = prepared._replace(size=experiment.image_size)
    if experiment.max_train_length is not None:
        raise ValueError("max_train_length is for data of texts alone; these have images. Leave it out.")
    if experiment.clean_text and towers is not None:
        raise ValueError("clean_text is for data of texts alone; these have images. Leave it out.")
    how = prepared._asdict()
    transforms = [image_transform(train=train, augmentation=experiment.augmentation, **how) for train in (True, False)]
    augmented: Any
    plain: Any
    augmented, plain = (ImageCollator(transform, len(label_names)) for transform in transforms)
    processor = image_processor(**how)
    if towers is None:
        return Inputs(model, data, processor, augmented, plain, "image")
    tokenizer = _tokenizer(name, experiment, model)
    both = CLIPProcessor(processor, tokenizer)  # of any such model: it only keeps the two together
    if towers == ["image"]:
        return Inputs(model, data, both, augmented, plain, "image", tokenizer)
    augmented, plain = (TextImageCollator(tokenizer, transform, len(label_names)) for transform in transforms)
    return Inputs(model, data, both, augmented, plain, "text+image", tokenizer)


def _heads(experiment: ExperimentArguments) -> dict[str, Any]:
    return {
        "projection_bias": experiment.projection_bias,
        "classifier_dropout": experiment.classifier_dropout,
        "normalize_features": {"auto": "auto", "yes": True, "no": False}[experiment.normalize_features],
    }


def _from_backbone(name: str, label_names: list[str], experiment: ExperimentArguments, **settings: Any) -> MLCLModel:
    if experiment.backbone_weights is not None:
        settings["weights"] = experiment.backbone_weights
    if experiment.lora_rank is not None:
        settings["peft_config"] = lora(experiment.lora_rank)
    settings |= {"pretrained": experiment.pretrained, "trust_remote_code": experiment.trust_remote_code}
    settings["pooling"] = experiment.pooling
    with _naming_backbone(name, OSError, ValueError):
        return MLCLModel.from_backbone(name, label_names, **_heads(experiment), **settings)


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
    except PoolingError:
        raise
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
