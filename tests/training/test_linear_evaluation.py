"""From a trained encoder to a classifier in a pipeline, with the same numbers all the way."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from datasets import Dataset
from PIL import Image
from transformers import (
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    BertConfig,
    pipeline,
)

from hf_mlcl import ContrastiveMultiLabelTrainer, ContrastiveTrainingArguments, MLCLConfig, MLCLModel
from hf_mlcl.data import ImageCollator, TextCollator, image_transform, tokenize, word_tokenizer
from hf_mlcl.evaluation import LinearEvaluationConfig
from hf_mlcl.models import MLCLForSequenceClassification

NAMES = ["red", "green", "blue"]
GRID = LinearEvaluationConfig(learning_rates=(0.1,), weight_decays=(1e-2, 1e-4), epochs=5)


def texts(count, seed):
    rng = np.random.default_rng(seed)
    labels = [sorted(rng.choice(3, rng.integers(0, 3), replace=False).tolist()) for _ in range(count)]
    words = [" ".join([*(NAMES[i] for i in ids), *rng.choice(["a", "of", "the"], 3)]) for ids in labels]
    return Dataset.from_dict({"text": words, "labels": labels})


def arguments(folder):
    return ContrastiveTrainingArguments(
        folder, max_steps=3, report_to="none", disable_tqdm=True, use_cpu=True, remove_unused_columns=False
    )


@pytest.fixture(scope="module")
def text_case(tmp_path_factory):
    torch.manual_seed(0)
    splits = [texts(count, seed) for seed, count in enumerate((60, 30, 30))]
    tokenizer = word_tokenizer(splits[0]["text"])
    backbone = BertConfig(vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    labels = {"id2label": dict(enumerate(NAMES)), "label2id": {name: i for i, name in enumerate(NAMES)}}
    model = MLCLModel(MLCLConfig(backbone_config=backbone, pooling="mean", **labels))
    trainer = ContrastiveMultiLabelTrainer(
        model,
        arguments(tmp_path_factory.mktemp("text")),
        TextCollator(tokenizer, 3),
        train_dataset=tokenize(splits[0], tokenizer),
    )
    trainer.train()
    data = [tokenize(split, tokenizer) for split in splits]
    return trainer, data, splits, tokenizer, trainer.linear_evaluate(*data, config=GRID)


def test_it_reports_metrics_choices_and_a_classifier(text_case):
    *_, result = text_case
    assert {
        "test_micro_f1",
        "test_macro_f1",
        "test_hamming_loss",
        "test_mAP",
        "validation_macro_f1",
    } <= result.metrics.keys()
    assert len(result.choices) == 3
    assert isinstance(result.classifier, MLCLForSequenceClassification)


def test_the_pipeline_gives_the_probabilities_of_the_linear_evaluation(text_case, tmp_path):
    trainer, data, splits, tokenizer, result = text_case
    result.classifier.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert type(AutoModelForSequenceClassification.from_pretrained(tmp_path)) is MLCLForSequenceClassification
    classify = pipeline("text-classification", model=str(tmp_path), top_k=None, device="cpu")
    expected = result.predict_proba(trainer.extract_features(data[2]))
    for row, found in enumerate(classify(splits[2]["text"][:8])):
        scores = {entry["label"]: entry["score"] for entry in found}
        assert [scores[name] for name in NAMES] == pytest.approx(expected[row].tolist(), abs=1e-5)


def test_cached_features_are_used_until_weights_or_data_change(text_case, tmp_path, monkeypatch):
    trainer, data, *_ = text_case
    calls = []
    original = trainer.features_and_labels
    monkeypatch.setattr(trainer, "features_and_labels", lambda dataset: calls.append(1) or original(dataset))
    first = trainer.linear_evaluate(*data, config=GRID, cache_dir=tmp_path)
    again = trainer.linear_evaluate(*data, config=GRID, cache_dir=tmp_path)
    assert len(calls) == 3
    assert again.metrics == first.metrics
    with torch.no_grad():
        next(trainer.model.backbone.parameters()).add_(0.01)
    trainer.linear_evaluate(*data, config=GRID, cache_dir=tmp_path)
    assert len(calls) == 6


def test_images_end_in_an_image_classification_pipeline(tmp_path):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    labels = [[i % 3] for i in range(24)]
    images = [
        Image.fromarray((rng.random((32, 32, 3)) * 60 + 190 * np.eye(3)[ids[0]]).astype("uint8")) for ids in labels
    ]
    data = Dataset.from_dict({"image": images, "labels": labels})
    model = MLCLModel.from_backbone("resnet10t", NAMES, pretrained=False)
    trainer = ContrastiveMultiLabelTrainer(
        model, arguments(tmp_path / "run"), ImageCollator(image_transform(size=32), 3), train_dataset=data
    )
    result = trainer.linear_evaluate(data, data, config=GRID)
    result.classifier.save_pretrained(tmp_path / "classifier")
    loaded = AutoModelForImageClassification.from_pretrained(tmp_path / "classifier").eval()
    batch = ImageCollator(image_transform(size=32), 3)([data[i] for i in range(6)])
    with torch.no_grad():
        got = loaded(pixel_values=batch["pixel_values"]).logits.sigmoid()
    assert np.allclose(got, result.predict_proba(trainer.extract_features(data))[:6], atol=1e-5)


def test_logits_of_averaged_heads_are_exact_at_any_size():
    from hf_mlcl.models.classification import LinearHeads

    heads = LinearHeads(2, 1, 1)
    for biases in ([0.0, 0.0], [3.0, -5.0], [80.0, 90.0], [-200.0, -300.0], [500.0, -500.0]):
        with torch.no_grad():
            heads.weight.zero_()
            heads.bias.copy_(torch.tensor(biases).unsqueeze(1))
        logit = heads(torch.zeros(1, 1)).item()
        exact = torch.tensor(biases, dtype=torch.float64)
        expected = torch.nn.functional.logsigmoid(exact).logsumexp(0) - torch.nn.functional.logsigmoid(
            -exact
        ).logsumexp(0)
        assert logit == pytest.approx(expected.item(), rel=1e-5)
        assert torch.tensor(logit, dtype=torch.float64).sigmoid().item() == pytest.approx(
            exact.sigmoid().mean().item(), rel=1e-4
        )
