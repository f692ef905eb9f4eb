"""A virtual environment without this package loads what was exported and pushed, and computes the same.

What was pushed is opened from a Hub on loopback, by the lines on its own card.
"""

from __future__ import annotations

import json
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from transformers import AutoImageProcessor, AutoProcessor, ViTConfig

from hf_mlcl import MLCLConfig, MLCLForImageClassification, MLCLForSequenceClassification, MLCLModel
from hf_mlcl.data import image_transform, load_tokenizer
from hf_mlcl.experiments.prediction import Predictor
from hf_mlcl.hub import export_classifier, export_encoder
from hf_mlcl.inference import Encoder, PrototypeClassifier
from hf_mlcl.inference.encoding import text_image_batch
from hf_mlcl.metrics import DecisionRule
from hub.cases import NAMES, ONE_HEAD, SIZE, SMALL, image_case, labelled, text_case
from hub.fresh import environment_without_package, run
from hub.hub_server import USER, HubServer, card_errors
from models.tiny_backbones import PAIRS, folder_of

CODE = """
import json, sys
import numpy, timm, torch
from PIL import Image
from sentence_transformers import SentenceTransformer
from transformers import AutoImageProcessor, AutoModel, AutoModelForImageClassification, AutoTokenizer, pipeline

torch.set_num_threads(1)
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

bare = AutoModel.from_pretrained(root + "/bare").eval()
facts["bare model"], found["bare"] = type(bare).__name__, bare(torch.tensor([[0, 5, 2]])).last_hidden_state

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
for name, blocks in json.load(open(root + "/cards.json")).items():
    space = {}
    for block in blocks:
        exec(block, space)
    facts[f"card of {name}"] = {
        key: space[key] if key == "found" else numpy.asarray(space[key]).tolist()
        for key in ("found", "features", "probabilities", "scores", "thresholds") if key in space
    }
    facts[f"class of {name}"] = type(space["classify"].model).__module__ if "classify" in space else ""
numpy.savez(root + "/found.npz", **found)
json.dump(facts, open(root + "/facts.json", "w"))
"""


TEXT = "A text to be labelled."
THRESHOLDS = [0.2, 0.6, 0.45]


def vit_case():
    """An encoder of transformers' own and a classifier of its features, as they were drawn."""
    torch.manual_seed(0)
    backbone = ViTConfig(**SMALL, image_size=SIZE, patch_size=8)
    encoder = MLCLModel(MLCLConfig(backbone_config=backbone, **labelled()))
    weight, bias = torch.randn(1, 3, 16), torch.randn(1, 3)
    return encoder, MLCLForImageClassification.from_encoder(encoder, weight, bias)


def as_drawn(name, folder, **settings):
    """An encoder of a family, with its processor."""
    encoder = MLCLModel.from_backbone(folder_of(name, folder), NAMES, projection_dim=8, **settings)
    auto = AutoImageProcessor if settings else AutoProcessor
    return encoder, auto.from_pretrained(folder) if name in PAIRS else load_tokenizer(folder)


def models_to_push(text, image, mean, one_head, images, root):
    """Every kind that there is, each with its processor."""
    vit, vit_classifier = vit_case()
    unit = MLCLModel.from_backbone("resnet10t", NAMES, pretrained=False, projection_dim=8, normalize_features="auto")
    decoder, words = as_drawn("Llama", root / "llama")
    heads = torch.randn(1, 3, 16), torch.randn(1, 3)
    single = one_head.result.classifier.__class__.from_encoder(
        one_head.model, one_head.result.weight, one_head.result.bias
    )
    single.calibrate(DecisionRule(single_label=True))
    for case in (mean, one_head, images):
        case.result.classifier.calibrate(THRESHOLDS, temperature=2.0)
    return {
        "text-encoder": (text.model, text.processor),
        "mean-encoder": (mean.model, mean.processor),
        "timm-encoder": (image.model, image.processor),
        "vit-encoder": (vit, image.processor),
        "decoder-encoder": (decoder, words),
        "clip-encoder": as_drawn("CLIP", root / "clip"),
        "siglip-encoder": as_drawn("SigLIP", root / "siglip"),
        "tower-encoder": as_drawn("CLIP", root / "tower", modalities=["image"]),
        "decoder-custom": (MLCLForSequenceClassification.from_encoder(decoder, *heads), words),
        "text-native": (one_head.result.classifier, one_head.processor),
        "text-custom": (mean.result.classifier, mean.processor),
        "timm-native": (images.result.classifier, images.processor),
        "vit-native": (vit_classifier, image.processor),
        "image-custom": (image.result.classifier, image.processor),
        "unit-custom": (
            MLCLForImageClassification.from_encoder(unit, torch.randn(1, 3, 512), torch.randn(1, 3)),
            image.processor,
        ),
        "single-label": (single, one_head.processor),
    }


