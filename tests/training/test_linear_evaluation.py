"""From a trained encoder to a classifier in a pipeline, with the same numbers all the way."""

from __future__ import annotations

import copy
import random

import datasets
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

from copies import all_went_well, run_ranks
from hf_mlcl import ContrastiveMultiLabelTrainer, ContrastiveTrainingArguments, MLCLConfig, MLCLModel
from hf_mlcl.data import (
    ImageCollator,
    TextCollator,
    TextImageCollator,
    image_transform,
    tokenize,
    with_prompt,
    word_tokenizer,
)
from hf_mlcl.data.text import tokenizer_key
from hf_mlcl.evaluation import LinearEvaluationConfig
from hf_mlcl.models import MLCLForSequenceClassification
from hf_mlcl.training import evaluation as evaluation_module
from training import linear_evaluation_worker

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


def same_weights(first, second):
    """But for rounding, which optimisers enlarge where a gradient is almost nothing."""
    return torch.allclose(first.weight, second.weight, rtol=1e-4, atol=1e-5)


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


def test_of_a_text_that_was_cut_the_pipeline_gives_the_same_if_its_tokenizer_cuts_there(text_case, tmp_path):
    trainer, _, _, tokenizer, result = text_case
    long = "red a of the green blue " * 40
    rows = tokenize(Dataset.from_dict({"text": [long], "labels": [[0]]}), tokenizer, max_length=8)
    expected = result.predict_proba(trainer.extract_features(rows))[0]
    result.classifier.save_pretrained(tmp_path)
    found = {}
    assert tokenizer.model_max_length == 8  # since it made tokens of that length
    for length in (8, 512):
        cutting = copy.deepcopy(tokenizer)
        cutting.model_max_length = length
        cutting.save_pretrained(tmp_path)
        classify = pipeline("text-classification", model=str(tmp_path), top_k=None, device="cpu")
        scores = {entry["label"]: entry["score"] for entry in classify([long], truncation=True)[0]}
        found[length] = np.array([scores[name] for name in NAMES])
    assert np.allclose(found.pop(8), expected, atol=1e-5)
    (elsewhere,) = found.values()
    assert not np.allclose(elsewhere, expected, atol=1e-5), "which is why the docs say so"


def test_cached_features_are_used_until_weights_or_data_change(text_case, tmp_path, monkeypatch):
    trainer, data, *_ = text_case
    calls = []
    original = trainer.features_and_labels
    monkeypatch.setattr(trainer, "features_and_labels", lambda *args: calls.append(1) or original(*args))
    first = trainer.linear_evaluate(*data, config=GRID, cache_dir=tmp_path)
    again = trainer.linear_evaluate(*data, config=GRID, cache_dir=tmp_path)
    assert len(calls) == 3
    assert again.metrics == pytest.approx(first.metrics, abs=1e-6)
    with torch.no_grad():
        next(trainer.model.backbone.parameters()).add_(0.01)
    trainer.linear_evaluate(*data, config=GRID, cache_dir=tmp_path)
    assert len(calls) == 6


def test_cached_features_are_not_those_of_an_image_that_was_replaced_in_its_place(tmp_path):
    files = [tmp_path / f"{i}.png" for i in range(4)]
    for number, file in enumerate(files):
        Image.new("RGB", (8, 8), (60 * number, 0, 0)).save(file)
    rows = Dataset.from_dict({"image": [str(file) for file in files], "labels": [[i % 2] for i in range(4)]})
    rows = rows.cast_column("image", datasets.Image())
    model = MLCLModel.from_backbone("resnet10t", ["a", "b"], pretrained=False)
    args = ContrastiveTrainingArguments(str(tmp_path / "run"), use_cpu=True, report_to="none")
    trainer = ContrastiveMultiLabelTrainer(model, args, ImageCollator(image_transform(size=32), 2), rows)
    first, _ = trainer._cached_features(rows, tmp_path / "cache")
    Image.new("RGB", (8, 8), (0, 255, 0)).save(files[3])
    again, _ = trainer._cached_features(rows, tmp_path / "cache")
    assert np.allclose(first[:3], again[:3], atol=1e-6)
    assert not np.allclose(first[3], again[3], atol=1e-6)


