"""Classifying on a CPU: torch against the ONNX export in onnxruntime; and searching an index of examples.

    python benchmarks/inference.py
    python benchmarks/inference.py --threads 1 --text_encoder FOLDER --image_weights FILE

Without a FOLDER (an encoder such as MiniLM) or a FILE (weights of timm's mobilenetv2_100) the same architectures are
timed with random weights: speed does not depend on them, the largest difference of probabilities might.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from transformers import BertConfig

from hf_mlcl import MLCLConfig, MLCLForImageClassification, MLCLForSequenceClassification, MLCLModel
from hf_mlcl.hub import export_onnx
from hf_mlcl.inference import ExampleIndex
from measure import hardware, interleaved, table

LABELS = 54
MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}


def classifier(kind: Any, encoder: MLCLModel) -> Any:
    """With three random heads, as large as trained ones are."""
    size = encoder.projection.hidden.in_features
    return kind.from_encoder(encoder, torch.randn(3, LABELS, size) / size**0.5, torch.zeros(3, LABELS)).eval()


def compare(name: str, model: Any, batches: Sequence[tuple[str, dict[str, torch.Tensor]]], folder: str) -> list[Any]:
    path = export_onnx(model, Path(folder) / "model.onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    rows = []
    for title, inputs in batches:
        arrays = {key: value.numpy() for key, value in inputs.items()}

        def in_torch(inputs: dict[str, torch.Tensor] = inputs) -> torch.Tensor:
            with torch.inference_mode():
                return model(**inputs).logits.sigmoid()

        def in_onnxruntime(arrays: dict[str, np.ndarray] = arrays) -> np.ndarray:
            return session.run(["probabilities"], arrays)[0]

        difference = np.abs(in_torch().numpy() - in_onnxruntime()).max()
        seconds = interleaved({"torch": in_torch, "onnx": in_onnxruntime}, rounds=6, repeats=3)
        count = len(next(iter(inputs.values())))
        rows.append(
            [
                name,
                title,
                f"{1000 * seconds['torch'] / count:.1f}",
                f"{1000 * seconds['onnx'] / count:.1f}",
                f"{seconds['torch'] / seconds['onnx']:.2f}x",
                f"{difference:.0e}",
            ]
        )
    return rows


def texts(rows: int, length: int) -> tuple[str, dict[str, torch.Tensor]]:
    ids = torch.randint(1000, 30_000, (rows, length), generator=torch.Generator().manual_seed(0))
    return f"{rows} x {length} tokens", {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def images(rows: int, size: int) -> tuple[str, dict[str, torch.Tensor]]:
    pixels = torch.randn(rows, 3, size, size, generator=torch.Generator().manual_seed(0))
    return f"{rows} x {size} pixels", {"pixel_values": pixels}


def graphs(text_encoder: str | None, image_weights: str | None) -> None:
    torch.manual_seed(0)
    names = [f"label {i}" for i in range(LABELS)]
    if text_encoder is None:
        encoder = MLCLModel(MLCLConfig(backbone_config=BertConfig(**MINILM), num_labels=LABELS, pooling="mean"))
    else:
        encoder = MLCLModel.from_backbone(text_encoder, names, pooling="mean")
    vision = MLCLModel.from_backbone(
        "mobilenetv2_100", names, pretrained=image_weights is not None, weights=image_weights
    )
    with tempfile.TemporaryDirectory() as folder:
        text = classifier(MLCLForSequenceClassification, encoder)
        rows = compare("MiniLM (BERT, 6 layers, 384)", text, [texts(1, 32), texts(1, 128), texts(16, 128)], folder)
        image = classifier(MLCLForImageClassification, vision)
        rows += compare("MobileNetV2", image, [images(1, 224), images(16, 224)], folder)
    table(
        f"Classifiers with three heads and {LABELS} labels, {torch.get_num_threads()} threads",
        ["model", "batch", "torch, ms a row", "onnxruntime, ms a row", "speed-up", "largest difference"],
        rows,
    )


def search() -> None:
    rows = []
    for examples in (10_000, 100_000):
        index = ExampleIndex(torch.randn(examples, 384, generator=torch.Generator().manual_seed(0)))
        queries = torch.randn(100, 384, generator=torch.Generator().manual_seed(1))
        times = []
        for batch in (queries[:1], queries):
            index.search(batch, k=10)
            start = time.perf_counter()
            index.search(batch, k=10)
            times.append(time.perf_counter() - start)
        rows.append([f"{examples:,}", f"{1000 * times[0]:.0f} ms", f"{1000 * times[1]:.0f} ms"])
    table("The ten nearest of so many examples, 384 features, exact", ["examples", "1 query", "100 queries"], rows)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text_encoder", help="folder of a text encoder")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--image_weights", help="safetensors file with the weights of timm's mobilenetv2_100")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    print(hardware())
    graphs(chosen.text_encoder, chosen.image_weights)
    search()


if __name__ == "__main__":
    main()
