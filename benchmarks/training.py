"""What the trainer adds to a step, padding, layouts of images, memory of chunks: `python benchmarks/training.py`."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from hf_mlcl import ContrastiveMultiLabelTrainer, ContrastiveTrainingArguments, MLCLConfig, MLCLModel
from hf_mlcl.models import padding
from measure import in_own_process, interleaved, peak_megabytes, reset_peak, table

LABELS, TOKENS = 54, 64
ENCODER: dict[str, Any] = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}


def make_batch(rows: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    ids = torch.randint(5, 30_000, (rows, TOKENS))
    labels = (torch.rand(rows, LABELS) < 2.5 / LABELS).float()
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


def common(folder: str) -> dict[str, Any]:
    return {"output_dir": folder, "report_to": "none", "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}


def contrastive(folder: str, **settings: Any) -> ContrastiveMultiLabelTrainer:
    model = MLCLModel(MLCLConfig(backbone_config=BertConfig(**ENCODER), num_labels=LABELS))
    return ContrastiveMultiLabelTrainer(model, ContrastiveTrainingArguments(**common(folder), **settings))


def overhead() -> None:
    batch = make_batch(64)
    with tempfile.TemporaryDirectory() as folder:
        ours = contrastive(folder, loss="reg")
        config = BertConfig(**ENCODER, num_labels=LABELS, problem_type="multi_label_classification")
        plain = Trainer(BertForSequenceClassification(config), TrainingArguments(**common(folder)))
        for trainer in (ours, plain):
            trainer.create_optimizer()
            trainer.current_gradient_accumulation_steps = 1

        def step(trainer: Trainer) -> None:
            trainer.training_step(trainer.model, dict(batch))
            trainer.optimizer.step()
            trainer.model.zero_grad()

        seconds = interleaved({"reg": lambda: step(ours), "bce": lambda: step(plain)}, rounds=4, repeats=2)
    table(
        "A training step, 6-layer 384-wide encoder, batch 64, 64 tokens, 54 labels",
        ["trainer", "seconds", "relative"],
        [
            ["HF Trainer, BCE", f"{seconds['bce']:.2f}", "1.00x"],
            ["ContrastiveMultiLabelTrainer, `reg`", f"{seconds['reg']:.2f}", f"{seconds['reg'] / seconds['bce']:.2f}x"],
        ],
    )


def padded() -> None:
    """Random batches of texts whose lengths spread as those of tweets do, as they are padded and in groups."""
    rows, grouped = [], padding.GROUP_ROWS
    with tempfile.TemporaryDirectory() as folder:
        trainer = contrastive(folder, loss="reg")
        trainer.current_gradient_accumulation_steps = 1
        for batch_size in (32, 64, 128):
            batch = make_batch(batch_size)
            lengths = torch.randn(batch_size, 1).mul(9).add(27).round().clamp(6, 48)
            batch["attention_mask"] = (torch.arange(int(lengths.max())) < lengths).long()
            batch["input_ids"] = batch["input_ids"][:, : int(lengths.max())]

            def step(group_rows: int, batch: dict[str, torch.Tensor] = batch) -> None:
                padding.GROUP_ROWS = group_rows
                trainer.training_step(trainer.model, dict(batch))
                trainer.model.zero_grad()

            seconds = interleaved({"groups": lambda: step(grouped), "whole": lambda: step(10**6)}, rounds=3, repeats=2)
            whole, groups = seconds["whole"], seconds["groups"]
            rows.append([batch_size, f"{whole:.2f}", f"{groups:.2f}", f"{groups / whole:.2f}x"])
    padding.GROUP_ROWS = grouped
    table(
        "Forward and backward of texts of 6 to 48 tokens (27 on average), the same encoder",
        ["batch", "padded to the longest, seconds", "in groups of 16 by length", "relative"],
        rows,
    )


def layout() -> None:
    """Convolutional networks on CPUs with the channels of images last, as `MLCLModel` has them, and first."""
    torch.manual_seed(0)
    rows = []
    for name in ("mobilenetv2_100", "efficientnet_b0", "resnet50"):
        model = MLCLModel.from_backbone(name, ["a"], pretrained=False).eval()
        images = torch.randn(32, 3, 96, 96)

        def encode(channels_last: bool, model: MLCLModel = model, images: torch.Tensor = images) -> torch.Tensor:
            model._convolves = channels_last
            return model(pixel_values=images).features

        def step(channels_last: bool, encode: Any = encode, model: MLCLModel = model) -> None:
            encode(channels_last).sum().backward()
            model.zero_grad()

        for what, does in (("forward and backward", step), ("forward", torch.no_grad()(encode))):
            seconds = interleaved(
                {"last": lambda does=does: does(True), "first": lambda does=does: does(False)}, rounds=3, repeats=2
            )
            first, last = seconds["first"], seconds["last"]
            rows.append([f"`{name}`", what, f"{first:.2f}", f"{last:.2f}", f"{last / first:.2f}x"])
    table(
        "Convolutional networks, batch 32, 96 pixels",
        ["model", "", "channels first, seconds", "channels last", "relative"],
        rows,
    )


def _peak(rows: int, chunk: int | None) -> tuple[float, float]:
    """(megabytes in all, megabytes above the model) of a training step."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = contrastive(folder, loss="reg", embedding_chunk_size=chunk)
        trainer.current_gradient_accumulation_steps = 1
        batch = make_batch(rows)
        for parameter in trainer.model.parameters():  # gradients are there from the second step on
            parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
        reset_peak()
        before = peak_megabytes()
        trainer.training_step(trainer.model, batch)
        return peak_megabytes(), peak_megabytes() - before


def memory() -> None:
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"  # freed memory goes back at once: the peak is what is in use
    rows = []
    smallest = None
    for batch, chunk in ((32, None), (128, 32), (512, 32), (128, None)):
        total, above = in_own_process(_peak, batch, chunk)
        smallest = smallest or total
        rows.append([batch, chunk or "-", f"{total:.0f} MB", f"{above:.0f} MB", f"{total / smallest:.2f}x"])
    table(
        "Peak memory of a training step, the same encoder",
        ["batch", "embedding_chunk_size", "process", "above model and gradients", "relative to batch 32"],
        rows,
    )


def main() -> None:
    """Print the tables."""
    overhead()
    padded()
    layout()
    memory()


if __name__ == "__main__":
    main()