def test_cached_features_are_not_those_of_another_prompt(tmp_path):
    words = word_tokenizer(["query : passage : a cat"])
    keys = []
    for prompt in ("query: ", "passage: "):
        collator = TextImageCollator(with_prompt(words, prompt), image_transform(size=32), 2)
        keys.append((repr(collator), tokenizer_key(collator.tokenizer)))
    assert keys[0][0] == keys[1][0], "which is why its tokenizer has a key of its own"
    assert keys[0][1] != keys[1][1]


def test_an_encoder_that_was_loaded_is_judged_by_rows_that_it_has_not_learned_from(text_case):
    trainer, data, *_ = text_case
    other = ContrastiveMultiLabelTrainer(
        trainer.model, trainer.args, trainer.data_collator, trainer.train_dataset, eval_dataset=trainer.eval_dataset
    )
    assert other.state.global_step == 0
    heads = other.linear_evaluate(*data, protocol="best").best
    assert heads.unseen_probabilities is None
    flattered = other.linear_evaluate(*data, protocol="best", trained_on_these=False).best
    assert flattered.unseen_probabilities is not None


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


class TestAugmentedPasses:
    ROWS = 12

    @pytest.fixture
    def case(self, tmp_path):
        torch.manual_seed(0)
        rng = np.random.default_rng(0)
        images = [Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)) for _ in range(self.ROWS)]
        data = Dataset.from_dict({"image": images, "labels": [[i % 3] for i in range(self.ROWS)]})
        model = MLCLModel.from_backbone("resnet10t", NAMES, pretrained=False)
        augmented, plain = (ImageCollator(image_transform(size=32, train=train), 3) for train in (True, False))
        trainer = ContrastiveMultiLabelTrainer(
            model, arguments(tmp_path / "run"), augmented, data, eval_data_collator=plain
        )
        return trainer, data

    @staticmethod
    def seen(trainer, monkeypatch):
        """The features that the heads are given."""
        given = []
        original = evaluation_module.linear_evaluate
        monkeypatch.setattr(
            evaluation_module, "linear_evaluate", lambda *args, **kw: given.append(args) or original(*args, **kw)
        )
        return given

    def test_training_rows_are_drawn_anew_for_each_pass_and_the_rest_stays_plain(self, case, monkeypatch):
        trainer, data = case
        given = self.seen(trainer, monkeypatch)
        trainer.linear_evaluate(data, data, data, config=GRID, augmented_passes=3)
        passes, _, validation, _, test, _ = given[0]
        plain = trainer.extract_features(data)
        assert len(passes) == 3
        for features in passes:
            assert features.shape == plain.shape
            # Identity is one of RandAugment's fourteen operations: a few rows may stay as they were.
            assert sum(np.allclose(a, b, atol=1e-5) for a, b in zip(features, plain, strict=True)) < self.ROWS / 2
        assert not any(np.allclose(passes[i], passes[j], atol=1e-5) for i, j in ((0, 1), (0, 2), (1, 2)))
        np.testing.assert_allclose(validation, plain, atol=1e-5)
        np.testing.assert_allclose(test, plain, atol=1e-5)

    def test_the_same_seed_draws_the_same_passes_and_leaves_the_random_numbers_of_training_alone(self, case):
        trainer, data = case
        first = trainer.linear_evaluate(data, data, config=GRID, augmented_passes=2)
        torch.manual_seed(8)
        again = trainer.linear_evaluate(data, data, config=GRID, augmented_passes=2)
        assert same_weights(first, again)
        before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
        trainer.features_and_labels(data, 1)
        assert torch.equal(torch.get_rng_state(), before[0])
        assert random.getstate() == before[1]
        assert np.random.get_state()[1].tolist() == before[2]  # noqa: NPY002
        trainer.args.seed += 1
        other = trainer.linear_evaluate(data, data, config=GRID, augmented_passes=2)
        assert not same_weights(other, first)

    def test_each_pass_has_a_place_of_its_own_in_the_cache(self, case, tmp_path, monkeypatch):
        trainer, data = case
        calls = []
        original = trainer.features_and_labels
        monkeypatch.setattr(trainer, "features_and_labels", lambda *args: calls.append(args[1]) or original(*args))
        cache = tmp_path / "cache"
        fresh = trainer.linear_evaluate(data, data, config=GRID, augmented_passes=2)
        calls.clear()
        first = trainer.linear_evaluate(data, data, config=GRID, cache_dir=cache, augmented_passes=2)
        assert calls == [1, 2, None]
        more = trainer.linear_evaluate(data, data, config=GRID, cache_dir=cache, augmented_passes=3)
        assert calls == [1, 2, None, 3]  # what is there is used
        trainer.linear_evaluate(data, data, config=GRID, cache_dir=cache)
        assert calls == [1, 2, None, 3]  # plain features are there from validation, and are not those of a pass
        trainer.args.seed += 1
        trainer.linear_evaluate(data, data, config=GRID, cache_dir=cache, augmented_passes=1)
        assert calls == [1, 2, None, 3, 1]
        assert same_weights(first, fresh)
        assert not same_weights(first, more)

    def test_passes_that_are_all_the_same_are_reported(self, case):
        trainer, data = case
        trainer.data_collator = trainer.eval_data_collator
        with pytest.warns(UserWarning, match="the data_collator does not augment"):
            trainer.linear_evaluate(data, data, config=GRID, augmented_passes=2)
        with pytest.raises(ValueError, match="augmented_passes must be 0 or the number of passes, but is -1"):
            trainer.linear_evaluate(data, data, config=GRID, augmented_passes=-1)


