"""From a trained encoder to labels in a pipeline: the numbers are those of the linear evaluation all the way."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from datasets import Dataset
from PIL import Image
from transformers import BertConfig, pipeline

from copies import Copy, all_went_well
from hf_mlcl import ContrastiveMultiLabelTrainer, ContrastiveTrainingArguments, MLCLConfig, MLCLModel
from hf_mlcl.data import (
    ImageCollator,
    TextCollator,
    image_processor,
    image_transform,
    tokenize,
    word_tokenizer,
)
from hf_mlcl.evaluation import LinearEvaluationConfig, fit_temperature, tune_thresholds
from hf_mlcl.metrics import DecisionRule, decide

NAMES = ["red", "green", "blue", "grey", "black", "white"]  # more than the five that HF's image pipeline would give
GRID = LinearEvaluationConfig(learning_rates=(0.1,), weight_decays=(1e-2, 1e-4), epochs=3)
LONG = " ".join(["of"] * 40)


class Case:
    """A classifier in a folder, inputs for its pipeline, and the probabilities that linear evaluation gave them."""

    def __init__(self, kind, trainer, data, processor, folder):
        self.kind, self.folder = kind, folder
        self.result = trainer.linear_evaluate(*data, config=GRID)
        self.classifier = self.result.classifier
        self.expected = self.result.predict_proba(trainer.extract_features(data[1]))
        self.classifier.save_pretrained(folder)
        processor.save_pretrained(folder)

    def calibrate(self):
        """Thresholds and temperature from validation, in the folder's configuration."""
        truth, p = self.result.validation_labels, self.result.validation_probabilities
        thresholds, temperature = tune_thresholds(truth, p, "micro_f1"), fit_temperature(truth, p)
        self.classifier.calibrate(thresholds, temperature)
        self.classifier.save_pretrained(self.folder)
        decisions = thresholds.decide(self.expected)
        assert decisions.tolist() != decide(self.expected).tolist()  # or the test would show nothing
        return DecisionRule(temperature=temperature).scaled(self.expected), decisions


def arguments(folder):
    return ContrastiveTrainingArguments(
        folder, max_steps=2, report_to="none", disable_tqdm=True, use_cpu=True, remove_unused_columns=False
    )


@pytest.fixture
def text(tmp_path):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    labels = [sorted(rng.choice(6, rng.integers(0, 4), replace=False).tolist()) for _ in range(60)]
    words = [" ".join([*(NAMES[i] for i in ids), *rng.choice(["a", "of", "the"], 3)]) for ids in labels]
    words[45] = words[45] + " " + LONG  # longer than the encoder can take
    splits = [Dataset.from_dict({"text": words[s], "labels": labels[s]}) for s in (slice(0, 40), slice(40, 60))]
    tokenizer = word_tokenizer(words)
    tokenizer.model_max_length = 16
    backbone = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=16,
    )
    config = MLCLConfig(backbone_config=backbone, pooling="mean", id2label=dict(enumerate(NAMES)))
    data = [tokenize(split, tokenizer, max_length=16) for split in splits]
    collator = TextCollator(tokenizer, len(NAMES))
    trainer = ContrastiveMultiLabelTrainer(MLCLModel(config), arguments(tmp_path / "run"), collator, data[0])
    trainer.train()
    case = Case("text", trainer, data, tokenizer, tmp_path / "classifier")
    case.inputs = splits[1]["text"][:]
    return case


@pytest.fixture
def image(tmp_path):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    labels = [[i % 6] for i in range(36)]
    images = [
        Image.fromarray((rng.random((20 + i, 40, 3)) * 60 + 190 * np.eye(6, 3)[ids[0]]).astype("uint8"))
        for i, ids in enumerate(labels)
    ]
    images[20] = images[20].convert("L")
    (tmp_path / "images").mkdir()
    paths = [str(tmp_path / "images" / f"{i}.png") for i in range(36)]
    for picture, path in zip(images, paths, strict=True):
        picture.save(path)
    parts = (slice(0, 18), slice(18, 36))
    data = [Dataset.from_dict({"image": images[s], "labels": labels[s]}) for s in parts]
    model = MLCLModel.from_backbone("resnet10t", NAMES, pretrained=False)
    collator = ImageCollator(image_transform(size=32), len(NAMES))
    trainer = ContrastiveMultiLabelTrainer(model, arguments(tmp_path / "run"), collator, data[0])
    trainer.train()
    case = Case("image", trainer, data, image_processor(size=32), tmp_path / "classifier")
    case.inputs = paths[18:]
    return case


def answer(kind, folder, inputs):
    every = {"text": {"top_k": None, "truncation": True}, "image": {"top_k": 6}}[kind]
    probabilities = pipeline(f"{kind}-classification", model=str(folder), device="cpu", **every)
    labels = pipeline(f"multilabel-{kind}-classification", model=str(folder), device="cpu")
    answers = [pipe(inputs, batch_size=7) for pipe in (probabilities, labels)]
    (folder / "answers.json").write_text(json.dumps(answers))


