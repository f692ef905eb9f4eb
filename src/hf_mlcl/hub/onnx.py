"""Models as ONNX graphs: any encoder and any classifier, in any language, without torch."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hf_mlcl.files import staged
from hf_mlcl.hub.classifier import image_shape
from hf_mlcl.models import MLCLForImageClassification, MLCLForSequenceClassification, MLCLModel
from hf_mlcl.models.backbones import represent

TOLERANCE = 1e-4
"""Largest difference to torch, in units of an output's largest value where that is above 1."""


class _Graph(nn.Module):
    """What goes into the graph: from the inputs by position to the outputs as a tuple."""

    def __init__(self, model: Any, inputs: list[str]) -> None:
        super().__init__()
        self.model, self.inputs = model, inputs
        is_encoder = isinstance(model, MLCLModel)
        self.outputs = ["features"]
        if is_encoder:
            self.outputs += ["embeddings"]
        if not is_encoder or model.classifier is not None:
            self.outputs = ["probabilities", *self.outputs]

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        model, given = self.model, dict(zip(self.inputs, values, strict=True))
        features = represent(model.backbone(**given), given.get("attention_mask"), model.config.pooling)
        results = {"features": features}
        if isinstance(model, MLCLModel):
            results["embeddings"] = model.projection(features)
            if model.classifier is not None:
                results["probabilities"] = model.classifier(features).sigmoid()
        else:
            logits = model.heads(features) / getattr(model.config, "logit_temperature", 1.0)
            results["probabilities"] = logits.sigmoid()
        return tuple(results[name] for name in self.outputs)


def export_onnx(
    model: MLCLModel | MLCLForSequenceClassification | MLCLForImageClassification,
    path: str | os.PathLike[str],
    *,
    image_size: int | None = None,
    opset: int = 18,
) -> Path:
    """Write a model as an ONNX graph, and check the graph against torch in onnxruntime before it is put in place.

    Inputs are ``input_ids`` and ``attention_mask`` (int64) of a text model, ``pixel_values`` of an image model, or
    ``feature_values``; any number of rows, texts of any length. Outputs are ``features``; ``probabilities`` where the
    model has a classifier; ``embeddings`` of an encoder. The labels' names, and thresholds where there are some, are in
    the graph's metadata as JSON. Needs ``pip install 'hf-mlcl[onnx]'``.

    Args:
        model: An encoder or a classifier, in float32.
        path: The file to write. Weights beyond 2 GB go to a file of the same name with ``.data`` beside it.
        image_size: Side of the square images; free if not given, but for architectures that want a fixed size.
        opset: Version of ONNX's operators.

    Returns:
        The path.

    Examples:
        >>> import tempfile
        >>> model = MLCLModel.from_features(4, ["sport", "music"], classifier=True)
        >>> path = export_onnx(model, Path(tempfile.mkdtemp()) / "model.onnx")
        >>> import onnxruntime
        >>> session = onnxruntime.InferenceSession(path)
        >>> [output.name for output in session.get_outputs()]
        ['probabilities', 'features', 'embeddings']
    """
    onnx, onnxruntime = _libraries()
    if not isinstance(model, (MLCLModel, MLCLForSequenceClassification, MLCLForImageClassification)):
        raise ValueError(
            "model must be an MLCLModel, MLCLForSequenceClassification or MLCLForImageClassification, got "
            f"{type(model).__name__}."
        )
    target = Path(path)
    if target.suffix != ".onnx":
        raise ValueError(f"path must end in .onnx, got {target.name!r}.")
    example, dynamic = _example(model, rows=2, length=7, image_size=image_size)
    with _ready_for_export(model), staged(target.parent) as stage:
        graph = _Graph(model, list(example))
        with _quiet():
            program: Any = torch.onnx.export(
                graph,
                tuple(example.values()),
                dynamo=True,
                input_names=list(example),
                output_names=graph.outputs,
                dynamic_shapes=(tuple(dynamic.values()),),
                opset_version=opset,
                verbose=False,
            )
        program.model.metadata_props.update(_metadata(model))
        written = stage / target.name
        program.save(str(written), external_data=_bytes(model) > 1_900_000_000)
        onnx.checker.check_model(str(written))
        session = onnxruntime.InferenceSession(str(written), providers=["CPUExecutionProvider"])
        other, _ = _example(model, rows=3, length=12, image_size=image_size)
        for inputs in (example, other):
            _check(graph, session, inputs)
    return target


def _libraries() -> tuple[Any, Any]:
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"export_onnx needs onnx, onnxscript and onnxruntime: pip install 'hf-mlcl[onnx]'. {error}"
        ) from error
    return onnx, onnxruntime


def _example(
    model: Any, rows: int, length: int, image_size: int | None
) -> tuple[dict[str, Tensor], dict[str, dict[int, Any]]]:
    """Inputs to trace the model with, and which of their sizes are free."""
    from torch.export import Dim

    random = torch.Generator().manual_seed(length)
    batch, config = Dim.DYNAMIC, model.backbone.config
    if model.main_input_name == "pixel_values":
        timm_model = model.backbone.timm_model
        fixed = image_size is not None or timm_model.pretrained_cfg.get("fixed_input_size")
        side = image_shape(timm_model)[1:] if image_size is None else (image_size, image_size)
        shape = (rows, 3, *side) if fixed else (rows, 3, 64 + 32 * (rows % 2), 64)
        sizes: dict[int, Any] = {0: batch} if fixed else {0: batch, 2: Dim.DYNAMIC, 3: Dim.DYNAMIC}
        return {"pixel_values": torch.randn(shape, generator=random)}, {"pixel_values": sizes}
    if model.main_input_name == "feature_values":
        return {"feature_values": torch.randn(rows, config.feature_dim, generator=random)}, {
            "feature_values": {0: batch}
        }
    ids = torch.randint(min(5, config.vocab_size - 1), config.vocab_size, (rows, length), generator=random)
    mask = (torch.arange(length) < torch.tensor([[length - 2 * row] for row in range(rows)])).long()
    free = {0: batch, 1: Dim.DYNAMIC}
    return {"input_ids": ids, "attention_mask": mask}, {"input_ids": free, "attention_mask": free}


def _metadata(model: Any) -> dict[str, str]:
    import json

    thresholds = getattr(model.config, "thresholds", None)
    return {
        "labels": json.dumps(model.config.label_names),
        **({"thresholds": json.dumps(list(thresholds))} if thresholds else {}),
    }


def _check(graph: _Graph, session: Any, inputs: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        expected = graph(*inputs.values())
    found = session.run(graph.outputs, {name: value.numpy() for name, value in inputs.items()})
    for name, ours, theirs in zip(graph.outputs, expected, found, strict=True):
        difference = float((ours - torch.from_numpy(theirs)).abs().max() / ours.abs().max().clamp(min=1.0))
        if not difference <= TOLERANCE:
            raise RuntimeError(
                f"The ONNX graph's {name} differ from torch's by {difference:.2g}, more than {TOLERANCE:g}: nothing "
                "was written. Try another opset=, or other versions of torch and onnxscript."
            )


def _bytes(model: nn.Module) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())


@contextmanager
def _ready_for_export(model: Any) -> Iterator[None]:
    """In evaluation mode and on the CPU, for as long as the export takes."""
    was_training, device = model.training, model.device
    if model.dtype != torch.float32:
        raise ValueError(f"model must be in float32 to be exported, but is in {model.dtype}: call model.float() first.")
    model.eval().cpu()
    try:
        yield
    finally:
        model.to(device).train(was_training)


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter reports its progress and warns of versions; what matters is checked afterwards."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
