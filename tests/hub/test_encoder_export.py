"""Encoders that people load without this package, with the same features."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from hf_mlcl import MLCLModel
from hf_mlcl.data import image_processor, image_transform
from hf_mlcl.hub import export_encoder, load_prototypes
from hub.cases import NAMES, SIZE, text_case
from hub.fresh import run


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_without_the_package_text_encoders_give_our_features(pooling, tmp_path):
    """AutoModel and SentenceTransformer, from the same folder."""
    case = text_case(tmp_path / "run", pooling=pooling)
    export_encoder(case.model, tmp_path / "encoder", case.processor)
    (tmp_path / "texts.json").write_text(json.dumps(case.inputs))
    code = """
        import json, sys, numpy, torch
        from sentence_transformers import SentenceTransformer
        from transformers import AutoModel, AutoTokenizer

        folder, pooling = sys.argv[1:]
        texts = json.load(open(folder + "/texts.json"))
        sentences = SentenceTransformer(folder + "/encoder", device="cpu").encode(texts)
        tokenizer, model = (kind.from_pretrained(folder + "/encoder") for kind in (AutoTokenizer, AutoModel))
        assert type(model).__module__.startswith("transformers.models.roberta")
        batch = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        with torch.no_grad():
            hidden = model.eval()(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1)
        auto = hidden[:, 0] if pooling == "first" else (hidden * mask).sum(1) / mask.sum(1)
        numpy.savez(folder + "/found.npz", sentences=sentences, auto=auto)
    """
    run(code, tmp_path, pooling, package=False)
    found = np.load(tmp_path / "found.npz")
    expected = case.features()
    assert expected.shape == (30, 16)
    assert np.abs(found["auto"] - expected).max() < 1e-5
    assert np.abs(found["sentences"] - expected).max() < 1e-5


def test_without_the_package_image_encoders_give_our_features(image, tmp_path):
    """timm and AutoModel, from the same folder; and images prepared by what lies in it."""
    export_encoder(image.model, tmp_path / "encoder", image.processor)
    pixels = torch.stack([image_transform(size=SIZE)(picture) for picture in image.inputs])
    torch.save(pixels, tmp_path / "pixels.pt")
    for i, picture in enumerate(image.inputs):
        picture.save(tmp_path / f"{i}.png")
    code = """
        import sys, numpy, timm, torch
        from PIL import Image
        from transformers import AutoImageProcessor, AutoModel

        folder = sys.argv[1]
        model = timm.create_model("local-dir:" + folder + "/encoder", pretrained=True, num_classes=0).eval()
        auto = AutoModel.from_pretrained(folder + "/encoder").eval()
        pixels = torch.load(folder + "/pixels.pt")
        pictures = [Image.open(f"{folder}/{i}.png").convert("RGB") for i in range(len(pixels))]
        prepare = AutoImageProcessor.from_pretrained(folder + "/encoder")
        transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))
        with torch.no_grad():
            numpy.savez(
                folder + "/found.npz",
                timm=model(pixels),
                auto=auto(pixels).pooler_output,
                prepared=auto(**prepare(pictures, return_tensors="pt")).pooler_output,
                theirs=torch.stack([transform(picture) for picture in pictures]),
            )
    """
    run(code, tmp_path, package=False)
    found = np.load(tmp_path / "found.npz")
    expected = image.features()
    assert expected.shape == (12, 512)
    for name in ("timm", "auto", "prepared"):
        assert np.abs(found[name] - expected).max() < 1e-5, name
    # timm resizes with PIL, we with torch: they round differently, by one of 255 grey levels at most.
    assert np.abs(found["theirs"] - pixels.numpy()).max() < 1.01 / 255 / 0.224


def test_prototypes_come_with_their_labels_and_the_way_into_their_space(text, tmp_path):
    export_encoder(text.model, tmp_path, text.processor)
    names, tensors = load_prototypes(tmp_path)
    assert names == NAMES
    features = torch.from_numpy(text.features())
    embeddings = torch.relu(features @ tensors["projection_hidden"].T) @ tensors["projection_out"].T
    assert torch.allclose(embeddings, text.model.projection(features), atol=1e-6)
    assert torch.equal(tensors["prototypes"], text.model.prototypes.weight)


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
    with pytest.raises(ValueError, match="There are no prototypes in"):
        load_prototypes(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file, but a folder"):
        export_encoder(text.model, tmp_path / "file")
