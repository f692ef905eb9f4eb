"""Batches: multi-hot labels, padding, pixels."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerFast

from hf_mlcl.data import ImageCollator, TextCollator, encode_labels, image_transform, tokenize


@pytest.fixture(scope="module")
def tokenizer():
    words = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "one", "two", "three"])}
    backend = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]")


@given(st.lists(st.sets(st.integers(0, 9)), min_size=1, max_size=20))
def test_encoding_is_the_inverse_of_reading_off_the_ones(rows):
    encoded = encode_labels([list(row) for row in rows], 10)
    assert encoded.shape == (len(rows), 10)
    assert [set(np.flatnonzero(row).tolist()) for row in encoded] == rows


@pytest.mark.parametrize(
    ("labels", "classes", "reason"),
    [
        ([[0], [3]], 3, r"Example 1 of the batch has the id 3 in column 'tags', but there are 3 labels \(ids 0 to 2\)"),
        ([[-1]], 3, "Example 0 of the batch has the id -1"),
        ([["joy"]], ["anger"], "Example 0 of the batch has the label 'joy' in column 'tags'"),
        ([["joy"]], 3, "has 'joy' in column 'tags', expected the id of a label"),
        ([[0.5]], 3, "has 0.5 in column 'tags'"),
        ([[True]], 3, "has True in column 'tags'"),
        ([[0, 0, 1, 0]], 3, "these are no ids, since one occurs twice, and no multi-hot row"),
        ([[0, 0]], 2, "these are no ids, since one occurs twice, and no multi-hot row"),
        ([2], 3, "has 2 in column 'tags', expected a list of labels"),
        (["joy"], 3, "has 'joy' in column 'tags', expected a list of labels"),
    ],
)
def test_a_wrong_label_is_named_with_its_example_and_column(labels, classes, reason):
    with pytest.raises(ValueError, match=reason):
        encode_labels(labels, classes, "tags")


@pytest.mark.parametrize("kind", [int, float, bool])
@pytest.mark.parametrize("make", [list, np.array, torch.tensor])
@given(matrix=st.lists(st.lists(st.integers(0, 1), min_size=4, max_size=4), min_size=1, max_size=9))
def test_multi_hot_rows_of_any_type_are_kept_as_they_are(kind, make, matrix):
    rows = [make([kind(value) for value in row]) for row in matrix]
    assert encode_labels(rows, 4).tolist() == matrix


def test_ids_may_be_tensors_and_numpy_integers():
    assert encode_labels([torch.tensor([1]), np.array([0, 2])], 3).tolist() == [[0, 1, 0], [1, 0, 1]]


def test_texts_are_padded_to_the_longest_of_the_batch_rounded_up(tokenizer):
    rows = [{"input_ids": [2, 3, 4], "attention_mask": [1, 1, 1], "length": 3, "labels": [1]}]
    rows.append({"input_ids": [2], "attention_mask": [1], "length": 1, "labels": []})
    batch = TextCollator(tokenizer, num_labels=2)(rows)
    assert batch["input_ids"].tolist() == [[2, 3, 4], [2, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["labels"].tolist() == [[0, 1], [0, 0]]
    assert batch["labels"].dtype == torch.float32
    assert set(batch) == {"input_ids", "attention_mask", "labels"}
    assert TextCollator(tokenizer, num_labels=2, pad_to_multiple_of=8)(rows)["input_ids"].shape == (2, 8)


def test_rows_without_labels_make_batches_without_labels(tokenizer):
    assert "labels" not in TextCollator(tokenizer, 2)([{"input_ids": [2]}])
    assert "labels" not in ImageCollator(image_transform(8), 2)([{"image": Image.new("RGB", (9, 9))}])


def test_rows_that_are_not_tokenised_say_how_to(tokenizer):
    with pytest.raises(ValueError, match=r"columns text, but none .* hf_mlcl\.data\.tokenize"):
        TextCollator(tokenizer, 2)([{"text": "one"}])


def test_images_of_any_mode_and_shape_stack():
    images = [
        Image.new(mode, size) for mode, size in (("RGB", (30, 20)), ("L", (8, 40)), ("RGBA", (5, 5)), ("P", (9, 9)))
    ]
    batch = ImageCollator(image_transform(16), num_labels=3)([{"image": image, "labels": [2]} for image in images])
    assert batch["pixel_values"].shape == (4, 3, 16, 16)
    assert batch["pixel_values"].dtype == torch.float32
    assert batch["labels"].tolist() == [[0, 0, 1]] * 4


def test_a_missing_image_column_points_to_the_trainers_habit():
    with pytest.raises(ValueError, match="remove_unused_columns=False"):
        ImageCollator(image_transform(8), 2)([{"labels": [0]}])


def test_evaluation_is_a_plain_resize_with_imagenet_statistics():
    white = image_transform(8)(Image.new("RGB", (20, 10), (255, 255, 255)))
    expected = (1 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    torch.testing.assert_close(white, expected[:, None, None].expand(3, 8, 8))


def test_training_augments_with_randaugment_and_follows_the_seed():
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8))
    train = image_transform(32, train=True)
    augment = next(step for step in train.transforms if type(step).__name__ == "RandAugment")
    assert (augment.num_ops, augment.magnitude) == (2, 9)
    views = []
    for _ in range(2):
        torch.manual_seed(3)
        views.append(torch.stack([train(noise) for _ in range(8)]))
    torch.testing.assert_close(views[0], views[1])
    assert len({view.sum().item() for view in views[0]}) > 1


def test_text_and_image_corpora_go_through_a_data_loader(load, tokenizer):
    tokens = tokenize(load("toy_text")["validation"].select(range(8)), tokenizer, max_length=16)
    batch = next(iter(DataLoader(tokens, batch_size=8, collate_fn=TextCollator(tokenizer, 28))))
    assert batch["input_ids"].shape == (8, 16)
    images = load("toy_images")["validation"].select(range(8))
    collate = ImageCollator(image_transform(32, train=True), 15)
    batch = next(iter(DataLoader(images, batch_size=8, collate_fn=collate, num_workers=1)))
    assert batch["pixel_values"].shape == (8, 3, 32, 32)
    assert batch["labels"].sum() > 0


def test_rows_are_cut_with_their_special_token_kept_and_shorter_ones_left_alone(tokenizer):
    tokens = [[2, 3, 4, 3, 1], [2, 1], [1, 2, 3, 4, 3]]  # 1 is special
    rows = [{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in tokens]
    batch = TextCollator(tokenizer, num_labels=2, max_length=3)(rows)
    assert batch["input_ids"].tolist() == [[2, 3, 1], [2, 1, 0], [1, 2, 3]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0], [1, 1, 1]]
    left = copy.deepcopy(tokenizer)
    left.truncation_side = "left"
    assert TextCollator(left, num_labels=2, max_length=3)(rows)["input_ids"].tolist() == [
        [4, 3, 1],
        [2, 1, 0],
        [1, 4, 3],
    ]


NAMED = ["art", "music, classical", "sport"]
FORMS = {
    "ids": [{"labels": [0, 1]}, {"labels": []}, {"labels": [2]}],
    "names": [{"labels": ["art", "music, classical"]}, {"labels": []}, {"labels": ["sport"]}],
    "text": [{"labels": "art|music, classical"}, {"labels": ""}, {"labels": "sport"}],
    "semicolons": [{"labels": "art; music, classical"}, {"labels": " "}, {"labels": "sport;"}],
    "columns": [dict(zip(NAMED, row, strict=True)) for row in ([1, 1, 0], [0, 0, 0], [False, False, True])],
}


@pytest.mark.parametrize("form", FORMS)
def test_labels_in_every_form_give_the_same_batch(form, tokenizer):
    rows = [{"input_ids": [2], **row} for row in FORMS[form]]
    batch = TextCollator(tokenizer, NAMED)(rows)
    assert batch["labels"].tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]


def test_labels_that_nobody_knows_and_flags_that_are_none_are_named(tokenizer):
    with pytest.raises(ValueError, match="has the label 'opera' in column 'labels', which is not one of the 3 known"):
        TextCollator(tokenizer, NAMED)([{"input_ids": [2], "labels": "art|opera"}])
    with pytest.raises(ValueError, match=r"Column 'sport' is that of a label, but holds 2; expected 0 or 1"):
        TextCollator(tokenizer, NAMED)([{"input_ids": [2], "art": 0, "music, classical": 1, "sport": 2}])


def test_rows_without_any_labels_can_be_predicted(tokenizer):
    assert "labels" not in TextCollator(tokenizer, NAMED)([{"input_ids": [2], "art": 1}])


def test_a_tokenizer_remembers_where_training_cuts(tokenizer):
    from datasets import Dataset

    tokens = tokenize(Dataset.from_dict({"text": ["one two three one two"]}), tokenizer, max_length=3)
    assert tokens[0]["length"] == tokenizer.model_max_length == 3
    assert len(tokenizer("one two three one", truncation=True)["input_ids"]) == 3
