"""Encoders and classifiers for people without this package, as models of transformers, timm and sentence-transformers.

An encoder is exported as the plain backbone that it is. A classifier becomes a model that transformers or timm have by
themselves, where one computes the same (`hf_mlcl.hub.native`); otherwise transformers' mechanism for models with code
of their own takes it: `modeling_mlcl.py` goes along, one file that needs nothing but torch and transformers.
"""

from __future__ import annotations

import copy
import inspect
import json
import os
import shutil
from pathlib import Path
from typing import Any

from transformers import (
    PreTrainedTokenizerBase,
    TimmWrapperConfig,
    TimmWrapperForImageClassification,
    TimmWrapperImageProcessor,
)

from hf_mlcl.files import staged
from hf_mlcl.hub import modeling_mlcl
from hf_mlcl.hub.examples import example_inputs, ready_for_export
from hf_mlcl.hub.native import (
    TOLERANCE,
    NoCounterpartError,
    decision_settings,
    logit_difference,
    native_classifier,
    one_linear_layer,
)
from hf_mlcl.inference.encoding import token_limit
from hf_mlcl.models import FeatureBackbone, MLCLForImageClassification, MLCLForSequenceClassification, MLCLModel
from hf_mlcl.models.adapters import merged
from hf_mlcl.models.exported import PROTOTYPES_FILE, save_prototypes
from hf_mlcl.models.families import feature_size, is_causal
from hf_mlcl.models.loading import load

CODE = Path(modeling_mlcl.__file__)
ABOUT_OTHER_WEIGHTS = ("tag", "license", "origin_url", "paper_ids", "paper_name", "notes")
"""What timm's description of an architecture says about the weights that it would download."""


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
    - An image encoder of timm becomes a folder that ``timm.create_model("local-dir:FOLDER", num_classes=0)`` (or
      ``"hf-hub:..."``) and ``AutoModel`` load; one of transformers a folder that ``AutoModel`` loads.
    - ``prototypes.safetensors`` has the prototypes and the projection into their space, and the labels' names as JSON
      in its metadata; the model card shows how to score labels by them, and ``MLCLModel.from_pretrained`` finds there
      what it needs to make the whole encoder again.

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
    model = merged(model)
    if not isinstance(model, MLCLModel):
        raise ValueError(f"model must be an MLCLModel, got {type(model).__name__}. Classifiers: export_classifier.")
    if isinstance(model.backbone, FeatureBackbone):
        raise ValueError("model reads precomputed features, and no other library has its backbone. Use export_onnx.")
    with staged(folder) as stage:
        if isinstance(model.backbone.config, TimmWrapperConfig):
            _save_timm(model.backbone.timm_model, model.backbone.config, stage, processor)
        else:
            model.backbone.save_pretrained(stage)
            if processor is not None and model.config.modalities is not None:  # a tokenizer and an image processor
                processor.save_pretrained(stage)
            elif processor is not None:
                save_processor(processor, model, stage, max_length)
                if model.main_input_name == "input_ids":
                    save_sentence_transformer(model, stage)
        if prototypes:
            save_prototypes(model, stage / PROTOTYPES_FILE)
    return Path(folder)


def export_classifier(
    classifier: MLCLForSequenceClassification | MLCLForImageClassification | MLCLModel,
    folder: str | os.PathLike[str],
    processor: Any = None,
    *,
    max_length: int | None = None,
    custom_code: bool = True,
) -> Path:
    """Write a classifier for ``pipeline("text-classification")`` or ``pipeline("image-classification")`` without us.

    Where a model of transformers or timm has the same logits, that is what is written:
    ``AutoModelForSequenceClassification``, ``AutoModelForImageClassification`` or
    ``timm.create_model("local-dir:FOLDER", pretrained=True)`` load it, in half precision too. Everything else loads
    with ``trust_remote_code=True``, through ``modeling_mlcl.py``, which is written beside it. Thresholds and the rule
    of one label per row are in the configuration either way; what was written is compared with the original.

    Args:
        classifier: From a linear evaluation, or an `MLCLModel` trained with a loss on logits.
        folder: As for `export_encoder`, also `processor` and `max_length`.
        processor: Its tokenizer or image processor.
        max_length: Tokens at which texts are cut.
        custom_code: Whether code may go along; without, what needs it is an error that says why.

    Examples:
        >>> import tempfile, torch
        >>> from transformers import AutoModelForImageClassification
        >>> encoder = MLCLModel.from_backbone("resnet10t", ["cat", "dog"], pretrained=False)
        >>> ours = MLCLForImageClassification.from_encoder(encoder, torch.randn(1, 2, 512), torch.zeros(1, 2)).eval()
        >>> theirs = AutoModelForImageClassification.from_pretrained(export_classifier(ours, tempfile.mkdtemp())).eval()
        >>> pixels = torch.randn(2, 3, 32, 32)
        >>> bool((ours(pixels).logits - theirs(pixels).logits).abs().max() < 1e-5)
        True
    """
    classifier = merged(classifier)
    with ready_for_export(classifier):
        config = classifier.config
        if isinstance(classifier, MLCLModel):
            one_linear_layer(classifier)  # refuses an encoder without one
        if config.backbone_config.model_type == "mlcl_features":
            raise NoCounterpartError(
                "A classifier of precomputed features has no counterpart in another library. export_onnx writes it for "
                "people without hf_mlcl."
            )
        try:
            plain = native_classifier(classifier)
        except NoCounterpartError as error:
            if not custom_code:
                raise NoCounterpartError(
                    f"{error} With custom_code=True it is written with the code it needs."
                ) from error
            plain = None
        with staged(folder) as stage:
            if plain is None:
                _save_with_code(classifier, stage)
            elif isinstance(config.backbone_config, TimmWrapperConfig):
                kind = TimmWrapperForImageClassification.__name__  # timm does not ask, but others do
                settings = {"architectures": [kind], "label_names": config.label_names, **decision_settings(config)}
                _save_timm(plain, config.backbone_config, stage, processor, settings)
            else:
                plain.save_pretrained(stage)
            if processor is not None and not (stage / "preprocessor_config.json").exists():
                save_processor(processor, classifier, stage, max_length)
        if plain is not None:
            (Path(folder) / CODE.name).unlink(missing_ok=True)  # of an earlier export
    return Path(folder)


