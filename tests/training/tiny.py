"""Small models and data for the tests of training: made in milliseconds, deterministic."""

from __future__ import annotations

import torch
from transformers import BertConfig, RobertaConfig

from hf_mlcl import MLCLConfig, MLCLModel

NUM_LABELS = 4


def text_model(dropout: float = 0.0, num_labels: int = NUM_LABELS, seed: int = 0, **settings) -> MLCLModel:
    torch.manual_seed(seed)
    backbone = BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    return MLCLModel(MLCLConfig(backbone_config=backbone, num_labels=num_labels, projection_dim=8, **settings))


def roberta_model(num_labels: int = NUM_LABELS) -> MLCLModel:
    torch.manual_seed(0)
    backbone = RobertaConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    return MLCLModel(MLCLConfig(backbone_config=backbone, num_labels=num_labels, projection_dim=8))


def image_model(name: str = "resnet10t", num_labels: int = NUM_LABELS) -> MLCLModel:
    torch.manual_seed(0)
    names = [f"label {i}" for i in range(num_labels)]
    return MLCLModel.from_backbone(name, names, pretrained=False, projection_dim=8)


def text_rows(count: int, num_labels: int = NUM_LABELS, length: int = 6, seed: int = 1) -> list[dict]:
    g = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(count):
        labels = (torch.rand(num_labels, generator=g) < 0.4).float()
        # Every label writes its own token into the text, so there is something to learn.
        ids = torch.randint(10, 50, (length,), generator=g)
        ids[1 : 1 + num_labels] = torch.where(labels > 0, torch.arange(1, num_labels + 1), ids[1 : 1 + num_labels])
        rows.append({"input_ids": ids, "attention_mask": torch.ones(length, dtype=torch.long), "labels": labels})
    return rows


def image_rows(count: int, num_labels: int = NUM_LABELS, size: int = 16, seed: int = 1) -> list[dict]:
    g = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(count):
        labels = (torch.rand(num_labels, generator=g) < 0.4).float()
        pixels = torch.randn(3, size, size, generator=g)
        for i in labels.nonzero().flatten().tolist():
            pixels[i % 3, i : i + 4, :] += 3.0
        rows.append({"pixel_values": pixels, "labels": labels})
    return rows
