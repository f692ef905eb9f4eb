"""Encoders and classifiers for people without this package, as models of transformers, timm and sentence-transformers.

An encoder is exported as the plain backbone that it is. A classification model of transformers or timm has one linear
layer, so only a classifier with one head can become one. In timm that layer sits directly on the features. In
transformers most text models put a dense layer and tanh (BERT, RoBERTa, XLM-R, MPNet, ...) or GELU (ELECTRA, DeBERTa)
between the first token and the linear layer. Neither stands in the way: near zero both are straight lines, so the dense
layer scales features down by 2^-40 and the linear layer scales them up again. Powers of two cost no precision, and what
tanh and GELU bend at 2^-40 lies far below the last bit of a float32. Other heads do bend: DistilBERT's ReLU drops what
is negative, ModernBERT's normalises. And all of them look at the first token, never at the mean. Whether a head can do
it is not looked up but tried: the export is compared with the original and refused if they differ.
"""

from __future__ import annotations

import copy
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForSequenceClassification,
    PreTrainedTokenizerBase,
    TimmWrapperConfig,
    TimmWrapperImageProcessor,
)

from hf_mlcl.files import staged
from hf_mlcl.metrics import DecisionRule
from hf_mlcl.models import FeatureBackbone, MLCLForImageClassification, MLCLForSequenceClassification, MLCLModel
from hf_mlcl.models.families import feature_size, reads

OURS = (MLCLModel, MLCLForSequenceClassification, MLCLForImageClassification)
PROTOTYPES_FILE = "prototypes.safetensors"
ABOUT_OTHER_WEIGHTS = ("tag", "license", "origin_url", "paper_ids", "paper_name", "notes")
"""What timm's description of an architecture says about the weights that it would download."""

SCALE = 2.0**40
SLOPES = (1.0, 0.5)  # of tanh and of GELU at zero
TOLERANCE = 1e-5  # the largest difference of a probability that still counts as rounding


def export_encoder(
    model: MLCLModel,
    folder: str | os.PathLike[str],
    processor: Any = None,
    *,
    max_length: int | None = None,
    prototypes: bool = True,
) -> Path:
    """Write an encoder as the plain backbone that it is, with no trace of this package.

    - A text encoder becomes a folder that ``AutoModel`` and ``SentenceTransformer`` load. The latter needs the
      tokenizer; its pooling is that of the model, so its vectors are our features.
    - An image encoder becomes a folder that ``timm.create_model("local-dir:FOLDER", num_classes=0)`` (or
      ``"hf-hub:..."``) and ``AutoModel`` load.
    - ``prototypes.safetensors`` has the prototypes and the projection into their space, and the labels' names as JSON
      in its metadata; the model card shows how to score labels by them.

    Args:
        model: The trained encoder.
        folder: Where to write. Files of the same names are replaced, once all could be made.
        processor: Its tokenizer or image processor.
        max_length: Tokens at which texts are cut, as in training; the tokenizer's ``model_max_length`` if not given,
            and never more than the backbone has positions for.
        prototypes: Whether to write them. A loss that does not use them has left them as they were drawn.

    Examples:
        >>> import tempfile
        >>> from transformers import AutoModel
        >>> model = MLCLModel.from_backbone("resnet10t", ["cat", "dog"], pretrained=False)
        >>> folder = export_encoder(model, tempfile.mkdtemp())
        >>> type(AutoModel.from_pretrained(folder)).__name__
        'TimmWrapperModel'
    """
    if not isinstance(model, MLCLModel):
        raise ValueError(f"model must be an MLCLModel, got {type(model).__name__}. Classifiers: export_classifier.")
    if isinstance(model.backbone, FeatureBackbone):
        raise ValueError("model reads precomputed features, and no other library has its backbone. Use export_onnx.")
    with staged(folder) as stage:
        if isinstance(model.backbone.config, TimmWrapperConfig):
            _save_timm(model.backbone.timm_model, model.backbone.config, stage, processor)
        else:
            model.backbone.save_pretrained(stage)
            if processor is not None and "image" in reads(model.backbone.config):
                processor.save_pretrained(stage)
            elif processor is not None:
                length = _save_tokenizer(processor, model, stage, max_length)
                _save_sentence_transformer(model, stage, length)
        if prototypes:
            _save_prototypes(model, stage / PROTOTYPES_FILE)
    return Path(folder)


