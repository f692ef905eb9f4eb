"""Classifiers for people without this package, where another library's model computes exactly the same.

Our classifier averages the probabilities of several linear heads. A classification model of transformers or timm has
one linear layer, so only a classifier with one head can become such a model; ``LinearEvaluationConfig(heads=1)`` and
``protocol="best"`` make one.

In timm that layer sits directly on the features. In transformers most text models put a dense layer and tanh (BERT,
RoBERTa, XLM-R, MPNet, ...) or GELU (ELECTRA, DeBERTa) between the first token and the linear layer. Neither stands in
the way: near zero both are straight lines, so the dense layer scales features down by 2^-40 and the linear layer scales
them up again. Powers of two cost no precision, and what tanh and GELU bend at 2^-40 lies far below the last bit of a
float32. Other heads do bend: DistilBERT's ReLU drops what is negative, ModernBERT's normalises. And all of them look
at the first token, never at the mean. Whether a head can do it is not looked up but tried: the export is compared with
the original and refused if they differ.
"""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, TimmWrapperConfig

from hf_mlcl.files import staged
from hf_mlcl.hub.encoder import save_timm, save_tokenizer
from hf_mlcl.metrics import DecisionRule
from hf_mlcl.models import MLCLForImageClassification, MLCLForSequenceClassification, MLCLModel
from hf_mlcl.models.backbones import feature_size

SCALE = 2.0**40
TOLERANCE = 1e-5
"""Largest difference of a probability that still counts as rounding."""

ELSEWHERE = "export_onnx(model, path) writes any classifier for people without hf_mlcl."


def export_classifier(
    classifier: MLCLForSequenceClassification | MLCLForImageClassification | MLCLModel,
    folder: str | os.PathLike[str],
    processor: Any = None,
    *,
    max_length: int | None = None,
) -> Path:
    """Write a classifier as a plain model of transformers or timm, if one computes exactly the same.

    A text classifier becomes a folder for ``AutoModelForSequenceClassification`` and
    ``pipeline("text-classification", top_k=None)``; an image classifier one for ``AutoModelForImageClassification`` and
    ``timm.create_model("local-dir:FOLDER", pretrained=True)``, whose logits want a sigmoid. Both are for prediction in
    float32 or bfloat16: the scaling of text heads leaves the range of float16.

    Args:
        classifier: With one head: from a linear evaluation with ``heads=1`` or ``protocol="best"``, or an `MLCLModel`
            trained with a loss on logits.
        folder: Where to write. Files of the same names are replaced, once all could be made.
        processor: Its tokenizer or image processor.
        max_length: Tokens at which texts are cut; see `export_encoder`.

    Raises:
        ValueError: If there is no exact counterpart. It says why, and what to do instead.

    Examples:
        >>> import tempfile
        >>> from transformers import AutoModelForImageClassification
        >>> encoder = MLCLModel.from_backbone("resnet10t", ["cat", "dog"], pretrained=False)
        >>> ours = MLCLForImageClassification.from_encoder(encoder, torch.randn(1, 2, 512), torch.zeros(1, 2)).eval()
        >>> theirs = AutoModelForImageClassification.from_pretrained(export_classifier(ours, tempfile.mkdtemp())).eval()
        >>> pixels = torch.randn(2, 3, 32, 32)
        >>> bool((ours(pixels).logits - theirs(pixels).logits).abs().max() < 1e-5)
        True
    """
    weight, bias = _one_linear_layer(classifier)
    config = classifier.config
    if isinstance(config.backbone_config, TimmWrapperConfig):
        model = _timm_classifier(classifier, weight, bias)
        with staged(folder) as stage:
            save_timm(model, config.backbone_config, stage, processor, labels=config.label_names)
    elif config.pooling == "pooled":
        raise ValueError(f"A classifier of precomputed features has no counterpart in another library. {ELSEWHERE}")
    else:
        plain = _text_classifier(classifier, weight, bias)
        with staged(folder) as stage:
            plain.save_pretrained(stage)
            if processor is not None:
                save_tokenizer(processor, classifier, stage, max_length)
    return Path(folder)


def _one_linear_layer(classifier: Any) -> tuple[Tensor, Tensor]:
    """Weight (labels, features) and bias (labels,) of a classifier that is one linear layer."""
    if isinstance(classifier, MLCLModel):
        if classifier.classifier is None:
            raise ValueError(
                "This MLCLModel has no classifier. Make one with trainer.linear_evaluate(...).classifier, or export "
                "the encoder with export_encoder."
            )
        return classifier.classifier.weight.detach(), classifier.classifier.bias.detach()
    if not isinstance(classifier, (MLCLForSequenceClassification, MLCLForImageClassification)):
        raise ValueError(
            "classifier must be an MLCLForSequenceClassification, MLCLForImageClassification or an MLCLModel with a "
            f"classifier, got {type(classifier).__name__}."
        )
    heads = len(classifier.heads.weight)
    if heads != 1:
        raise ValueError(
            f"This classifier averages the probabilities of {heads} linear heads, and no model of transformers or timm "
            "does. Evaluate with LinearEvaluationConfig(heads=1) or protocol='best' for a classifier with one head. "
            f"{ELSEWHERE}"
        )
    temperature = float(getattr(classifier.config, "logit_temperature", 1.0))
    return classifier.heads.weight.detach()[0] / temperature, classifier.heads.bias.detach()[0] / temperature


# Images ---------------------------------------------------------------------------------------------------------------


