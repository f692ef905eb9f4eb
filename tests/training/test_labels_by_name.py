"""Labels by name, in one text, as columns; images without further settings; texts cut where training cuts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from datasets import Dataset, Image
from PIL import Image as PILImage
from transformers import BertConfig, BertModel

from hf_mlcl import ContrastiveMultiLabelTrainer, ContrastiveTrainingArguments, MLCLModel
from hf_mlcl.data import ImageCollator, image_transform, tokenize, word_tokenizer
from hf_mlcl.inference import Encoder

NAMES = ["sport", "art", "music"]  # in the order of the model, which is not that of the alphabet
ROWS = [["art"], ["sport", "music"], [], ["music"]] * 8


def label_columns(form):
    if form == "ids":
        return {"labels": [[NAMES.index(name) for name in row] for row in ROWS]}
    if form == "names":
        return {"labels": ROWS}
    if form == "text":
        return {"labels": ["|".join(row) for row in ROWS]}
    return {name: [int(name in row) for row in ROWS] for name in NAMES}


def arguments(folder, **settings):
    return ContrastiveTrainingArguments(
        str(folder),
        max_steps=2,
        per_device_train_batch_size=16,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        save_strategy="no",
        **settings,
    )


def encoder(vocabulary):
    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    backbone = BertModel(BertConfig(vocab_size=vocabulary, pad_token_id=0, **small))
    return MLCLModel.from_backbone(backbone, NAMES, projection_dim=8)


def text_trainer(folder, form, **settings):
    texts = [f"a text about {' and '.join(row) or 'nothing'}" for row in ROWS]
    tokenizer = word_tokenizer(texts)
    data = tokenize(Dataset.from_dict({"text": texts, **label_columns(form)}), tokenizer, max_length=16)
    model = encoder(len(tokenizer))
    return ContrastiveMultiLabelTrainer(
        model, arguments(folder, **settings), train_dataset=data, eval_dataset=data, processing_class=tokenizer
    )


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    trainer = text_trainer(tmp_path_factory.mktemp("ids"), "ids", label_aware_batches=True)
    return trainer.train().training_loss, trainer.linear_evaluate(*[trainer.train_dataset] * 3).metrics


@pytest.mark.parametrize("form", ["names", "text", "columns"])
def test_labels_by_name_train_and_evaluate_as_their_ids(form, expected, tmp_path):
    """The model's configuration says which name has which id, and batches in which rare labels meet are the same."""
    trainer = text_trainer(tmp_path, form, label_aware_batches=True)
    assert trainer.train().training_loss == pytest.approx(expected[0], rel=1e-5)
    found = trainer.linear_evaluate(*[trainer.train_dataset] * 3).metrics
    assert found == pytest.approx(expected[1], abs=1e-3)


def test_images_need_no_further_settings(tmp_path):
    rng = np.random.default_rng(0)
    pictures = [PILImage.fromarray(rng.integers(0, 255, (20, 20, 3), dtype="uint8")) for _ in ROWS]
    data = Dataset.from_dict({"image": pictures, "source": ["x"] * len(ROWS), **label_columns("text")})
    data = data.cast_column("image", Image())
    model = MLCLModel.from_backbone("test_resnet", NAMES, pretrained=False, projection_dim=8)
    collate = ImageCollator(image_transform(size=16), len(NAMES))
    trainer = ContrastiveMultiLabelTrainer(model, arguments(tmp_path), collate, data)
    assert trainer.args.remove_unused_columns
    assert np.isfinite(trainer.train().training_loss)


def test_a_saved_encoder_cuts_long_texts_where_training_did(tmp_path):
    trainer = text_trainer(tmp_path, "names")
    trainer.save_model(str(tmp_path / "saved"))
    long = " ".join(["art text about music"] * 12)
    tokens = tokenize(Dataset.from_dict({"text": [long]}), trainer.processing_class, max_length=16)
    trained = trainer.extract_features(tokens)
    found = Encoder.from_pretrained(tmp_path / "saved").features(long).numpy()
    assert np.abs(found - trained).max() < 1e-5