def expected_of(model, processor, picture):
    """What a model of ours makes of the example on its card."""
    if len(model.config.modalities or ()) == 2:
        inputs = text_image_batch(processor, [{"text": TEXT, "image": picture}])
    elif model.main_input_name == "pixel_values":
        inputs = processor(picture, return_tensors="pt")
    else:
        inputs = processor([TEXT], return_tensors="pt")
    inputs = {key: value for key, value in inputs.items() if key != "token_type_ids"}
    with torch.no_grad():
        output = model.eval()(**inputs)
    if isinstance(model, MLCLModel):
        similarity = torch.cosine_similarity(output.embeddings[:, None], output.prototypes, dim=2)
        return {"features": output.features.numpy(), "scores": similarity.numpy()}
    return {"probabilities": output.logits.sigmoid().numpy(), "thresholds": model.config.thresholds}


@pytest.fixture(scope="module")
def elsewhere(text, image, tmp_path_factory):
    """What the other interpreter found, and what it should have found."""
    root = tmp_path_factory.mktemp("elsewhere")
    mean = text_case(root / "run-mean", pooling="mean", normalize=True)
    one_head = text_case(root / "run-head", architecture="bert", config=ONE_HEAD)
    images = image_case(root / "run-images", "mobilenetv3_small_050", ONE_HEAD)
    text.model.save_backbone(root / "bare")
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
    image.inputs[0].save(root / "photo.jpg")
    probabilities = {"text": one_head.probabilities(), "image": images.probabilities()}  # before they are calibrated
    expected, files, cards, ours = {}, {}, {}, {}
    with HubServer() as server:
        with Image.open(root / "photo.jpg") as picture:
            for name, (model, processor) in models_to_push(text, image, mean, one_head, images, root).items():
                expected[name] = expected_of(model, processor, picture)
                with server.here(root / "cache"):
                    model.push_to_hub(name, processor=processor)
                files[name] = server.repositories["model", f"{USER}/{name}"].files
                card = files[name]["README.md"].decode()
                assert card_errors(card) == [], name
                cards[name] = re.findall(r"^```python\n(.*?)^```", card, re.MULTILINE | re.DOTALL)
            before = set(sys.modules)  # other tests of this process may have run code of a model's folder
            with server.here(root / "cache"):
                for name in cards:
                    if "encoder" in name:
                        ours[name] = Encoder.from_pretrained(f"{USER}/{name}")
                    else:
                        ours[name] = Predictor(f"{USER}/{name}", device="cpu")
            loaded = sorted(set(sys.modules) - before)
        (root / "cards.json").write_text(json.dumps(cards))
        python = environment_without_package(root / "venv")
        run(CODE, root, package=False, python=python, cwd=root, **server.environment(root / "other cache"))
    return SimpleNamespace(
        found=np.load(root / "found.npz"),
        facts=json.loads((root / "facts.json").read_text()),
        mean=mean,
        probabilities=probabilities,
        pixels=pixels.numpy(),
        expected=expected,
        files=files,
        cards=cards,
        ours=ours,
        loaded=loaded,
        photo=root / "photo.jpg",
    )


ENCODERS = [f"{kind}-encoder" for kind in ("text", "mean", "timm", "vit", "decoder", "clip", "siglip", "tower")]
CLASSIFIERS = ["text-native", "text-custom", "decoder-custom", "single-label"]
CLASSIFIERS += ["timm-native", "vit-native", "image-custom", "unit-custom"]


def test_no_card_of_what_was_pushed_imports_this_package_and_all_name_their_repository(elsewhere):
    for name, blocks in elsewhere.cards.items():
        assert blocks, name
        assert not any("hf_mlcl" in block for block in blocks), name
        assert f"{USER}/{name}" in blocks[0], name


