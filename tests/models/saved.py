"""Models of a few thousand weights in folders, as training leaves them, without the training."""

from __future__ import annotations

import json

import torch
from transformers import BertConfig, BertModel

from hf_mlcl import MLCLConfig, MLCLForImageClassification, MLCLForSequenceClassification, MLCLModel
from hf_mlcl.data import image_processor, word_tokenizer

WORDS = "a red green blue cat dog runs"

CODE = """
from pathlib import Path
from transformers import BertConfig, BertModel

Path({marker!r}).touch()

class NewConfig(BertConfig):
    model_type = {kind!r}

class NewModel(BertModel):
    config_class = NewConfig
"""
"""Code of a backbone of its own, which leaves a trace when it runs."""

CODE_OF_BACKBONE = {"AutoConfig": "code.NewConfig", "AutoModel": "code.NewModel"}


def tokenizer():
    made = word_tokenizer([WORDS])
    made.model_max_length = 16
    return made


def backbone_config(**settings):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return BertConfig(**{"vocab_size": len(tokenizer()), "max_position_embeddings": 16, **sizes, **settings})


def text_encoder(labels=3):
    torch.manual_seed(0)
    names = {number: f"label {number}" for number in range(labels)}
    return MLCLModel(MLCLConfig(backbone_config=backbone_config(), id2label=names, projection_dim=8)).eval()


def text_classifier(labels=3, scale=1.0):
    weight, bias = torch.randn(1, labels, 16) * scale, torch.zeros(1, labels)
    return MLCLForSequenceClassification.from_encoder(text_encoder(labels), weight, bias)


def save_encoder(folder):
    text_encoder().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def save_classifier(folder, labels=3, scale=1.0):
    text_classifier(labels, scale).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def save_image_classifier(folder):
    torch.manual_seed(0)
    encoder = MLCLModel.from_backbone("test_resnet", ["cat", "dog"], pretrained=False)
    size = encoder.projection.hidden.in_features
    model = MLCLForImageClassification.from_encoder(encoder, torch.randn(1, 2, size), torch.zeros(1, 2))
    model.save_pretrained(folder)
    image_processor(32).save_pretrained(folder)
    return folder


def save_backbone_with_code(folder, marker, kind="new-kind"):
    """A backbone of a type that transformers does not know, with the code for it."""
    BertModel(backbone_config(), add_pooling_layer=False).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    (folder / "code.py").write_text(CODE.format(marker=str(marker), kind=kind))
    change_json(folder / "config.json", model_type=kind, auto_map=CODE_OF_BACKBONE, architectures=["NewModel"])
    return folder


def change_json(path, **changes):
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, **changes}))


def change_weights(folder, change):
    """Rewrite the weights of a folder with what `change` makes of their dictionary."""
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, {"format": "pt"})


def without(prefix):
    return lambda weights: {key: value for key, value in weights.items() if not key.startswith(prefix)}


def with_nan(weights):
    return {key: value * float("nan") if key == "heads.weight" else value for key, value in weights.items()}


def of_another_size(key):
    return lambda weights: {**weights, key: weights[key].repeat_interleave(2, 0).contiguous()}


def with_another(weights):
    return {**weights, "other.weight": torch.zeros(2)}
