"""Every family trains, saves, resumes, evaluates, exports and loads elsewhere, and so does an adapter on each of them.

These are the cells of docs/backbones.md.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoImageProcessor, AutoModel, AutoProcessor, AutoTokenizer

from hf_mlcl import ContrastiveMultiLabelTrainer, MLCLModel
from hf_mlcl.data import ImageCollator, TextCollator, TextImageCollator, image_transform, load_tokenizer, tokenize
from hf_mlcl.data import image_processor as our_processor
from hf_mlcl.hub import export_encoder
from hf_mlcl.inference import Encoder
from hf_mlcl.models.stated import stated_preprocessing
from hub.cases import NAMES, arguments, images, texts
from models.tiny_backbones import ALL, IMAGES, REAL, REAL_IMAGES, TEXTS, adapter_of, folder_of

TEXTS = {*TEXTS, "real MiniLM"}
IMAGES = {*IMAGES, *REAL_IMAGES}


def rows_of(name: str, count: int, seed: int):
    """Texts, images, or rows that have a text, an image or both in turn."""
    if name in TEXTS:
        return texts(count, seed)
    rows = images(count, seed)
    if name in IMAGES:
        return rows
    words = [" ".join(NAMES[i] for i in ids) for ids in rows["labels"]]
    rows = rows.add_column("text", [None if i % 3 == 0 else text for i, text in enumerate(words)])
    return rows.map(lambda row, i: {**row, "image": None if i % 3 == 1 else row["image"]}, with_indices=True)


def prepared(name: str, folder: Path, model: MLCLModel):
    """Collator and processor, and rows that the collator takes."""
    splits = [rows_of(name, count, seed) for seed, count in enumerate((32, 16, 12))]
    if name in TEXTS:
        tokenizer = load_tokenizer(folder)
        return (
            TextCollator(tokenizer, 3),
            tokenizer,
            [tokenize(split, tokenizer) for split in splits],
            splits[2]["text"],
        )
    how = stated_preprocessing(folder, model.config.backbone_config)._asdict()
    how |= {"size": 64} if name in REAL else {}  # a twelfth of the work
    transform, processor = image_transform(**how), our_processor(**how)
    if name in IMAGES:
        return ImageCollator(transform, 3), processor, splits, splits[2]["image"]
    both = AutoProcessor.from_pretrained(folder)
    both.image_processor = processor
    rows = [{"text": row["text"], "image": row["image"]} for row in splits[2]]
    return TextImageCollator(both.tokenizer, transform, 3), both, splits, rows


LORA = " with LoRA"
CASES = [*ALL, *REAL, *(f"{name}{LORA}" for name in (*ALL, "real MiniLM"))]
QUICK = ("Qwen3", "Swin", "CLIP", f"Llama{LORA}", f"ViT{LORA}")
"""One of each kind; the others take `make test-all`."""


@pytest.fixture(
    scope="module", params=[case if case in QUICK else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
def journey(request, tmp_path_factory):
    """A backbone from its folder, which is trained for two steps, or an adapter in its place."""
    name, root = request.param.removesuffix(LORA), tmp_path_factory.mktemp("journey")
    is_adapted = request.param != name
    if is_adapted:
        pytest.importorskip("peft", reason="PEFT is an extra: pip install 'hf-mlcl[peft]'")
    folder = folder_of(name, root / "backbone")

    def trainer(where: str) -> ContrastiveMultiLabelTrainer:
        torch.manual_seed(1)
        adapter = {"peft_config": adapter_of(name)} if is_adapted else {}
        model = MLCLModel.from_backbone(folder, NAMES, projection_dim=4, **adapter)
        collate, processor, data, _ = prepared(name, folder, model)
        rate = 1e-4 if name in REAL else 1e-2
        settings = {"max_steps": 2, "save_steps": 1, "learning_rate": rate, "loss": "reg+bce"}
        return ContrastiveMultiLabelTrainer(
            model, arguments(root / where, **settings), collate, data[0], data[1], processing_class=processor
        )

    first = trainer("first")
    before = {key: value.clone() for key, value in first.model.state_dict().items()}
    first.train()
    _, processor, data, inputs = prepared(name, folder, first.model)
    facts = {"name": name, "is_adapted": is_adapted, "root": root, "before": before, "inputs": inputs}
    return SimpleNamespace(trainer=first, again=trainer, processor=processor, data=data, **facts)


def test_it_trains(journey):
    """Every weight that wants a gradient moves."""
    after = dict(journey.trainer.model.named_parameters())
    assert all(torch.isfinite(value).all() for value in after.values())
    still = [key for key, value in after.items() if value.requires_grad and torch.equal(value, journey.before[key])]
    # Adding the same to all scores of a softmax changes nothing; a token that no text has is not met.
    assert [key for key in still if "k_proj.bias" not in key and "key.bias" not in key] == []
    if journey.is_adapted:
        backbone = {key: value for key, value in after.items() if key.startswith("backbone.") and "lora_" not in key}
        assert backbone
        assert all(torch.equal(value, journey.before[key]) for key, value in backbone.items())


def test_it_resumes_where_it_was(journey):
    again = journey.again("second")
    again.train(resume_from_checkpoint=str(journey.root / "first" / "checkpoint-1"))
    assert again.state.global_step == 2
    for key, value in journey.trainer.model.state_dict().items():
        torch.testing.assert_close(again.model.state_dict()[key], value, atol=1e-3, rtol=1e-3)


def test_it_saves_and_loads(journey, tmp_path):
    journey.trainer.save_model(str(tmp_path))
    journey.processor.save_pretrained(tmp_path)
    expected = journey.trainer.extract_features(journey.data[2])
    loaded = Encoder.from_pretrained(tmp_path).features(journey.inputs).numpy()
    np.testing.assert_allclose(loaded, expected, atol=2e-4, rtol=1e-3)  # processors round pixels as they resize
    assert expected.std(0).mean() > 0


def test_it_evaluates(journey):
    """The classifier of a linear evaluation computes, from texts and images, what the evaluation has scored."""
    result = journey.trainer.linear_evaluate(*journey.data, protocol="best")
    collate = journey.trainer.data_collator
    batch = {key: value for key, value in collate(list(journey.data[2])).items() if key != "labels"}
    with torch.no_grad():
        found = result.classifier.eval()(**batch).logits.sigmoid().numpy()
    np.testing.assert_allclose(found, result.test_probabilities, atol=1e-4)
    assert np.isfinite(list(result.metrics.values())).all()


def test_it_exports_and_loads_elsewhere(journey, tmp_path):
    """Against the plain model of transformers, whose vectors are pooled here by hand."""
    name, model = journey.name, journey.trainer.model.eval()
    export_encoder(model, tmp_path, journey.processor)
    plain = AutoModel.from_pretrained(tmp_path).eval()
    assert type(plain) is type(model.backbone)
    expected = Encoder(model, journey.processor).features(journey.inputs)
    with torch.no_grad():
        if name in TEXTS:
            found = _by_hand(plain, AutoTokenizer.from_pretrained(tmp_path), journey.inputs, model.config.pooling)
        elif name in IMAGES:
            processor = AutoImageProcessor.from_pretrained(tmp_path)
            pixels = processor([image.convert("RGB") for image in journey.inputs], return_tensors="pt")
            outputs = plain(**pixels)
            found = outputs.last_hidden_state[:, 0] if name == "ViT" else outputs.pooler_output.flatten(1)
        else:
            found = _towers(plain, AutoProcessor.from_pretrained(tmp_path), journey.inputs, SIZES[name])
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)


def _by_hand(plain, tokenizer, inputs, pooling):
    """Each text alone: nothing is padded, so nothing has to be left out."""
    hidden = [plain(**tokenizer(text, return_tensors="pt")).last_hidden_state[0] for text in inputs]
    how = {"first": lambda h: h[0], "last": lambda h: h[-1], "mean": lambda h: h.mean(0)}
    return torch.stack([how[pooling](each) for each in hidden])


SIZES = {"CLIP": 12, "SigLIP": 16}


def _towers(plain, processor, inputs, size):
    """Each row alone: unit vectors times the root of their size, zeros for what is missing, and what there is."""
    rows = []
    for row in inputs:
        parts, there = [torch.zeros(size), torch.zeros(size)], [0.0, 0.0]
        if row["text"]:
            ids = processor.tokenizer(row["text"], return_tensors="pt")["input_ids"]
            if size == 16:  # SigLIP's tower reads the end of a text that is filled up
                ids = torch.nn.functional.pad(ids, (0, 24 - ids.shape[1]), value=0)
            parts[0], there[0] = plain.get_text_features(input_ids=ids).pooler_output[0], 1.0
        if row["image"] is not None:
            pixels = processor.image_processor(row["image"].convert("RGB"), return_tensors="pt")["pixel_values"]
            parts[1], there[1] = plain.get_image_features(pixel_values=pixels).pooler_output[0], 1.0
        scaled = [part / part.norm().clamp(min=1e-12) * size**0.5 for part in parts]
        rows.append(torch.cat([*scaled, torch.tensor(there)]))
    return torch.stack(rows)


@pytest.mark.parametrize("name", ["Qwen3", "MPNet", "BERT"])
def test_an_exported_text_encoder_is_a_sentence_transformer(name, tmp_path):
    """One of each pooling: last, mean, first."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder = folder_of(name, tmp_path / "backbone")
    model, tokenizer = MLCLModel.from_backbone(folder, NAMES).eval(), load_tokenizer(folder, prompt="query: ")
    export_encoder(model, tmp_path / "exported", tokenizer)
    inputs = ["red green", "blue", "a of the red"]
    found = sentence_transformers.SentenceTransformer(str(tmp_path / "exported"), device="cpu").encode(inputs)
    expected = Encoder(model, tokenizer).features(inputs)
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)
    bare = Encoder(model, load_tokenizer(folder)).features(inputs)
    assert float((bare - expected).abs().max()) > 1e-3  # the prompt has a say
