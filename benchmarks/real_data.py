"""Short trainings on real corpora with real weights: does the loss fall, and do the features get better?

    python benchmarks/real_data.py --text_encoder FOLDER --semeval FOLDER
    python benchmarks/real_data.py --image_weights FILE --coco FOLDER --rows 6000 --epochs 2

FOLDERs hold the corpora's official files (docs/corpora.md) and a text encoder with its tokenizer; FILE the weights of
timm's mobilenetv2_100. Prints validation scores of a ridge probe on the frozen backbone's features and after training.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

from datasets import DatasetDict
from timm.layers import freeze_batch_norm_2d
from timm.utils import freeze
from transformers import AutoTokenizer

from hf_mlcl import ContrastiveMultiLabelTrainer, ContrastiveTrainingArguments, MLCLModel, load_corpus
from hf_mlcl.data import ImageCollator, TextCollator, image_transform, tokenize
from measure import hardware, table


def train(model: MLCLModel, data: DatasetDict, collator: Any, loss: str, **settings: Any) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        args = ContrastiveTrainingArguments(
            folder,
            loss=loss,
            eval_probe="ridge",
            logging_steps=10,
            save_strategy="no",
            report_to="none",
            remove_unused_columns=False,
            disable_tqdm=True,
            use_cpu=True,
            **settings,
        )
        trainer = ContrastiveMultiLabelTrainer(
            model, args, data_collator=collator, train_dataset=data["train"], eval_dataset=data["validation"]
        )
        before = trainer.evaluate()
        start = time.perf_counter()
        trainer.train()
        minutes = (time.perf_counter() - start) / 60
        after = trainer.evaluate()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        prr = [entry["prr"] for entry in trainer.state.log_history if "prr" in entry]
    return [
        loss,
        f"{losses[0]:.3f} -> {losses[-1]:.3f}",
        f"{100 * before['eval_probe_macro_f1']:.1f} -> {100 * after['eval_probe_macro_f1']:.1f}",
        f"{100 * before['eval_probe_mAP']:.1f} -> {100 * after['eval_probe_mAP']:.1f}",
        f"{100 * after['eval_micro_f1']:.1f} / {100 * after['eval_macro_f1']:.1f}" if "eval_micro_f1" in after else "-",
        f"{100 * prr[0]:.0f} % -> {100 * prr[-1]:.0f} %" if prr and loss != "zlpr" else "-",
        f"{minutes:.1f} min",
    ]


HEADER = ["loss", "training loss", "probe macro-F1", "probe mAP", "own micro / macro-F1", "PRR", "time"]


def tweets(folder: str, encoder: str, rows: int) -> tuple[DatasetDict, list[str], TextCollator]:
    """SemEval-2018 as 48 tokens a tweet, `rows` of them to train on; the labels' names; a collator."""
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    data = tokenize(load_corpus("semeval2018", data_dir=folder), tokenizer, max_length=48)
    names = data["train"].features["labels"].feature.names
    data["train"] = data["train"].shuffle(seed=0).select(range(min(rows, len(data["train"]))))
    return data, names, TextCollator(tokenizer, len(names))


def semeval(folder: str, encoder: str, losses: list[str], rows: int, epochs: float) -> None:
    data, names, collator = tweets(folder, encoder, rows)
    results = []
    for loss in losses:
        model = MLCLModel.from_backbone(encoder, names, pooling="mean")
        settings = {
            "learning_rate": 5e-5,
            "num_train_epochs": epochs,
            "eval_probe_samples": 1500,
            "per_device_train_batch_size": 32 if loss == "zlpr" else 64,
            "per_device_eval_batch_size": 128,
        }
        results.append(train(model, data, collator, loss, **settings))
    table(f"SemEval-2018, {rows} training tweets, {epochs} epochs, all-MiniLM-L6-v2, 48 tokens", HEADER, results)


def coco(folder: str, weights: str, losses: list[str], rows: int, epochs: float) -> None:
    data = load_corpus("coco2014", data_dir=folder)
    names = data["train"].features["labels"].feature.names
    data["train"] = data["train"].shuffle(seed=0).select(range(min(rows, len(data["train"]))))
    results = []
    for loss in losses:
        model = MLCLModel.from_backbone("mobilenetv2_100", names, weights=weights)
        # Little data, few steps: the first layers and all statistics stay those of ImageNet.
        freeze_batch_norm_2d(model.backbone.timm_model)
        freeze(model.backbone.timm_model, ["conv_stem", "bn1", *(f"blocks.{i}" for i in range(4))])
        collator = ImageCollator(image_transform(size=128), num_labels=len(names))
        settings = {
            "optim": "adamw_torch",
            "learning_rate": 1e-4,
            "head_learning_rate": 1e-2 if loss == "zlpr" else 1e-3,
            "num_train_epochs": epochs,
            "eval_probe_samples": rows,
            "per_device_train_batch_size": 64,
            "per_device_eval_batch_size": 128,
        }
        results.append(train(model, data, collator, loss, **settings))
    title = f"COCO 2014 (reduced to 128 px), {len(data['train'])} training images, {epochs:g} epochs, MobileNetV2"
    table(title, HEADER, results)


def main() -> None:
    """Run what there are files for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--text_encoder", "--semeval", "--image_weights", "--coco"):
        parser.add_argument(name)
    parser.add_argument("--losses", nargs="+", default=["zlpr", "reg"])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--epochs", type=float, default=3)
    chosen = parser.parse_args()
    print(hardware(), flush=True)
    if chosen.semeval:
        semeval(chosen.semeval, chosen.text_encoder, chosen.losses, chosen.rows, chosen.epochs)
    if chosen.coco:
        coco(chosen.coco, chosen.image_weights, chosen.losses, chosen.rows, chosen.epochs)


if __name__ == "__main__":
    main()