def _timm_classifier(classifier: Any, weight: Tensor, bias: Tensor) -> Any:
    import timm

    config = classifier.config.backbone_config
    model: Any = timm.create_model(config.architecture, num_classes=len(weight), **(config.model_args or {}))
    layer = model.get_classifier()
    if not isinstance(layer, nn.Linear) or layer.weight.shape != weight.shape:
        raise ValueError(
            f"The classifier of {config.architecture} is {layer}, not one linear layer on its features. {ELSEWHERE}"
        )
    missing, unexpected = model.load_state_dict(classifier.backbone.timm_model.state_dict(), strict=False)
    own = {name for name, parameter in model.named_parameters() if parameter is layer.weight or parameter is layer.bias}
    if unexpected or set(missing) - own:
        raise ValueError(f"{config.architecture} has another structure with a classifier than without. {ELSEWHERE}")
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    model.eval().to(weight.device)
    pixels = torch.randn(2, *image_shape(model), generator=torch.Generator().manual_seed(0)).to(weight.device)
    _compare(classifier, {"pixel_values": pixels}, lambda: model(pixels), config.architecture)
    return model


def image_shape(model: Any) -> tuple[int, int, int]:
    """A shape of images that a timm model takes: a small one, unless it was made for a fixed size."""
    embedding = getattr(model, "patch_embed", None)
    size = getattr(embedding, "img_size", None) if model.pretrained_cfg.get("fixed_input_size") else (64, 64)
    height, width = size or model.pretrained_cfg["input_size"][1:]
    return 3, int(height), int(width)


# Texts ----------------------------------------------------------------------------------------------------------------


def _text_classifier(classifier: Any, weight: Tensor, bias: Tensor) -> Any:
    config, kind = copy.deepcopy(classifier.config.backbone_config), classifier.config.backbone_config.model_type
    if classifier.config.pooling != "first":
        raise ValueError(
            f"This classifier looks at the mean of a text's tokens, but the classification model of {kind!r} at the "
            f"first token only. Train with pooling='first' for an exact export. {ELSEWHERE}"
        )
    config.num_labels = len(weight)
    config.id2label, config.label2id = dict(classifier.config.id2label), dict(classifier.config.label2id)
    config.problem_type = "multi_label_classification"
    thresholds = getattr(classifier.config, "thresholds", None)
    if thresholds is not None:
        config.thresholds = list(thresholds)  # for whoever wants to decide as the original does
    if DecisionRule.of(classifier.config).single_label:
        config.single_label = True
    try:
        model = AutoModelForSequenceClassification.from_config(config, trust_remote_code=False)
    except ValueError as error:
        raise ValueError(f"transformers has no classification model for {kind!r}. {ELSEWHERE}") from error
    model.eval().to(weight.device)
    _, unexpected = model.base_model.load_state_dict(classifier.backbone.state_dict(), strict=False)
    dense, out = _head(model, classifier)
    if unexpected or out is None:
        raise ValueError(f"The classification head of {type(model).__name__} is not one that we know. {ELSEWHERE}")
    with torch.no_grad():
        slope = 1.0
        if dense is not None:
            dense.weight.copy_(torch.eye(len(dense.weight)) / SCALE)
            dense.bias.zero_()
            slope = _slope(model, classifier, out) / SCALE
        out.weight.copy_(weight / slope)
        out.bias.copy_(bias)
    ids = torch.randint(3, config.vocab_size, (3, 9), generator=torch.Generator().manual_seed(0)).to(weight.device)
    inputs = {
        "input_ids": ids,
        "attention_mask": (torch.arange(9) < torch.tensor([[9], [5], [2]])).long().to(ids.device),
    }
    _compare(classifier, inputs, lambda: model(**inputs).logits, type(model).__name__)
    return model


def _head(model: Any, classifier: Any) -> tuple[nn.Linear | None, nn.Linear | None]:
    """The dense and the last linear layer that a classification model puts on its backbone."""
    size, labels = feature_size(classifier.backbone), classifier.config.num_labels
    known = {f"{model.base_model_prefix}.{name}" for name, _ in classifier.backbone.named_modules()}
    new = [module for name, module in model.named_modules() if name not in known and not list(module.children())]
    layers = [module for module in new if list(module.parameters())]
    dense = [m for m in layers if isinstance(m, nn.Linear) and m.weight.shape == (size, size) and m is not layers[-1]]
    out = [m for m in layers if isinstance(m, nn.Linear) and m.weight.shape == (labels, size) and m not in dense]
    if len(out) != 1 or len(dense) > 1 or len(layers) != len(dense) + 1:
        return None, None
    return (dense[0] if dense else None), out[0]


def _slope(model: Any, classifier: Any, out: nn.Linear) -> float:
    """What the activation between the two layers makes of a small number: its slope at zero."""
    seen: dict[str, Tensor] = {}
    hook = out.register_forward_pre_hook(lambda _, inputs: seen.update(value=inputs[0]))
    try:
        ids = torch.full((1, 4), 3, device=out.weight.device)
        model(input_ids=ids)
    finally:
        hook.remove()
    first = classifier.backbone(input_ids=ids).last_hidden_state[:, 0]
    measured = float((seen["value"].double() * SCALE * first.double()).sum() / first.double().square().sum())
    return 2.0 ** round(torch.tensor(max(measured, 1e-9)).log2().item())  # 1 for tanh, 1/2 for GELU


def _compare(classifier: Any, inputs: dict[str, Tensor], theirs: Any, name: str) -> None:
    was_training = classifier.training
    classifier.eval()
    with torch.no_grad():
        expected, got = classifier(**inputs).logits.sigmoid(), theirs().sigmoid()
    classifier.train(was_training)
    difference = float((expected - got).abs().max())
    if not difference <= TOLERANCE:
        raise ValueError(
            f"{name} cannot hold this classifier exactly: its head does more than a linear layer on the first token, "
            f"and probabilities differ by up to {difference:.2g}. {ELSEWHERE}"
        )
