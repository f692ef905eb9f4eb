"""PRR against temperature on an encoder that was trained on real data with `reg`.

    python benchmarks/evaluation_prr.py --text_encoder FOLDER --semeval FOLDER --output docs/images

FOLDERs hold a text encoder with its tokenizer and the official SemEval-2018 E-c files. The whole encoder is trained at
tau = 0.1; its embeddings and prototypes are then looked at through every temperature. They are kept in `--embeddings`,
and taken from there by the next call. About five minutes on one core.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import set_seed

from hf_mlcl import ContrastiveMultiLabelTrainer, ContrastiveTrainingArguments, MLCLModel
from hf_mlcl.colours import DPI
from hf_mlcl.evaluation import prr_by_temperature
from hf_mlcl.evaluation.figures import draw_prr
from measure import hardware, table
from real_data import tweets

TEMPERATURES = (0.02, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
SPLITS = ("train", "validation")


def embed(encoder: str, folder: str, rows: int, epochs: float, batch_size: int) -> dict[str, np.ndarray]:
    """Embeddings and labels of both splits and the prototypes, from MiniLM trained with `reg`."""
    data, names, collator = tweets(folder, encoder, rows)
    set_seed(0)
    with tempfile.TemporaryDirectory() as outputs:
        args = ContrastiveTrainingArguments(
            outputs,
            loss="reg",
            temperature=0.1,
            learning_rate=5e-5,
            num_train_epochs=epochs,
            per_device_train_batch_size=batch_size,
            per_device_eval_batch_size=128,
            logging_steps=10,
            save_strategy="no",
            report_to="none",
            remove_unused_columns=False,
            disable_tqdm=True,
            use_cpu=True,
        )
        model = MLCLModel.from_backbone(encoder, names, pooling="mean")
        trainer = ContrastiveMultiLabelTrainer(model, args, collator, data["train"])
        trainer.train()
        found: dict[str, Any] = {"prototypes": model.prototypes().detach().numpy()}
        for split in SPLITS:
            features, found[f"{split}_labels"] = trainer.features_and_labels(data[split])
            with torch.no_grad():
                found[split] = model.projection(torch.from_numpy(features)).numpy()
        found["logged"] = [entry["prr"] for entry in trainer.state.log_history if "prr" in entry]
    return {name: np.asarray(values) for name, values in found.items()}


def ratios(space: Mapping[str, np.ndarray], batch_sizes: tuple[int, ...]) -> dict[str, np.ndarray]:
    """PRR at every temperature, over batches of each size of each split."""
    return {
        f"{split} tweets, batches of {size}": prr_by_temperature(
            space[split], space[f"{split}_labels"], TEMPERATURES, space["prototypes"], batch_size=size
        )
        for split in SPLITS
        for size in batch_sizes
    }


def main() -> None:
    """Train, or take what a former call kept; print the table and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text_encoder", required=True, help="folder of the encoder and its tokenizer")
    parser.add_argument("--semeval", required=True, help="folder of the official files")
    parser.add_argument("--rows", type=int, default=2000, help="tweets to train on")
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--embeddings", type=Path, default=Path("outputs/prr_embeddings.npz"))
    parser.add_argument("--output", type=Path, default=Path("docs/images"))
    chosen = parser.parse_args()
    print(hardware(), flush=True)
    if not chosen.embeddings.exists():
        chosen.embeddings.parent.mkdir(parents=True, exist_ok=True)
        space = embed(chosen.text_encoder, chosen.semeval, chosen.rows, chosen.epochs, chosen.batch_size)
        np.savez(chosen.embeddings, **space)
    space = dict(np.load(chosen.embeddings))
    logged = space["logged"]
    print(
        f"PRR of the training batches: {100 * logged[0]:.1f} % in the first steps, {100 * logged[-1]:.1f} % in the last"
    )
    lines = ratios(space, (chosen.batch_size, 256))
    header = ["temperature", *(f"{t:g}" for t in TEMPERATURES)]
    rows = [[name, *(f"{100 * value:.1f}" for value in values)] for name, values in lines.items()]
    table(f"PRR in per cent, SemEval-2018, {chosen.rows} tweets, {chosen.epochs:g} epochs, `reg` at 0.1", header, rows)
    path = chosen.output / "evaluation_prr_trained.png"
    draw_prr(TEMPERATURES, lines).savefig(path, dpi=DPI)
    print(f"wrote {path.name}, {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