def export_classifier(
    classifier: MLCLForSequenceClassification | MLCLForImageClassification | MLCLModel,
    folder: str | os.PathLike[str],
    processor: Any = None,
    *,
    max_length: int | None = None,
) -> Path:
    """Write a classifier as a plain model of transformers or timm, if one computes exactly the same; else refuse it.

    A text classifier becomes a folder for ``AutoModelForSequenceClassification`` and
    ``pipeline("text-classification", top_k=None)``; an image classifier one for ``AutoModelForImageClassification`` and
    ``timm.create_model("local-dir:FOLDER", pretrained=True)``, whose logits want a sigmoid. Both are for prediction in
    float32 or bfloat16: the scaling of text heads leaves the range of float16.

    Args:
        classifier: With one head: from a linear evaluation with ``heads=1`` or ``protocol="best"``, or an `MLCLModel`
            trained with a loss on logits.
        folder: As for `export_encoder`, also `processor` and `max_length`.
        processor: Its tokenizer or image processor.
        max_length: Tokens at which texts are cut.

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
    with ready_for_export(classifier):
        weight, bias = _one_linear_layer(classifier)
        config = classifier.config
        if config.backbone_config.model_type == "mlcl_features":
            raise _NoCounterpartError("A classifier of precomputed features has no counterpart in another library.")
        is_timm = isinstance(config.backbone_config, TimmWrapperConfig)
        plain = (_timm_classifier if is_timm else _text_classifier)(classifier, weight, bias)
        with staged(folder) as stage:
            if is_timm:
                _save_timm(plain, config.backbone_config, stage, processor, labels=config.label_names)
            else:
                plain.save_pretrained(stage)
                if processor is not None:
                    _save_tokenizer(processor, classifier, stage, max_length)
    return Path(folder)


@contextmanager
def ready_for_export(model: Any) -> Iterator[None]:
    """One of our models in evaluation mode and on the CPU, without gradients, for as long as an export takes."""
    if not isinstance(model, OURS):
        names = ", ".join(kind.__name__ for kind in OURS)
        raise ValueError(f"The model to export must be one of {names}; got {type(model).__name__}.")
    if model.dtype != torch.float32:
        raise ValueError(f"model must be in float32 to be exported, but is in {model.dtype}: call model.float() first.")
    was_training, device = model.training, model.device
    model.eval().cpu()
    try:
        with torch.no_grad():
            yield
    finally:
        model.to(device).train(was_training)


def example_inputs(model: Any, rows: int, length: int, image_size: int | None = None) -> dict[str, Tensor]:
    """Inputs to compare models on: texts of up to `length` tokens, images or vectors.

    Sizes that are free differ between an even and an odd number of rows.
    """
    random, config = torch.Generator().manual_seed(length), model.backbone.config
    if model.main_input_name == "feature_values":
        return {"feature_values": torch.randn(rows, config.feature_dim, generator=random)}
    if model.main_input_name == "pixel_values":
        side = (image_size, image_size) if image_size is not None else _fixed_size(model.backbone)
        height, width = side or ((96, 128) if rows % 2 else (64, 64))
        return {"pixel_values": torch.randn(rows, 3, height, width, generator=random)}
    ids = torch.randint(min(5, config.vocab_size - 1), config.vocab_size, (rows, length), generator=random)
    mask = (torch.arange(length) < torch.tensor([[length - 2 * row] for row in range(rows)])).long()
    return {"input_ids": ids, "attention_mask": mask}


def _fixed_size(backbone: Any) -> tuple[int, int] | None:
    """Height and width of the images that a model was made for, where it takes no others."""
    if not isinstance(backbone.config, TimmWrapperConfig):
        side = getattr(backbone.config, "image_size", None)  # convolutions of transformers have none, or do not care
        return (side, side) if isinstance(side, int) else None
    timm_model: Any = backbone.timm_model
    if not timm_model.pretrained_cfg.get("fixed_input_size"):
        return None
    embedding = getattr(timm_model, "patch_embed", None)  # of vision transformers; it knows of an img_size= given
    return getattr(embedding, "img_size", None) or tuple(timm_model.pretrained_cfg["input_size"][1:])


def _save_timm(
    model: Any, config: TimmWrapperConfig, folder: Path, processor: Any, labels: list[str] | None = None
) -> None:
    """Write a timm model in timm's own layout, which transformers reads as well."""
    from timm.models import save_for_hf

    model = copy.copy(model)  # whose description is changed, while its weights are shared
    described = {key: value for key, value in dict(model.pretrained_cfg).items() if key not in ABOUT_OTHER_WEIGHTS}
    model.pretrained_cfg = {**described, **_preprocessing(processor), "architecture": config.architecture}
    settings = {"label_names": labels, "problem_type": "multi_label_classification"} if labels else {}
    if processor is not None and not isinstance(processor, TimmWrapperImageProcessor):  # it is in config.json already
        processor.save_pretrained(folder)
        # transformers would otherwise take timm's transform for a local folder, and what was saved for the Hub's.
        settings["image_processor_type"] = type(processor).__name__
    save_for_hf(model, str(folder), settings, model_args=config.model_args, safe_serialization=True)


