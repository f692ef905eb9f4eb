"""Texts and images in one model: what is missing does not count, one tower may rest, label names have a place."""

from __future__ import annotations

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from PIL import Image
from transformers import BertConfig

from hf_mlcl import MLCLConfig, MLCLModel
from hf_mlcl.data import TextImageCollator, image_transform
from models.tiny_backbones import PAIRS, SIDE, VOCABULARY, tokenizer


def model_of(name: str, modalities=None) -> MLCLModel:
    torch.manual_seed(0)
    return MLCLModel(MLCLConfig(backbone_config=PAIRS[name](), num_labels=3, projection_dim=4, modalities=modalities))


def batch_of(*rows):
    return TextImageCollator(tokenizer(), image_transform(size=SIDE), 3)(rows)


RED = Image.new("RGB", (40, 30), "red")


@pytest.mark.parametrize("name", PAIRS)
def test_what_a_row_lacks_has_no_say_in_its_features(name):
    model = model_of(name).eval()
    batch = batch_of({"text": "red"}, {"image": RED}, {"text": "red", "image": RED})
    with torch.no_grad():
        features = model(**batch).features
        text, image = (
            model(**{key: batch[key] for key in keys}).features for keys in (["input_ids"], ["pixel_values"])
        )
        noise = dict(batch, pixel_values=batch["pixel_values"].clone())
        noise["pixel_values"][0] = torch.randn(3, SIDE, SIDE)
        assert torch.equal(model(**noise).features[0], features[0])
    size = (features.shape[1] - 2) // 2
    assert features[:, -2:].tolist() == [[1, 0], [0, 1], [1, 1]]
    assert not features[0, size:-2].any()
    assert not features[1, :size].any()
    torch.testing.assert_close(features[0], text[0])  # what was not given at all is missing everywhere
    torch.testing.assert_close(features[1], image[1])
    torch.testing.assert_close(features[2, : 2 * size], features[0, : 2 * size] + features[1, : 2 * size])
    torch.testing.assert_close(features[2, :size].norm(), torch.tensor(size**0.5))


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("modality", ["text", "image"])
def test_one_tower_can_be_asked_while_the_other_rests(name, modality):
    model = model_of(name, [modality])
    assert model.get_input_embeddings().num_embeddings == VOCABULARY  # of the text tower
    batch = batch_of({"text": "red", "image": RED}, {"text": "blue a", "image": RED})
    both = model_of(name)
    size = (both.projection.hidden.in_features - 2) // 2
    model.eval(), both.eval()
    part = slice(0, size) if modality == "text" else slice(size, 2 * size)
    keys = ["input_ids", "attention_mask"] if modality == "text" else ["pixel_values"]
    features = model(**{key: batch[key] for key in keys}).features
    torch.testing.assert_close(features, both(**batch).features[:, part])
    features.square().sum().backward()
    resting = "vision_model" if modality == "text" else "text_model"
    for key, parameter in model.backbone.named_parameters():
        assert parameter.requires_grad == (
            resting not in key and "logit" not in key and _projection(modality) not in key
        )


def _projection(modality: str) -> str:
    return "visual_projection" if modality == "text" else "text_projection"


@pytest.mark.parametrize("name", PAIRS)
def test_every_weight_that_wants_a_gradient_gets_one_from_a_batch_without_images(name):
    """DDP would wait forever for those that do not."""
    model = model_of(name)
    model(**batch_of({"text": "red"}, {"text": "a blue"})).features.sum().backward()
    assert [key for key, value in model.backbone.named_parameters() if value.requires_grad and value.grad is None] == []


@pytest.mark.parametrize("name", PAIRS)
def test_names_of_labels_are_what_the_text_tower_makes_of_them_for_either_tower(name):
    tokens = dict(tokenizer()(["red", "a green"], padding=True, return_tensors="pt"))
    tokens.pop("token_type_ids", None)
    both, images, words = (model_of(name, kinds).eval() for kinds in (None, ["image"], ["text"]))
    with torch.no_grad():
        expected = words(**tokens).features
        torch.testing.assert_close(images.name_features(tokens), expected)
        joined = both.name_features(tokens)
    size = expected.shape[1]
    torch.testing.assert_close(joined[:, :size], expected)
    torch.testing.assert_close(joined[:, size : 2 * size], expected)


@pytest.mark.parametrize("chunk", [1, 2])
def test_chunks_change_no_gradient(chunk):
    batch = batch_of({"text": "red"}, {"image": RED}, {"text": "blue", "image": RED})
    found = []
    for size in (None, chunk):
        model = model_of("CLIP")
        model.embedding_chunk_size = size
        model.train()(**batch).embeddings.square().sum().backward()
        found.append(model.backbone.visual_projection.weight.grad)
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-4)


def test_wrong_input_is_named():
    with pytest.raises(ValueError, match="input_ids and pixel_values is missing: this model reads text and images"):
        model_of("CLIP")(attention_mask=torch.ones(1, 2))
    with pytest.raises(ValueError, match="pixel_values is missing: this model reads images"):
        model_of("CLIP", ["image"])(input_ids=torch.ones(1, 2, dtype=torch.long))
    with pytest.raises(ValueError, match="neither a text in 'text' nor an image in 'image'"):
        batch_of({"text": "red"}, {"text": "  ", "image": None})
    for config, wrong in ((PAIRS["CLIP"](), ["sound"]), (PAIRS["CLIP"](), []), (BertConfig(), ["text"])):
        with pytest.raises((ValueError, StrictDataclassError), match="modalities must be"):
            MLCLConfig(backbone_config=config, num_labels=2, modalities=wrong)