def in_another_process(case):
    printed = case.folder / "printed.txt"
    assert all_went_well([Copy(answer, case.kind, case.folder, case.inputs, output=printed)])
    return json.loads((case.folder / "answers.json").read_text())


def as_matrix(found):
    scores = [{entry["label"]: entry["score"] for entry in row} for row in found]
    assert all(row == sorted(row, key=lambda entry: -entry["score"]) for row in found)
    return np.array([[row.get(name, np.nan) for name in NAMES] for row in scores])


@pytest.mark.parametrize("kind", ["text", "image"])
def test_loaded_in_another_process_pipelines_give_the_numbers_of_the_linear_evaluation(kind, request):
    case = request.getfixturevalue(kind)
    probabilities, decisions = case.calibrate()
    every, decided = map(as_matrix, in_another_process(case))
    np.testing.assert_allclose(every, probabilities, atol=1e-5)
    np.testing.assert_array_equal(~np.isnan(decided), decisions)
    np.testing.assert_allclose(decided[decisions], probabilities[decisions], atol=1e-5)


@pytest.mark.parametrize("kind", ["text", "image"])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_without_calibration_probabilities_are_those_of_the_heads_and_labels_begin_at_one_half(
    kind, batch_size, request
):
    case = request.getfixturevalue(kind)
    every = {"text": {"top_k": None, "truncation": True}, "image": {"top_k": 6}}[kind]
    settings = {"model": str(case.folder), "device": "cpu", "batch_size": batch_size}
    found = as_matrix(pipeline(f"{kind}-classification", **settings, **every)(case.inputs))
    np.testing.assert_allclose(found, case.expected, atol=1e-5)
    labels = as_matrix(pipeline(f"multilabel-{kind}-classification", **settings)(case.inputs))
    np.testing.assert_array_equal(~np.isnan(labels), decide(case.expected))


def test_one_text_gives_one_list_and_several_a_list_of_lists(text):
    classify = pipeline("multilabel-text-classification", model=str(text.folder), device="cpu")
    classify.model.config.thresholds = [0.0] * len(NAMES)  # so that there are labels to compare
    several = classify(text.inputs[:3])
    one = classify(text.inputs[0])
    assert len(one) == len(NAMES)
    for again in (several[0], classify([text.inputs[0]])[0], classify({"text": text.inputs[0]})):
        np.testing.assert_allclose(as_matrix([again]), as_matrix([one]), atol=1e-5)


def test_where_every_text_has_one_label_it_is_the_most_probable(text):
    classify = pipeline("multilabel-text-classification", model=str(text.folder), device="cpu")
    classify.model.config.single_label = True
    best = text.expected.argmax(axis=1)
    assert [[found["label"] for found in labels] for labels in classify(text.inputs)] == [[NAMES[i]] for i in best]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["text", "image"])
def test_logits_of_any_size_overflow_in_no_pipeline(kind, request):
    case = request.getfixturevalue(kind)
    with torch.no_grad():
        case.classifier.heads.weight.zero_()
        case.classifier.heads.bias[:] = torch.tensor([-1e4, -90.0, -1.0, 1.0, 90.0, 1e4])
    case.classifier.save_pretrained(case.folder)
    every = {"text": {"top_k": None, "truncation": True}, "image": {"top_k": 6}}[kind]
    for task, extra in ((f"{kind}-classification", every), (f"multilabel-{kind}-classification", {})):
        (found,) = pipeline(task, model=str(case.folder), device="cpu", **extra)(case.inputs[:1])
        scores = {entry["label"]: entry["score"] for entry in found}
        assert [scores.get(name, 0.0) for name in NAMES] == pytest.approx(
            [0, 0, 0.2689 if extra else 0, 0.7311, 1, 1], abs=1e-4
        )


def test_a_pipeline_saves_its_model_and_no_code(text, tmp_path):
    classify = pipeline("multilabel-text-classification", model=str(text.folder), device="cpu")
    classify.save_pretrained(tmp_path / "saved")
    assert not list((tmp_path / "saved").glob("*.py"))
    again = pipeline("multilabel-text-classification", model=str(tmp_path / "saved"), device="cpu")
    found = [as_matrix(pipe(text.inputs[:5])) for pipe in (again, classify)]
    np.testing.assert_allclose(*found, atol=1e-5)


@pytest.mark.parametrize(("mode", "size"), [("RGB", (50, 30)), ("L", (20, 90)), ("RGBA", (32, 32)), ("P", (64, 64))])
def test_the_image_processor_gives_the_pixels_of_the_evaluation_transform(mode, size):
    rng = np.random.default_rng(0)
    picture = Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)).convert(mode)
    made = image_processor(size=32)(picture, return_tensors="pt")["pixel_values"][0]
    torch.testing.assert_close(made, image_transform(size=32)(picture), atol=1e-5, rtol=0)