def _preprocessing(processor: Any) -> dict[str, Any]:
    """An image processor's settings in timm's words, so that timm's transform prepares images alike."""
    if processor is None:
        return {}
    if isinstance(processor, TimmWrapperImageProcessor):
        return dict(processor.data_config)
    size = getattr(processor, "size", None) or {}  # whatever a user gave as one
    if not size.get("height") or not size.get("width"):
        raise ValueError(
            f"processor must resize images to a fixed height and width, but its size is {size}. Use "
            "hf_mlcl.data.image_processor(size)."
        )
    shape = (3, size["height"], size["width"])
    return {
        "input_size": shape,
        "test_input_size": shape,
        "crop_pct": 1.0,
        "test_crop_pct": 1.0,
        "crop_mode": "squash",
        "interpolation": {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}[int(processor.resample)],
        "mean": tuple(processor.image_mean),
        "std": tuple(processor.image_std),
    }


def _save_tokenizer(tokenizer: Any, model: Any, folder: Path, max_length: int | None) -> int:
    """Write the tokenizer with the length at which it cuts, and return that length."""
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise ValueError(f"processor must be the tokenizer of a text encoder, got {type(tokenizer).__name__}.")
    if max_length is not None and max_length < 1:
        raise ValueError(f"max_length must be at least 1, got {max_length}.")
    # Not every encoder has a limit; RoBERTa and its kin begin to count after padding.
    positions = getattr(model.backbone.config, "max_position_embeddings", None) or 10**9
    padding = getattr(getattr(model.backbone, "embeddings", None), "padding_idx", None)
    before = tokenizer.model_max_length
    length = int(min(max_length or before, positions if padding is None else positions - padding - 1))
    try:
        tokenizer.model_max_length = length
        tokenizer.save_pretrained(folder)
    finally:
        tokenizer.model_max_length = before
    return length


def _save_sentence_transformer(model: MLCLModel, folder: Path, max_length: int) -> None:
    """The few files that make a SentenceTransformer of a backbone, in the layout that all its versions read."""
    pooling = model.config.pooling
    files: dict[str, Any] = {
        "modules.json": [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (kind, path) in enumerate((("Transformer", ""), ("Pooling", "1_Pooling")))
        ],
        "1_Pooling/config.json": {
            "word_embedding_dimension": feature_size(model.backbone),
            "pooling_mode_cls_token": pooling == "first",
            "pooling_mode_mean_tokens": pooling == "mean",
            "pooling_mode_lasttoken": pooling == "last",
        },
        "sentence_bert_config.json": {"max_seq_length": max_length, "do_lower_case": False},
        "config_sentence_transformers.json": {"similarity_fn_name": "cosine"},
    }
    (folder / "1_Pooling").mkdir()
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")


def _save_prototypes(model: MLCLModel, path: Path) -> None:
    from safetensors.torch import save_file

    tensors = {"prototypes": model.prototypes.weight}
    for name, layer in model.projection.named_children():
        for kind, parameter in layer.named_parameters():
            tensors[f"projection_{name}{'_bias' if kind == 'bias' else ''}"] = parameter
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(stored, path, {"format": "pt", "labels": json.dumps(model.config.label_names)})


class _NoCounterpartError(ValueError):
    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason} export_onnx(model, path) writes any classifier for people without hf_mlcl.")


