"""Graphs that compute what torch computes."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch

from hf_mlcl import MLCLModel
from hf_mlcl.data import image_transform
from hf_mlcl.hub import export_onnx
from hf_mlcl.hub import onnx as onnx_module
from hub.cases import NAMES, SIZE
from hub.fresh import run

onnxruntime = pytest.importorskip("onnxruntime", reason="needs hf-mlcl[onnx]")
pytest.importorskip("onnxscript", reason="needs hf-mlcl[onnx]")


def test_the_graph_of_a_text_classifier_agrees_with_the_linear_evaluation_without_torch(text, tmp_path):
    """Any number of texts of any length, in an interpreter that has neither torch nor this package."""
    text.result.classifier.calibrate([0.3, 0.5, 0.7])
    try:
        export_onnx(text.result.classifier, tmp_path / "model.onnx")
    finally:
        text.result.classifier.calibrate()
    batches = [text.inputs[:1], text.inputs[1:8], text.inputs[8:]]
    for i, batch in enumerate(batches):
        tokens = text.processor(batch, padding=True, return_tensors="np")
        names = ("input_ids", "attention_mask")
        np.savez(tmp_path / f"{i}.npz", **{name: tokens[name].astype(np.int64) for name in names})
    code = """
        import json, sys, numpy, onnxruntime
        folder = sys.argv[1]
        session = onnxruntime.InferenceSession(folder + "/model.onnx", providers=["CPUExecutionProvider"])
        for i in range(3):
            probabilities, features = session.run(["probabilities", "features"], dict(numpy.load(f"{folder}/{i}.npz")))
            numpy.savez(f"{folder}/out{i}.npz", probabilities=probabilities, features=features)
        assert "torch" not in sys.modules
        print(json.dumps(session.get_modelmeta().custom_metadata_map))
    """
    metadata = json.loads(run(code, tmp_path, package=False).stdout)
    found = [np.load(tmp_path / f"out{i}.npz") for i in range(3)]
    assert np.abs(np.concatenate([out["probabilities"] for out in found]) - text.probabilities()).max() < 1e-4
    assert np.abs(np.concatenate([out["features"] for out in found]) - text.features()).max() < 1e-4
    assert json.loads(metadata["labels"]) == NAMES
    assert json.loads(metadata["thresholds"]) == pytest.approx([0.3, 0.5, 0.7])


def test_the_graph_of_an_encoder_whose_features_have_length_one_gives_these(tmp_path):
    model = MLCLModel.from_backbone("resnet10t", NAMES, pretrained=False, normalize_features=True).eval()
    export_onnx(model, tmp_path / "model.onnx")  # which compares it with torch
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(["features"], {"pixel_values": np.random.default_rng(0).random((3, 3, 64, 64), np.float32)})
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


def test_the_graph_of_an_image_classifier_agrees_with_the_linear_evaluation(image, tmp_path):
    export_onnx(image.result.classifier, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    pixels = torch.stack([image_transform(size=SIZE)(picture) for picture in image.inputs]).numpy()
    found = np.concatenate(
        [session.run(["probabilities"], {"pixel_values": part})[0] for part in (pixels[:1], pixels[1:])]
    )
    assert np.abs(found - image.probabilities()).max() < 1e-4


def test_the_graph_of_an_encoder_gives_features_and_embeddings(text, tmp_path):
    text.model.train()
    export_onnx(text.model, tmp_path / "encoder.onnx")
    assert text.model.training, "the model is as it was"
    text.model.eval()
    session = onnxruntime.InferenceSession(tmp_path / "encoder.onnx", providers=["CPUExecutionProvider"])
    tokens = text.processor(text.inputs, padding=True, return_tensors="pt")
    inputs = {name: tokens[name] for name in ("input_ids", "attention_mask")}
    features, embeddings = session.run(["features", "embeddings"], {k: v.numpy() for k, v in inputs.items()})
    with torch.no_grad():
        output = text.model(**inputs)
    assert np.abs(features - output.features.numpy()).max() < 1e-4
    assert np.abs(embeddings - output.embeddings.numpy()).max() < 1e-4


def test_a_graph_that_disagrees_is_not_put_in_place(tmp_path, monkeypatch):
    model = MLCLModel.from_features(4, ["a", "b"], classifier=True)
    monkeypatch.setattr(onnx_module, "TOLERANCE", -1.0)
    with pytest.raises(RuntimeError, match=r"differ from torch's by .*nothing was written"):
        export_onnx(model, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_wrong_input_is_named(tmp_path, monkeypatch):
    model = MLCLModel.from_features(4, ["a", "b"])
    with pytest.raises(ValueError, match=r"path must end in \.onnx"):
        export_onnx(model, tmp_path / "model")
    with pytest.raises(ValueError, match="got Linear"):
        export_onnx(torch.nn.Linear(1, 1), tmp_path / "model.onnx")
    with pytest.raises(ValueError, match=r"must be in float32 .* model\.float\(\)"):
        export_onnx(model.bfloat16(), tmp_path / "model.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match=r"pip install 'hf-mlcl\[onnx\]'"):
        export_onnx(model, tmp_path / "model.onnx")
