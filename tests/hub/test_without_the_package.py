"""A fresh interpreter that cannot import this package loads what was exported, and computes the same."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hf_mlcl.data import image_transform
from hf_mlcl.hub import export_classifier, export_encoder
from hub.cases import NAMES, ONE_HEAD, SIZE, image_case, text_case
from hub.fresh import run

CODE = """
import json, sys
import numpy, timm, torch
from PIL import Image
from sentence_transformers import SentenceTransformer
from transformers import AutoImageProcessor, AutoModel, AutoModelForImageClassification, AutoTokenizer, pipeline

root = sys.argv[1]
texts, pixels = json.load(open(root + "/texts.json")), torch.load(root + "/pixels.pt")
pictures = [Image.open(f"{root}/{i}.png").convert("RGB") for i in range(len(pixels))]
found, facts = {}, {}
torch.set_grad_enabled(False)

for pooling in ("first", "mean"):
    folder = f"{root}/text-{pooling}"
    found[f"sentences {pooling}"] = SentenceTransformer(folder, device="cpu").encode(texts)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    facts["text model"] = type(model).__name__
    batch = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
    hidden, mask = model(**batch).last_hidden_state, batch["attention_mask"].unsqueeze(-1)
    found[f"auto {pooling}"] = hidden[:, 0] if pooling == "first" else (hidden * mask).sum(1) / mask.sum(1)

folder = root + "/image"
model = timm.create_model("local-dir:" + folder, pretrained=True, num_classes=0).eval()
auto, prepare = AutoModel.from_pretrained(folder).eval(), AutoImageProcessor.from_pretrained(folder)
transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))
found["timm"], found["auto image"] = model(pixels), auto(pixels).pooler_output
found["auto image from pictures"] = auto(**prepare(pictures, return_tensors="pt")).pooler_output
found["pixels of timm"] = torch.stack([transform(picture) for picture in pictures])

classify = pipeline("text-classification", model=root + "/text-classifier", top_k=None, device="cpu")
facts["text labels"] = classify(texts)
folder = root + "/image-classifier"
found["timm classifier"] = timm.create_model("local-dir:" + folder, pretrained=True).eval()(pixels).sigmoid()
auto = AutoModelForImageClassification.from_pretrained(folder).eval()
facts["image labels"], facts["problem"] = list(auto.config.id2label.values()), auto.config.problem_type
found["auto classifier"] = auto(pixels).logits.sigmoid()
numpy.savez(root + "/found.npz", **found)
json.dump(facts, open(root + "/facts.json", "w"))
"""


@pytest.fixture(scope="module")
def elsewhere(text, image, tmp_path_factory):
    """What the other interpreter found, and what it should have found."""
    root = tmp_path_factory.mktemp("elsewhere")
    mean = text_case(root / "run-mean", pooling="mean")
    one_head = text_case(root / "run-head", architecture="bert", config=ONE_HEAD)
    images = image_case(root / "run-images", "mobilenetv3_small_050", ONE_HEAD)
    export_encoder(text.model, root / "text-first", text.processor)
    export_encoder(mean.model, root / "text-mean", mean.processor)
    export_encoder(image.model, root / "image", image.processor)
    export_classifier(one_head.result.classifier, root / "text-classifier", one_head.processor)
    export_classifier(images.result.classifier, root / "image-classifier", images.processor)
    (root / "texts.json").write_text(json.dumps(text.inputs))
    pixels = torch.stack([image_transform(size=SIZE)(picture) for picture in image.inputs])
    torch.save(pixels, root / "pixels.pt")
    for i, picture in enumerate(image.inputs):
        picture.save(root / f"{i}.png")
    run(CODE, root, package=False)
    facts = json.loads((root / "facts.json").read_text())
    return SimpleNamespace(
        found=np.load(root / "found.npz"),
        facts=facts,
        mean=mean,
        one_head=one_head,
        images=images,
        pixels=pixels.numpy(),
    )


def test_automodel_gives_the_features_of_a_text_encoder(elsewhere, text):
    assert elsewhere.facts["text model"] == "RobertaModel"
    assert np.abs(elsewhere.found["auto first"] - text.features()).max() < 1e-5
    assert np.abs(elsewhere.found["auto mean"] - elsewhere.mean.features()).max() < 1e-5


def test_sentence_transformers_give_the_features_of_a_text_encoder(elsewhere, text):
    assert np.abs(elsewhere.found["sentences first"] - text.features()).max() < 1e-5
    assert np.abs(elsewhere.found["sentences mean"] - elsewhere.mean.features()).max() < 1e-5


def test_timm_gives_the_features_of_an_image_encoder(elsewhere, image):
    assert np.abs(elsewhere.found["timm"] - image.features()).max() < 1e-5


def test_automodel_gives_the_features_of_an_image_encoder(elsewhere, image):
    assert np.abs(elsewhere.found["auto image"] - image.features()).max() < 1e-5
    assert np.abs(elsewhere.found["auto image from pictures"] - image.features()).max() < 1e-5


def test_timm_prepares_images_alike(elsewhere):
    """It resizes with PIL, we with torch: they round differently, by one of 255 grey levels at most."""
    assert np.abs(elsewhere.found["pixels of timm"] - elsewhere.pixels).max() < 1.01 / 255 / 0.224


def test_the_text_pipeline_gives_the_probabilities_of_the_linear_evaluation(elsewhere):
    hits = [{hit["label"]: hit["score"] for hit in hits} for hits in elsewhere.facts["text labels"]]
    scores = np.array([[found[name] for name in NAMES] for found in hits])
    assert np.abs(scores - elsewhere.one_head.probabilities()).max() < 1e-5


def test_timm_and_automodel_give_the_probabilities_of_the_linear_evaluation(elsewhere):
    assert elsewhere.facts["image labels"] == NAMES
    assert elsewhere.facts["problem"] == "multi_label_classification"
    for name in ("timm classifier", "auto classifier"):
        assert np.abs(elsewhere.found[name] - elsewhere.images.probabilities()).max() < 1e-5, name
