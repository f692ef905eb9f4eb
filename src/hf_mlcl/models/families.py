"""What a backbone is: what it reads, how long its vectors are, and how tokens or patches become one of them.

`auto_pooling` goes by the architecture alone (`hf_mlcl.models.stated` knows what a model's own files say):

| backbone | pooling | because |
|---|---|---|
| causal (GPT-2, Llama, Qwen, Mistral, Gemma) | ``last`` | only the last token has seen the whole text |
| BERT, RoBERTa and their kin | ``first`` | pre-training (next sentence) or all fine-tuning of their authors reads it |
| other texts (MPNet, DistilBERT, ModernBERT, ...) | ``mean`` | no token stands for the text by itself |
| ViT, DeiT, ViT-MSN, ViT-MAE | ``first`` | the class token; the dense layer after it is seldom part of a checkpoint |
| I-JEPA | ``mean`` | it has no class token, and pools nothing |
| other images, timm, feature vectors | ``pooled`` | what the model's own class pools: a norm, a mean, attention |
| texts and images (CLIP, SigLIP) | ``pooled`` | what their towers are compared by |
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING_NAMES,
    MODEL_MAPPING,
)

Pooling = Literal["first", "mean", "last", "pooled"]
Modality = Literal["text", "image"]

ALWAYS_POOLED = ("timm_wrapper", "mlcl_features")
READS_FIRST = (
    *MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING_NAMES,  # BERT, ERNIE, MobileBERT, ...
    *("albert", "big_bird"),  # sentence order; next sentence
    *("roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod", "camembert", "longformer"),
)
"""Text encoders whose first token stands for the text."""
IMAGE_POOLING: dict[str, Pooling] = {**dict.fromkeys(("vit", "deit", "vit_msn", "vit_mae"), "first"), "ijepa": "mean"}
"""Image models that ``pooled`` does not suit."""
CLASS_TOKEN = (
    *("vit", "deit", "vit_msn", "vit_mae", "beit", "data2vec-vision", "clip_vision_model"),
    *("dinov2", "dinov2_with_registers", "dinov3_vit"),
)
"""Image models whose first token is not a corner of the image."""


class PoolingError(ValueError):
    """A pooling that does not suit a backbone."""


def is_causal(config: PreTrainedConfig) -> bool:
    """Whether tokens see only those before them, so that the first one sees no text at all.

    Examples:
        >>> from transformers import BertConfig, GPT2Config
        >>> is_causal(GPT2Config()), is_causal(BertConfig()), is_causal(BertConfig(is_decoder=True))
        (True, False, True)
    """
    kind = config.model_type
    if kind == "clip_text_model":  # causal, but no language model
        return True
    # XLNet predicts in any order. Gemma's embedders are decoders that were taught to look in both directions.
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES or kind == "xlnet" or config.is_encoder_decoder:
        return False
    if kind in MODEL_FOR_MASKED_LM_MAPPING_NAMES or kind == "bert-generation":
        return bool(getattr(config, "is_decoder", False))  # a field of those that can be both
    return not getattr(config, "use_bidirectional_attention", False)  # a field of Gemma's alone


def reads(config: PreTrainedConfig) -> tuple[Modality, ...]:
    """What rows are made of: texts, images, or both; nothing of that for feature vectors.

    Examples:
        >>> from transformers import BertConfig, CLIPConfig, ViTConfig
        >>> reads(BertConfig()), reads(ViTConfig()), reads(CLIPConfig())
        (('text',), ('image',), ('text', 'image'))
    """
    if config.model_type in ALWAYS_POOLED:
        return ("image",) if config.model_type == "timm_wrapper" else ()
    model = _class(config)
    if model is None:  # it came with code of its own
        return ("text",)
    if hasattr(model, "get_text_features") and hasattr(model, "get_image_features"):  # what makes it a pair of towers
        return ("text", "image")
    return ("image",) if model.main_input_name == "pixel_values" else ("text",)


def is_dual(config: PreTrainedConfig) -> bool:
    """Whether it has a tower for texts and one for images, in one space."""
    return len(reads(config)) == 2


def auto_pooling(config: PreTrainedConfig) -> Pooling:
    """How tokens or patches become one vector, by the architecture.

    Examples:
        >>> from transformers import BertConfig, LlamaConfig, MPNetConfig, SwinConfig
        >>> [auto_pooling(kind()) for kind in (BertConfig, LlamaConfig, MPNetConfig, SwinConfig)]
        ['first', 'last', 'mean', 'pooled']
    """
    kind, inputs = config.model_type, reads(config)
    if inputs != ("text",) or kind == "clip_text_model":
        return IMAGE_POOLING.get(kind, "pooled")
    if is_causal(config) or kind == "xlnet":  # whose class token comes last
        return "last"
    return "first" if kind in READS_FIRST else "mean"


def check_pooling(config: PreTrainedConfig, pooling: str) -> None:
    """Refuse what gives the same vector for every text, a corner of an image, or nothing."""
    kind, inputs = config.model_type, reads(config)
    if pooling == "first":
        check_first_token(config)
    if (kind in ALWAYS_POOLED or len(inputs) == 2) and pooling != "pooled":
        raise PoolingError(
            f"pooling={pooling!r} is not for {kind!r}, which gives one vector by itself: pooling='auto'."
        )
    if inputs == ("image",) and pooling in ("first", "last") and (pooling == "last" or kind not in CLASS_TOKEN):
        raise PoolingError(
            f"pooling={pooling!r} would take a corner of the image for the whole: {kind!r} has no token there that "
            f"stands for all of it. Use pooling='auto' (here: {auto_pooling(config)!r})."
        )


def check_first_token(config: PreTrainedConfig) -> None:
    """Refuse to read the first token of a causal backbone."""
    if is_causal(config):
        raise PoolingError(
            f"pooling='first' reads the first token, which in a causal backbone ({config.model_type!r}) sees nothing "
            f"of the text: every text would get the same vector. Use pooling='last', or 'auto', which chooses it."
        )


def feature_size(backbone: PreTrainedModel, modalities: Any = None) -> int:
    """Length of the vectors that `represent` gives; `modalities` are those of `MLCLConfig`, for a pair of towers."""
    config: Any = backbone.config
    if config.model_type == "timm_wrapper":
        model: Any = backbone.timm_model
        return int(getattr(model, "head_hidden_size", None) or model.num_features)
    if is_dual(config):
        one = int(getattr(config, "projection_dim", None) or config.text_config.projection_size)  # CLIP, SigLIP
        return one if len(modalities) == 1 else 2 * one + 2
    for name in ("word_embed_proj_dim", "hidden_size", "hidden_sizes", "hidden_dim"):  # OPT, most, CNNs, EfficientNet
        size = getattr(config, name, None)
        if size:
            return int(size[-1] if isinstance(size, list | tuple) else size)
    raise ValueError(
        f"The size of the features of {type(backbone).__name__} is not known: its configuration has neither "
        f"hidden_size nor hidden_sizes. Use the timm model of the same architecture."
    )


def represent(outputs: Any, attention_mask: Tensor | None, pooling: Pooling, normalize: bool = False) -> Tensor:
    """One vector per row from what a backbone returns, if wanted of length 1; of texts, padding has no say."""
    vectors = _pooled(outputs, attention_mask, pooling)
    return F.normalize(vectors.float(), dim=1).to(vectors.dtype) if normalize else vectors


def _pooled(outputs: Any, attention_mask: Tensor | None, pooling: Pooling) -> Tensor:
    if pooling == "pooled":
        pooled: Tensor | None = getattr(outputs, "pooler_output", None)  # not every model pools
        if pooled is None:
            raise ValueError("pooling='pooled', but this backbone pools nothing by itself. Use 'mean' or 'auto'.")
        return pooled.flatten(1)
    hidden: Tensor = outputs.last_hidden_state
    if hidden.ndim == 4:  # channels, height, width
        hidden = hidden.flatten(2).transpose(1, 2)
    if pooling == "first":
        return hidden[:, 0]
    if attention_mask is None:
        return hidden[:, -1] if pooling == "last" else hidden.mean(1)
    if pooling == "last":
        last = (attention_mask * torch.arange(hidden.shape[1], device=hidden.device)).argmax(1)
        return hidden.gather(1, last.view(-1, 1, 1).expand(-1, 1, hidden.shape[2])).squeeze(1)
    mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * mask).sum(1) / mask.sum(1).clamp(min=1.0)


def decoder_inputs(config: PreTrainedConfig, inputs: Mapping[str, Tensor]) -> dict[str, Any]:
    """The inputs as a causal backbone wants them; those of others as they are.

    Positions are counted from the first token that is not padding, which GPT-2 would count as well, and nothing is kept
    for generating text.
    """
    given: dict[str, Any] = dict(inputs)
    if not is_causal(config) or is_dual(config):
        return given
    takes, mask = _inputs_of(_class(config)), given.get("attention_mask")
    if "use_cache" in takes:
        given["use_cache"] = False
    if mask is not None and "position_ids" in takes and "position_ids" not in given:
        given["position_ids"] = (mask.long().cumsum(1) - 1).clamp(min=0)
    return given


def freeze_unused(backbone: PreTrainedModel, modalities: Any = None) -> None:
    """Take the gradient from parameters that features do not depend on: DDP would wait for it.

    These are tokens that stand for masked patches in pre-training and, in a pair of towers, the scale of their
    similarity and the tower that is not asked.
    """
    unused = ["logit_scale", "logit_bias"]
    if modalities is not None:
        unused += [] if "text" in modalities else ["text_model.", "text_projection."]
        unused += [] if "image" in modalities else ["vision_model.", "visual_projection."]
    for name, parameter in backbone.named_parameters():
        if name.startswith(tuple(unused)) or name.endswith("mask_token"):
            parameter.requires_grad_(False)


def _class(config: PreTrainedConfig) -> Any:
    """The class that AutoModel makes of a configuration; None where transformers does not know it."""
    known = MODEL_MAPPING.get(type(config), None)
    return known[0] if isinstance(known, tuple) else known


@cache
def _inputs_of(model: Any) -> frozenset[str]:
    return frozenset(() if model is None else inspect.signature(model.forward).parameters)