def _save_with_code(classifier: Any, folder: Path) -> None:
    """Write a classifier as it is, with the file that loads it, and compare what that file makes of it."""
    if isinstance(classifier, MLCLModel):
        weight, bias = one_linear_layer(classifier)
        images = classifier.main_input_name == "pixel_values"
        kind = MLCLForImageClassification if images else MLCLForSequenceClassification
        classifier = kind.from_encoder(classifier, weight[None], bias[None])
    if classifier.backbone.is_remote_code():
        name = type(classifier.backbone).__name__
        raise NoCounterpartError(f"Its backbone, {name}, comes with code of its own: export_onnx writes it without.")
    classifier.save_pretrained(folder)
    name = type(classifier).__name__
    auto = {"AutoConfig": "MLCLConfig", name.replace("MLCL", "AutoModel"): name}
    path = folder / "config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings["auto_map"] = {key: f"{CODE.stem}.{value}" for key, value in auto.items()}
    settings["feature_size"] = feature_size(classifier.backbone)
    takes = inspect.signature(classifier.backbone.forward).parameters
    settings["count_positions"] = is_causal(classifier.config.backbone_config) and "position_ids" in takes
    path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    shutil.copyfile(CODE, folder / CODE.name)
    theirs, inputs = load(getattr(modeling_mlcl, name), folder).eval(), example_inputs(classifier, rows=3, length=9)
    difference = logit_difference(classifier(**inputs).logits, theirs(**inputs).logits)
    if difference > TOLERANCE:
        raise NoCounterpartError(
            f"{CODE.name} does not compute this classifier (pooling={classifier.config.pooling!r}): logits differ by "
            f"up to {difference:.2g}. export_onnx writes it for people without hf_mlcl."
        )


def _save_timm(
    model: Any, config: TimmWrapperConfig, folder: Path, processor: Any, settings: dict[str, Any] | None = None
) -> None:
    """Write a timm model in timm's own layout, which transformers reads as well."""
    from timm.models import save_for_hf

    model = copy.copy(model)  # whose description is changed, while its weights are shared
    described = {key: value for key, value in dict(model.pretrained_cfg).items() if key not in ABOUT_OTHER_WEIGHTS}
    model.pretrained_cfg = {**described, **_preprocessing(processor), "architecture": config.architecture}
    settings = dict(settings or {})
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


def save_processor(processor: Any, model: Any, folder: Path, max_length: int | None = None) -> None:
    """Write an image processor, or a tokenizer with the length at which it cuts."""
    if model.main_input_name == "pixel_values":
        processor.save_pretrained(folder)
        return
    if not isinstance(processor, PreTrainedTokenizerBase):
        raise ValueError(f"processor must be the tokenizer of a text encoder, got {type(processor).__name__}.")
    if max_length is not None and max_length < 1:
        raise ValueError(f"max_length must be at least 1, got {max_length}.")
    before = processor.model_max_length
    try:
        processor.model_max_length = token_limit(model.backbone, max_length or before)
        processor.save_pretrained(folder)
    finally:
        processor.model_max_length = before
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    if settings.get("tokenizer_class") == "TokenizersBackend":  # transformers 5 knows both names, 4 this one only
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
        path.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def save_sentence_transformer(model: MLCLModel, folder: Path) -> None:
    """The few files that make a SentenceTransformer of a backbone and a tokenizer, as all its versions read them."""
    cut = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))["model_max_length"]
    modes = {"first": "cls_token", "mean": "mean_tokens", "last": "lasttoken"}
    normalize = [("Normalize", "2_Normalize")] if model.config.normalize_features else []
    files: dict[str, Any] = {
        "modules.json": [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (kind, path) in enumerate((("Transformer", ""), ("Pooling", "1_Pooling"), *normalize))
        ],
        "1_Pooling/config.json": {
            "word_embedding_dimension": feature_size(model.backbone),
            **{f"pooling_mode_{mode}": pooling == model.config.pooling for pooling, mode in modes.items()},
        },
        "sentence_bert_config.json": {"max_seq_length": cut, "do_lower_case": False},
        "config_sentence_transformers.json": {"similarity_fn_name": "cosine"},
    }
    (folder / "1_Pooling").mkdir()
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")
