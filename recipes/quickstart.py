"""The study's protocol on a built-in corpus, with a small encoder trained from nothing: minutes on a CPU, no download.

    python recipes/quickstart.py                          # reg against bce
    python recipes/quickstart.py --losses reg wo_reg zlpr --epochs 20

Each loss trains the same encoder for the same epochs. Contrastive losses are then judged by linear evaluation of the
frozen features, losses on logits by their own predictions.
"""

from __future__ import annotations

import argparse
import time

import torch
from transformers import BertConfig, set_seed
from transformers.utils import logging

from hf_mlcl import ContrastiveMultiLabelTrainer, ContrastiveTrainingArguments, MLCLConfig, MLCLModel, load_corpus
from hf_mlcl.data import TextCollator, tokenize, word_tokenizer
from hf_mlcl.evaluation import LinearEvaluationConfig
from hf_mlcl.metrics import compute_metrics

METRICS = ["micro_f1", "macro_f1", "hamming_loss", "mAP"]


def run(loss: str, chosen: argparse.Namespace) -> dict[str, float]:
    """Train one encoder and return its test scores."""
    set_seed(chosen.seed)
    corpus = load_corpus("toy_text")
    label_names = corpus["train"].features["labels"].feature.names
    tokenizer = word_tokenizer(corpus["train"]["text"])
    data = tokenize(corpus, tokenizer, max_length=96)

    encoder = BertConfig(
        vocab_size=len(tokenizer), hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256
    )
    model = MLCLModel(MLCLConfig(backbone_config=encoder, num_labels=len(label_names), pooling="mean"))
    trainer = ContrastiveMultiLabelTrainer(
        model,
        ContrastiveTrainingArguments(
            f"{chosen.output_dir}/{loss}",
            loss=loss,
            num_train_epochs=chosen.epochs,
            per_device_train_batch_size=64,
            per_device_eval_batch_size=256,
            learning_rate=1e-3,
            logging_steps=50,
            save_strategy="no",
            report_to="none",
            dataloader_pin_memory=torch.cuda.is_available(),
            seed=chosen.seed,
        ),
        data_collator=TextCollator(tokenizer, num_labels=len(label_names)),
        train_dataset=data["train"],
        eval_dataset=data["validation"],
        processing_class=tokenizer,
    )
    trainer.train()
    if model.classifier is not None:
        prediction = trainer.predict(data["test"])
        return compute_metrics(prediction)
    grid = LinearEvaluationConfig(learning_rates=(0.1, 0.01), weight_decays=(1e-1, 1e-2, 1e-4))
    scores = trainer.linear_evaluate(data["train"], data["validation"], data["test"], config=grid).metrics
    return {name: scores[f"test_{name}"] for name in METRICS}


def main() -> None:
    """Train with each loss and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--losses", nargs="+", default=["bce", "reg"], help="losses by name, such as reg+zlpr")
    parser.add_argument("--epochs", type=float, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output_dir", default="outputs/quickstart")
    chosen = parser.parse_args()
    logging.set_verbosity_error()
    rows = []
    for loss in chosen.losses:
        print(f"\n{loss}: training a small encoder on toy_text for {chosen.epochs:g} epochs", flush=True)
        start = time.perf_counter()
        rows.append((loss, run(loss, chosen), time.perf_counter() - start))
    print(f"\n{'loss':<12}" + "".join(f"{name:>14}" for name in METRICS) + f"{'seconds':>10}")
    for loss, scores, seconds in rows:
        print(f"{loss:<12}" + "".join(f"{scores[name]:>14.4f}" for name in METRICS) + f"{seconds:>10.0f}")


if __name__ == "__main__":
    main()
