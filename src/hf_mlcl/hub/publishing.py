"""From a folder of ours to one that others load without us: what a push uploads, and ``hf-mlcl export`` writes."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

from transformers import AutoImageProcessor, AutoProcessor, AutoTokenizer, PreTrainedConfig, TimmWrapperConfig
from transformers.utils import cached_file

from hf_mlcl.errors import unknown_name
from hf_mlcl.files import staged
from hf_mlcl.hub.exporting import CODE, export_classifier, export_encoder, save_processor, save_sentence_transformer
from hf_mlcl.hub.model_card import ModelReport, adapt_model_card, report_of_model, write_model_card
from hf_mlcl.hub.native import NoCounterpartError, decision_settings
from hf_mlcl.hub.onnx import export_onnx
from hf_mlcl.models import MLCLForImageClassification, MLCLForSequenceClassification, MLCLModel
from hf_mlcl.models.loading import CLASSIFIER_FOLDER, check_finite, load, model_within, problem

Target = Literal["transformers", "sentence-transformers", "timm", "onnx"]
KINDS = {kind.__name__: kind for kind in (MLCLForSequenceClassification, MLCLForImageClassification, MLCLModel)}
BESIDE_THE_CARD = ("figures/*.png", ".eval_results/*.yaml", "LICENSE*")


def export_model(
    model: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    to: Target = "transformers",
    *,
    trust_remote_code: bool = False,
) -> Path:
    """Write a saved encoder or classifier for another library, with its tokenizer or image processor and its card.

    Args:
        model: A folder with a model; the output folder of a training, whose classifier is meant (for
            ``"sentence-transformers"`` its encoder); or a model on the Hub.
        folder: Where to write. Files of the same names are replaced, once all could be made.
        to: ``"transformers"``: for pipelines and Auto classes, as `export_classifier` and `export_encoder` write it.
            ``"sentence-transformers"``: an encoder of texts. ``"timm"``: an encoder or classifier of images.
            ``"onnx"``: the graph as ``onnx/model.onnx``, where sentence-transformers and optimum look for it.
        trust_remote_code: Whether to run Python files that come with the model.

    Examples:
        >>> import tempfile
        >>> encoder = MLCLModel.from_backbone("resnet10t", ["cat", "dog"], pretrained=False)
        >>> encoder.save_pretrained(source := tempfile.mkdtemp())
        >>> sorted(path.name for path in export_model(source, tempfile.mkdtemp(), "timm").iterdir())
        ['README.md', 'config.json', 'model.safetensors', 'prototypes.safetensors']
    """
    if to not in get_args(Target):
        raise ValueError(unknown_name("library to export to,", to, get_args(Target)))
    source = model_within(model, "encoder" if to == "sentence-transformers" else CLASSIFIER_FOLDER)
    found, processor = _load(source, trust_remote_code)
    _check_possible(found, to, processor, source)
    with staged(folder) as stage:
        if to == "onnx":
            _write_onnx(found, stage, processor)
        elif to == "timm":
            _write_timm(found, stage, processor)
        else:
            _write_plain(found, stage, processor)
        _write_card(stage, source, found, title=Path(os.fspath(model)).resolve().name)
    return Path(folder)


def has_code(settings: Mapping[str, Any]) -> bool:
    """Whether a model's ``config.json`` says that the code which we wrote for it lies beside it."""
    return CODE.stem in str(settings.get("auto_map"))


def is_plain(settings: Mapping[str, Any]) -> bool:
    """Whether a model with this ``config.json`` loads without this package."""
    return settings.get("model_type") != "mlcl" or has_code(settings)


@contextmanager
def published(folder: Path) -> Iterator[Path]:
    """A folder with the same model for people without this package; the folder itself where it is that already.

    What no other library can load stays as it is: models of precomputed features, classifiers of texts and images
    together, and backbones whose own code would have to run here.
    """
    path = folder / "config.json"
    settings: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    backbone = settings.get("backbone_config") or {}
    plain = folder.with_name("backbone")  # of a training: its encoder, for others
    of_both = settings.get("modalities") and settings.get("architectures") != [MLCLModel.__name__]
    if is_plain(settings) or of_both or backbone.get("model_type") == "mlcl_features" or "auto_map" in backbone:
        yield folder
    elif folder.name == "encoder" and (plain / "config.json").is_file():
        yield plain
    else:
        found, processor = _load(os.fspath(folder), trust_remote_code=False)
        with tempfile.TemporaryDirectory() as temporary:
            target = Path(temporary) / folder.resolve().name
            _write_plain(found, target, processor)
            _write_card(target, os.fspath(folder), found)
            yield target


