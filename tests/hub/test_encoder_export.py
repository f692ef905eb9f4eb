"""What an exported encoder's folder holds; that others load it is in test_without_the_package."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file

from hf_mlcl import MLCLModel
from hf_mlcl.data import image_processor
from hf_mlcl.hub import export_encoder
from hub.cases import NAMES


@pytest.mark.parametrize("bias", [False, True])
def test_prototypes_come_with_their_labels_and_the_way_into_their_space(bias, tmp_path):
    """The biases of a projection that has some included."""
    model = MLCLModel.from_backbone("resnet10t", NAMES, pretrained=False, projection_dim=8, projection_bias=bias)
    for parameter in model.projection.parameters():
        torch.nn.init.normal_(parameter)
    export_encoder(model, tmp_path)
    with safe_open(tmp_path / "prototypes.safetensors", framework="pt") as file:
        assert json.loads(file.metadata()["labels"]) == NAMES
    tensors, features = load_file(tmp_path / "prototypes.safetensors"), torch.randn(4, 512)
    hidden = F.linear(features, tensors["projection_hidden"], tensors.get("projection_hidden_bias")).relu()
    embeddings = F.linear(hidden, tensors["projection_out"], tensors.get("projection_out_bias"))
    torch.testing.assert_close(embeddings, model.projection(features))
    assert torch.equal(tensors["prototypes"], model.prototypes.weight)


def test_texts_are_cut_where_training_cut_them(text, tmp_path):
    before = text.processor.model_max_length
    export_encoder(text.model, tmp_path, text.processor, max_length=12, prototypes=False)
    assert text.processor.model_max_length == before
    assert json.loads((tmp_path / "sentence_bert_config.json").read_text())["max_seq_length"] == 12
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["model_max_length"] == 12
    assert not (tmp_path / "prototypes.safetensors").exists()


def test_texts_are_never_longer_than_the_backbone_has_positions_for(text, tmp_path):
    export_encoder(text.model, tmp_path, text.processor, max_length=10_000)
    backbone = text.model.backbone
    length = json.loads((tmp_path / "sentence_bert_config.json").read_text())["max_seq_length"]
    ids = torch.full((1, length), 5)
    backbone(input_ids=ids)
    with pytest.raises((IndexError, RuntimeError)):
        backbone(input_ids=torch.full((1, length + 1), 5))


def test_an_export_that_fails_leaves_nothing_behind(text, tmp_path):
    with pytest.raises(ValueError, match="processor must be the tokenizer"):
        export_encoder(text.model, tmp_path / "encoder", image_processor(32))
    assert list(tmp_path.iterdir()) == []


def test_an_export_replaces_an_older_one(text, image, tmp_path):
    export_encoder(text.model, tmp_path / "encoder", text.processor)
    old = (tmp_path / "encoder" / "model.safetensors").read_bytes()
    with torch.no_grad():
        other = MLCLModel(text.model.config)
    export_encoder(other, tmp_path / "encoder", text.processor)
    assert (tmp_path / "encoder" / "model.safetensors").read_bytes() != old
    assert [path.name for path in tmp_path.iterdir()] == ["encoder"]


def test_wrong_input_is_named(text, tmp_path):
    with pytest.raises(ValueError, match="must be an MLCLModel, got MLCLForSequenceClassification"):
        export_encoder(text.result.classifier, tmp_path)
    with pytest.raises(ValueError, match="reads precomputed features"):
        export_encoder(MLCLModel.from_features(4, ["a"]), tmp_path)
    with pytest.raises(ValueError, match="max_length must be at least 1"):
        export_encoder(text.model, tmp_path, text.processor, max_length=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file, but a folder"):
        export_encoder(text.model, tmp_path / "file")