class Cut:
    """A collator that says nothing about itself."""

    def __init__(self, collator, most):
        self.collator, self.most = collator, most

    def __call__(self, rows):
        batch = self.collator(rows)
        return {name: value if name == "labels" else value[:, : self.most] for name, value in batch.items()}


def test_cached_features_are_not_used_once_the_collator_or_the_backbones_settings_change(text_case, tmp_path):
    trainer, (_, validation, _), *_ = text_case
    before = trainer.data_collator, trainer.model.backbone.config.num_attention_heads
    keys = []
    try:
        for collator in (Cut(before[0], 2), Cut(before[0], 2), Cut(before[0], 3)):
            trainer.data_collator = collator
            trainer._cached_features(validation, tmp_path)
            keys.append(len(list(tmp_path.iterdir())))
        trainer.model.backbone.config.num_attention_heads += 1
        trainer._cached_features(validation, tmp_path)
        keys.append(len(list(tmp_path.iterdir())))
    finally:
        trainer.data_collator, trainer.model.backbone.config.num_attention_heads = before
    assert keys == [1, 1, 2, 3]


def test_data_without_labels_are_named(text_case):
    trainer, (train, validation, _), *_ = text_case
    with pytest.raises(ValueError, match="validation has no labels"):
        trainer.linear_evaluate(train, validation.remove_columns("labels"), config=GRID)


@pytest.mark.distributed
def test_two_ranks_give_the_heads_of_one_process_though_one_of_them_finds_no_features_on_its_disk(tmp_path):
    for ranks in (1, 2):
        assert all_went_well(run_ranks(linear_evaluation_worker.main, tmp_path, ranks=ranks, folder=tmp_path))
    one, two = (torch.load(tmp_path / f"{ranks}.pt") for ranks in (1, 2))
    torch.testing.assert_close(two, one, atol=1e-5, rtol=1e-4)  # as above: ranks compute in smaller batches


def test_no_row_is_left_out_of_the_features_where_training_drops_incomplete_batches(text_case):
    trainer, data, *_ = text_case
    whole = trainer.extract_features(data[0])
    trainer.args.dataloader_drop_last, batch = True, trainer.args.per_device_eval_batch_size
    trainer.args.per_device_eval_batch_size = 16
    try:
        assert trainer.extract_features(data[0]).shape == whole.shape
        assert trainer.args.dataloader_drop_last
    finally:
        trainer.args.dataloader_drop_last, trainer.args.per_device_eval_batch_size = False, batch


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
