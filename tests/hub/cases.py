"""Small trained models and their data, for the tests of exports, cards and pushes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from datasets import ClassLabel, Dataset, Features, Image, List, Value
from PIL import Image as PILImage
from transformers import BertConfig, RobertaConfig

from hf_mlcl import ContrastiveMultiLabelTrainer, ContrastiveTrainingArguments, MLCLConfig, MLCLModel
from hf_mlcl.data import ImageCollator, TextCollator, image_processor, image_transform, tokenize, word_tokenizer
from hf_mlcl.evaluation import LinearEvaluationConfig, LinearEvaluationResult

NAMES = ["red", "green", "blue | cyan"]
WORDS = ["red", "green", "blue"]
SIZE = 32
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
LABELS = List(ClassLabel(names=NAMES))
GRID = LinearEvaluationConfig(learning_rates=(0.1,), weight_decays=(1e-2, 1e-4), epochs=5)
ONE_HEAD = LinearEvaluationConfig(learning_rates=(0.1,), weight_decays=(1e-2,), epochs=5, heads=1)


@dataclass
class Case:
    """A trainer that has trained and evaluated, and what it worked on."""

    trainer: ContrastiveMultiLabelTrainer
    inputs: list[Any]
    rows: Any
    processor: Any
    result: LinearEvaluationResult

    @property
    def model(self) -> MLCLModel:
        return self.trainer.model

    def features(self) -> np.ndarray:
        return self.trainer.extract_features(self.rows)

    def probabilities(self) -> np.ndarray:
        return self.result.predict_proba(self.features())


def texts(count: int, seed: int) -> Dataset:
    rng = np.random.default_rng(seed)
    labels = [sorted(rng.choice(3, rng.integers(0, 3), replace=False).tolist()) for _ in range(count)]
    words = [" ".join([*(WORDS[i] for i in ids), *rng.choice(["a", "of", "the"], 3)]) for ids in labels]
    return Dataset.from_dict({"text": words, "labels": labels}, features=Features(text=Value("string"), labels=LABELS))


def images(count: int, seed: int) -> Dataset:
    rng = np.random.default_rng(seed)
    labels = [[int(rng.integers(3))] for _ in range(count)]
    pictures = [
        PILImage.fromarray((rng.random((48, 40, 3)) * 60 + 190 * np.eye(3)[ids[0]]).astype("uint8")) for ids in labels
    ]
    return Dataset.from_dict({"image": pictures, "labels": labels}, features=Features(image=Image(), labels=LABELS))


def arguments(folder: Any, **settings: Any) -> ContrastiveTrainingArguments:
    settings = {"max_steps": 3, **settings}
    return ContrastiveTrainingArguments(
        str(folder),
        per_device_train_batch_size=16,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        **settings,
    )


def labelled() -> dict[str, Any]:
    return {"id2label": dict(enumerate(NAMES)), "label2id": {name: i for i, name in enumerate(NAMES)}}


def text_case(
    folder: Any,
    architecture: str = "roberta",
    pooling: str = "first",
    config: Any = GRID,
    normalize: bool = False,
    **settings: Any,
) -> Case:
    torch.manual_seed(0)
    splits = [texts(count, seed) for seed, count in enumerate((60, 30, 30))]
    tokenizer = word_tokenizer(splits[0]["text"])
    kind = {"bert": BertConfig, "roberta": RobertaConfig}[architecture]
    backbone = kind(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, **SMALL)
    vectors = {"pooling": pooling, "normalize_features": normalize}
    model = MLCLModel(MLCLConfig(backbone_config=backbone, projection_dim=8, **vectors, **labelled()))
    data = [tokenize(split, tokenizer) for split in splits]
    trainer = ContrastiveMultiLabelTrainer(
        model, arguments(folder, **settings), TextCollator(tokenizer, 3), data[0], data[1], processing_class=tokenizer
    )
    trainer.train()
    result = trainer.linear_evaluate(*data, config=config)
    return Case(trainer, list(splits[2]["text"]), data[2], tokenizer, result)


def image_case(folder: Any, name: str = "resnet10t", config: Any = GRID) -> Case:
    torch.manual_seed(0)
    data = [images(count, seed) for seed, count in enumerate((32, 16, 12))]
    processor = image_processor(SIZE)
    model = MLCLModel.from_backbone(name, NAMES, pretrained=False, projection_dim=8)
    collate = ImageCollator(image_transform(size=SIZE), 3)
    trainer = ContrastiveMultiLabelTrainer(
        model, arguments(folder), collate, data[0], data[1], processing_class=processor
    )
    trainer.train()
    result = trainer.linear_evaluate(*data, config=config)
    return Case(trainer, list(data[2]["image"]), data[2], processor, result)