def _load(name: str, trust_remote_code: bool) -> tuple[Any, Any]:
    """One of our models, and its tokenizer or image processor where there is one."""
    try:
        described = PreTrainedConfig.get_config_dict(name)[0]
        if not described:
            raise ValueError("there is no config.json in it")
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{name} cannot be exported: {problem(error)}. Give the output folder of a training, its encoder/ or "
            f"classifier/, or a model on the Hub."
        ) from error
    is_ours = described.get("model_type") == "mlcl"
    kind = KINDS.get((described.get("architectures") or [""])[0]) if is_ours else MLCLModel  # perhaps an export of one
    is_encoder = is_ours or _file(name, "prototypes.safetensors") is not None
    if kind is None or not is_encoder:
        raise ValueError(
            f"{name} is no encoder or classifier of hf-mlcl, but {described.get('architectures') or 'something else'}: "
            f"it is what others load already."
        )
    model = kind.from_pretrained(name, trust_remote_code=trust_remote_code).eval()
    check_finite(name, model)
    images = model.main_input_name == "pixel_values"
    if model.config.modalities is not None and _file(name, "processor_config.json") is not None:  # of both
        return model, load(AutoProcessor, name, trust_remote_code=trust_remote_code)
    file, auto = (
        ("preprocessor_config.json", AutoImageProcessor) if images else ("tokenizer_config.json", AutoTokenizer)
    )
    return model, None if _file(name, file) is None else load(auto, name, trust_remote_code=trust_remote_code)


def _file(name: str, file: str) -> str | None:
    # Private, but the only way to ask for a file that may not be there without an error that looks like a failure.
    found: str | None = cached_file(name, file, _raise_exceptions_for_missing_entries=False)
    return found


def _check_possible(model: Any, to: Target, processor: Any, source: str) -> None:
    is_encoder, is_text = isinstance(model, MLCLModel), model.main_input_name == "input_ids"
    is_timm = isinstance(model.config.backbone_config, TimmWrapperConfig)
    if model.config.modalities is not None and not (is_encoder and to == "transformers"):
        beside = Path(source).with_name("encoder")
        encoder = source if is_encoder else beside if beside.is_dir() else "FOLDER_OF_TRAINING/encoder"
        raise ValueError(
            f"{source} reads texts, images or both, which no model of {to} does{'' if is_encoder else ' to classify'}. "
            f"Its encoder becomes one that AutoModel loads: hf-mlcl export {encoder} --to transformers. "
            "hf-mlcl predict and evaluate use the classifier itself."
        )
    if to == "sentence-transformers" and not (is_encoder and is_text):
        what = (
            "a classifier" if is_text else "a model of images" if not is_encoder or is_timm else "no encoder of texts"
        )
        way_out = "Give its encoder: MODEL/encoder." if is_text else "Use timm, transformers or onnx."
        raise ValueError(f"{source} is {what}, and sentence-transformers loads encoders of texts. {way_out}")
    if to == "sentence-transformers" and processor is None:
        raise ValueError(f"{source} has no tokenizer, which a SentenceTransformer needs: save it there.")
    if to == "timm" and not is_timm:
        name = type(model.backbone).__name__
        raise ValueError(f"The backbone of {source} is {name}, no model of timm. Use transformers or onnx.")


def _write_plain(model: Any, folder: Path, processor: Any) -> None:
    (export_encoder if isinstance(model, MLCLModel) else export_classifier)(model, folder, processor)


def _write_timm(model: Any, folder: Path, processor: Any) -> None:
    """Like the plain form, which is timm's for its architectures; but without code, which timm does not run."""
    if isinstance(model, MLCLModel):
        export_encoder(model, folder, processor)
        return
    try:
        export_classifier(model, folder, processor, custom_code=False)
    except NoCounterpartError as error:
        why = error.__cause__ or error  # without the advice to send code along
        raise ValueError(f"{why} Or export it to transformers or onnx, or its encoder to timm.") from error


def _write_onnx(model: Any, folder: Path, processor: Any) -> None:
    """The graph, and beside it a configuration that libraries know: the graph does the rest."""
    export_onnx(model, folder / "onnx" / "model.onnx")
    config, ours = model.config.backbone_config, model.config
    described = config.to_dict()
    if isinstance(config, TimmWrapperConfig):
        described = {
            "architecture": config.architecture,
            "num_classes": 0,
            "pretrained_cfg": dict(config.pretrained_cfg),
        }
    if not isinstance(model, MLCLModel):
        described.pop("architectures", None)  # that of the bare backbone
        described |= {"id2label": ours.id2label, "label2id": ours.label2id, **decision_settings(ours)}
        if "architecture" in described:
            described |= {"num_classes": ours.num_labels, "label_names": ours.label_names}
    (folder / "config.json").write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
    if processor is not None:
        save_processor(processor, model, folder)
        if isinstance(model, MLCLModel) and model.main_input_name == "input_ids":
            save_sentence_transformer(model, folder)


def _write_card(folder: Path, source: str, model: Any, title: str = "") -> None:
    """The card that lies with the model, with the lines for what was written; where none lies there, a new one."""
    report: ModelReport = report_of_model(model)
    card = Path(source) / "README.md"
    if not card.is_file():
        write_model_card(folder, report, name=title or None)
        return
    for path in (path for pattern in BESIDE_THE_CARD for path in Path(source).glob(pattern)):
        target = folder / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    adapt_model_card(card.read_text(encoding="utf-8"), folder, report)