def _one_linear_layer(classifier: Any) -> tuple[Tensor, Tensor]:
    """Weight (labels, features) and bias (labels,) of a classifier that is one linear layer."""
    if isinstance(classifier, MLCLModel):
        if classifier.classifier is None:
            raise ValueError("This MLCLModel has no classifier: export trainer.linear_evaluate(...).classifier.")
        return classifier.classifier.weight, classifier.classifier.bias
    heads = classifier.heads
    if len(heads.weight) != 1:
        raise _NoCounterpartError(
            f"This classifier averages the probabilities of {len(heads.weight)} linear heads, and no model of "
            "transformers or timm does. Evaluate with LinearEvaluationConfig(heads=1) or protocol='best' for a "
            "classifier with one head."
        )
    temperature = classifier.config.logit_temperature
    return heads.weight[0] / temperature, heads.bias[0] / temperature


def _timm_classifier(classifier: Any, weight: Tensor, bias: Tensor) -> Any:
    import timm

    config = classifier.config.backbone_config
    name, arguments = config.architecture, config.model_args or {}
    model: Any = timm.create_model(name, num_classes=len(weight), **arguments).eval()
    layer = model.get_classifier()
    if not isinstance(layer, nn.Linear) or layer.weight.shape != weight.shape:
        raise _NoCounterpartError(f"The classifier of {name} is {layer}, not one linear layer on its features.")
    missing, unexpected = model.load_state_dict(classifier.backbone.timm_model.state_dict(), strict=False)
    own = {key for key, parameter in model.named_parameters() if parameter is layer.weight or parameter is layer.bias}
    if unexpected or set(missing) - own:
        raise _NoCounterpartError(f"{name} has another structure with a classifier than without.")
    layer.bias.copy_(bias)
    _fit(classifier, name, layer, [weight], lambda inputs: model(inputs["pixel_values"]))
    return model


def _text_classifier(classifier: Any, weight: Tensor, bias: Tensor) -> Any:
    config, ours = copy.deepcopy(classifier.config.backbone_config), classifier.config
    if ours.pooling != "first":
        raise _NoCounterpartError(
            f"This classifier looks at the {ours.pooling} of a text's tokens, but the classification model of "
            f"{config.model_type!r} has no such head. Train with pooling='first' for an exact export, if it can."
        )
    config.id2label, config.label2id = dict(ours.id2label), dict(ours.label2id)
    config.problem_type = "multi_label_classification"
    if ours.thresholds is not None:  # for whoever wants to decide as the original does
        config.thresholds = list(ours.thresholds)
    if DecisionRule.of(ours).single_label:
        config.single_label = True
    try:
        model = AutoModelForSequenceClassification.from_config(config, trust_remote_code=False).eval()
    except ValueError as error:
        raise _NoCounterpartError(f"transformers has no classification model for {config.model_type!r}.") from error
    name = type(model).__name__
    _, unexpected = model.base_model.load_state_dict(classifier.backbone.state_dict(), strict=False)
    head, size = _head(model, classifier.backbone), weight.shape[1]
    if unexpected or [layer.weight.shape for layer in head] not in ([weight.shape], [(size, size), weight.shape]):
        raise _NoCounterpartError(f"The classification head of {name} is not one that we know.")
    candidates = [weight]
    if len(head) == 2:
        head[0].weight.copy_(torch.eye(size) / SCALE)
        head[0].bias.zero_()
        candidates = [weight * (SCALE / slope) for slope in SLOPES]
    head[-1].bias.copy_(bias)
    _fit(classifier, name, head[-1], candidates, lambda inputs: model(**inputs).logits)
    return model


def _head(model: Any, backbone: nn.Module) -> list[nn.Linear]:
    """The layers that a classification model puts on its backbone; none where they are not all linear."""
    known = {f"{model.base_model_prefix}.{name}" for name, _ in backbone.named_modules()}
    new = [module for name, module in model.named_modules() if name not in known and not list(module.children())]
    layers = [module for module in new if list(module.parameters())]
    return layers if all(isinstance(layer, nn.Linear) for layer in layers) else []


def _fit(classifier: Any, name: str, layer: nn.Linear, candidates: list[Tensor], predict: Callable[..., Any]) -> None:
    """Give a model's last layer the weights with which it agrees with the original, or refuse it."""
    inputs = example_inputs(classifier, rows=3, length=9)
    expected, difference = classifier(**inputs).logits.sigmoid(), math.inf
    for weight in candidates:
        layer.weight.copy_(weight)
        difference = float((expected - predict(inputs).sigmoid()).abs().max())
        if difference <= TOLERANCE:
            return
    raise _NoCounterpartError(
        f"{name} cannot hold this classifier exactly: its head does more than a linear layer on the first token, and "
        f"probabilities differ by up to {difference:.2g}."
    )
