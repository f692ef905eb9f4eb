"""Models as ONNX graphs: any encoder and any classifier, in any language, without torch."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from hf_mlcl.files import staged
from hf_mlcl.hub.examples import example_inputs, ready_for_export
from hf_mlcl.models import MLCLForImageClassification, MLCLForSequenceClassification, MLCLModel
from hf_mlcl.models.adapters import merged
from hf_mlcl.models.families import decoder_inputs, represent

TOLERANCE = 1e-4
"""Largest difference to torch, in units of an output's largest value where that is above 1."""

LARGEST_FILE = 1_900_000_000
"""Bytes of weights in the graph's own file; ONNX's format ends at 2 GB."""


class _Graph(nn.Module):
    """What goes into the graph: from the inputs by position to the outputs as a tuple."""

    def __init__(self, model: Any, inputs: list[str]) -> None:
        super().__init__()
        self.model, self.inputs = model, inputs
        self.is_encoder = isinstance(model, MLCLModel)
        self.head = model.classifier if self.is_encoder else model.heads
        self.temperature = 1.0 if self.is_encoder else model.config.logit_temperature
        # What optimum and sentence-transformers look for comes first: logits, or the states that they pool.
        self.has_states = self.is_encoder and model.main_input_name == "input_ids"
        self.outputs = ["logits", "probabilities"] * (self.head is not None) + ["last_hidden_state"] * self.has_states
        self.outputs += ["features"] + ["embeddings"] * self.is_encoder
        self.eval()

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        model, given = self.model, dict(zip(self.inputs, values, strict=True))
        states = model.backbone(**decoder_inputs(model.config.backbone_config, given))
        mask, config = given.get("attention_mask"), model.config
        features = represent(states, mask, config.pooling, config.normalize_features)
        found = [features, model.projection(features)] if self.is_encoder else [features]
        if self.has_states:
            found.insert(0, states.last_hidden_state)
        if self.head is not None:
            logits = self.head(features) / self.temperature
            found = [logits, logits.sigmoid(), *found]
        return tuple(found)


def export_onnx(
    model: MLCLModel | MLCLForSequenceClassification | MLCLForImageClassification,
    path: str | os.PathLike[str],
    *,
    image_size: int | None = None,
    opset: int = 18,
) -> Path:
    """Write a model as an ONNX graph, and check the graph against torch in onnxruntime before it is put in place.

    Inputs are ``input_ids`` and ``attention_mask`` (int64) of a text model, ``pixel_values`` of an image model, or
    ``feature_values``; any number of rows, texts of any length. Outputs are ``logits`` and ``probabilities`` where the
    model has a classifier; ``features``; ``embeddings`` of an encoder, and ``last_hidden_state`` of one that reads
    texts. The labels' names, and thresholds where there are some, are in the graph's metadata as JSON. Needs
    ``pip install 'hf-mlcl[onnx]'``. `export_model` writes a whole folder around it, as other libraries expect one.

    Args:
        model: An encoder or a classifier, in float32.
        path: The file to write. Weights beyond 2 GB go to a file of the same name with ``.data`` beside it.
        image_size: Side of the square images; free if not given, but for architectures that want a fixed size.
        opset: Version of ONNX's operators.

    Examples:
        >>> import tempfile
        >>> model = MLCLModel.from_features(4, ["sport", "music"], classifier=True)
        >>> path = export_onnx(model, Path(tempfile.mkdtemp()) / "model.onnx")
        >>> import onnxruntime
        >>> session = onnxruntime.InferenceSession(path)
        >>> [output.name for output in session.get_outputs()]
        ['logits', 'probabilities', 'features', 'embeddings']
    """
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"export_onnx needs onnx, onnxscript and onnxruntime: pip install 'hf-mlcl[onnx]'. {error}"
        ) from error
    target = Path(path)
    if target.suffix != ".onnx":
        raise ValueError(f"path must end in .onnx, got {target.name!r}.")
    model = merged(model)
    with ready_for_export(model), staged(target.parent) as stage:
        first, second = (example_inputs(model, rows, length, image_size) for rows, length in ((2, 7), (3, 12)))
        graph = _Graph(model, list(first))
        free = tuple(  # sizes in which the two differ
            {axis: Dim.DYNAMIC for axis, size in enumerate(value.shape) if second[name].shape[axis] != size}
            for name, value in first.items()
        )
        program: Any = torch.onnx.export(
            graph,
            tuple(first.values()),
            dynamo=True,
            input_names=list(first),
            output_names=graph.outputs,
            dynamic_shapes=(free,),
            opset_version=opset,
            verbose=False,
        )
        facts = {"labels": model.config.label_names, "thresholds": model.config.thresholds}
        program.model.metadata_props.update({name: json.dumps(values) for name, values in facts.items() if values})
        written = stage / target.name
        weights = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
        program.save(str(written), external_data=weights > LARGEST_FILE)
        onnx.checker.check_model(str(written))
        session = onnxruntime.InferenceSession(str(written), providers=["CPUExecutionProvider"])
        for inputs in (first, second):
            _check(graph, session, inputs)
    return target


def _check(graph: _Graph, session: Any, inputs: dict[str, Tensor]) -> None:
    found = session.run(graph.outputs, {name: value.numpy() for name, value in inputs.items()})
    for name, ours, theirs in zip(graph.outputs, graph(*inputs.values()), found, strict=True):
        difference = float((ours - torch.from_numpy(theirs)).abs().max() / ours.abs().max().clamp(min=1.0))
        if not difference <= TOLERANCE:
            raise RuntimeError(
                f"The ONNX graph's {name} differ from torch's by {difference:.2g}, more than {TOLERANCE:g}: nothing "
                "was written. Try another opset=, or other versions of torch and onnxscript."
            )
