"""A decoder with the default pooling learns to tell texts apart."""

from __future__ import annotations

import torch
from transformers import LlamaConfig

from hf_mlcl import ContrastiveMultiLabelTrainer, MLCLConfig, MLCLModel, load_corpus
from hf_mlcl.data import TextCollator, tokenize, word_tokenizer
from hf_mlcl.metrics import multilabel_metrics
from hub.cases import arguments


def test_a_tiny_decoder_is_20_points_of_macro_f1_above_the_majority_on_toy_text(tmp_path):
    corpus = load_corpus("toy_text")
    names = corpus["train"].features["labels"].feature.names
    tokenizer = word_tokenizer(corpus["train"]["text"])
    sizes = {"train": 1500, "validation": 300, "test": 500}
    splits = [tokenize(corpus[split].select(range(rows)), tokenizer, 48) for split, rows in sizes.items()]
    torch.manual_seed(0)
    backbone = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    model = MLCLModel(MLCLConfig(backbone_config=backbone, num_labels=len(names), projection_dim=32))
    settings = {"max_steps": 250, "learning_rate": 1e-2, "loss": "reg+zlpr", "save_strategy": "no"}
    args = arguments(tmp_path, **settings)
    args.per_device_train_batch_size = 64
    trainer = ContrastiveMultiLabelTrainer(model, args, TextCollator(tokenizer, len(names)), splits[0], splits[1])
    spread = trainer.extract_features(splits[2].select(range(50))).std(0).mean()
    assert model.config.pooling == "last"
    assert spread > 1e-3
    trainer.train()
    result = trainer.linear_evaluate(*splits, protocol="best")
    # The majority classifier gives each label to all rows or to none, as most training rows have it.
    common = torch.tensor(trainer.features_and_labels(splits[0])[1]).float().mean(0) > 0.5
    majority = multilabel_metrics(result.test_labels, common.numpy()[None].repeat(sizes["test"], axis=0))
    assert result.metrics["test_macro_f1"] > majority["macro_f1"] + 0.2