@pytest.mark.parametrize("name", ENCODERS)
def test_the_lines_on_a_pushed_encoders_card_give_its_features_and_scores_by_prototypes(elsewhere, name):
    """Those of timm prepare a picture with PIL, we with torch: they round differently."""
    found, expected = elsewhere.facts[f"card of {name}"], elsewhere.expected[name]
    for key in ("features", "scores"):
        assert np.abs(np.array(found[key]) - expected[key]).max() < 1e-5, key


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_the_lines_on_a_pushed_classifiers_card_give_its_probabilities_and_its_decisions(elsewhere, name):
    found, expected = elsewhere.facts[f"card of {name}"], elsewhere.expected[name]
    scores = {hit["label"]: hit["score"] for hit in found["found"]}
    assert np.abs(np.array([scores[label] for label in NAMES]) - expected["probabilities"][0]).max() < 1e-5
    if name != "single-label":
        assert found["thresholds"] == (expected["thresholds"] or [0.5] * 3)
    if "thresholds" in found and expected["thresholds"]:
        assert max(abs(cut - half) for cut, half in zip(found["thresholds"], [0.5] * 3, strict=True)) > 0.01


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_code_goes_along_only_where_no_class_of_transformers_computes_the_same(elsewhere, name):
    module = elsewhere.facts[f"class of {name}"]
    assert module.startswith("transformers_modules." if "custom" in name else "transformers.models.")
    assert ("modeling_mlcl.py" in elsewhere.files[name]) == ("custom" in name)
    assert any("trust_remote_code" in block for block in elsewhere.cards[name]) == ("custom" in name)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_our_own_loader_opens_what_was_pushed_and_runs_none_of_its_code(elsewhere, name):
    predictor, row = elsewhere.ours[name], TEXT if name.startswith(("text", "decoder", "single")) else None
    expected = elsewhere.expected[name]
    found = predictor.probabilities([row if row else str(elsewhere.photo)])
    assert np.abs(found - expected["probabilities"]).max() < 1e-5
    assert predictor.rule.per_label(3) == pytest.approx(expected["thresholds"] or [0.5] * 3)
    assert predictor.rule.single_label == (name == "single-label")
    assert not [module for module in elsewhere.loaded if module.startswith("transformers_modules")]


@pytest.mark.parametrize("name", ENCODERS)
def test_our_own_loader_makes_the_whole_encoder_of_what_was_pushed(elsewhere, name):
    encoder, expected = elsewhere.ours[name], elsewhere.expected[name]
    row = TEXT if encoder.model.main_input_name == "input_ids" else str(elsewhere.photo)
    row = [{"text": TEXT, "image": str(elsewhere.photo)}] if "lip" in name else row
    assert np.abs(encoder.features(row).numpy() - expected["features"]).max() < 1e-5
    classify = PrototypeClassifier.from_model(encoder)
    assert classify.label_names == NAMES
    assert np.abs(classify.similarities(row).numpy() - expected["scores"]).max() < 1e-5


@pytest.mark.parametrize("name", [*ENCODERS, *CLASSIFIERS])
def test_the_metadata_of_a_card_says_what_was_pushed(elsewhere, name):
    data = yaml.safe_load(elsewhere.files[name]["README.md"].decode().split("---\n")[1])
    library = dict.fromkeys(("text-encoder", "mean-encoder", "decoder-encoder"), "sentence-transformers")
    assert data["library_name"] == library.get(name, "timm" if name.startswith("timm") else "transformers")
    image = name.startswith(("timm", "vit", "image", "unit", "tower"))
    task = "classification" if name in CLASSIFIERS else "feature-extraction"
    expected = "sentence-similarity" if name in library else f"{'image' if image else 'text'}-{task}"
    assert data["pipeline_tag"] == ("feature-extraction" if "lip" in name else expected)
    assert ("custom_code" in data["tags"]) == ("custom" in name)
    if name in ("text-native", "text-custom", "timm-native", "image-custom"):
        (result,) = data["model-index"][0]["results"]
        assert result["task"]["type"] == data["pipeline_tag"]


def test_automodel_gives_the_features_of_a_text_encoder(elsewhere, text):
    assert elsewhere.facts["text model"] == "RobertaModel"
    assert np.abs(elsewhere.found["auto first"] - text.features()).max() < 1e-5
    means = elsewhere.found["auto mean"]  # before they are scaled to length 1, as the card says
    assert np.abs(means / np.linalg.norm(means, axis=1, keepdims=True) - elsewhere.mean.features()).max() < 1e-5


def test_the_bare_backbone_is_a_model_of_transformers(elsewhere, text):
    assert elsewhere.facts["bare model"] == "RobertaModel"
    with torch.no_grad():
        expected = text.model.eval().backbone(torch.tensor([[0, 5, 2]])).last_hidden_state
    assert np.abs(elsewhere.found["bare"] - expected.numpy()).max() < 1e-5


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
    assert np.abs(scores - elsewhere.probabilities["text"]).max() < 1e-5


def test_timm_and_automodel_give_the_probabilities_of_the_linear_evaluation(elsewhere):
    assert elsewhere.facts["image labels"] == NAMES
    assert elsewhere.facts["problem"] == "multi_label_classification"
    for name in ("timm classifier", "auto classifier"):
        assert np.abs(elsewhere.found[name] - elsewhere.probabilities["image"]).max() < 1e-5, name
