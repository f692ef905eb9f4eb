"""LoRA against full fine-tuning on real data: `python benchmarks/adapters.py --backbone FOLDER --data_dir FOLDER`.

A sentence encoder (all-MiniLM-L6-v2) on 1,000 rows of SemEval-2018, as many steps for both, all else as
``hf-mlcl train`` chooses it. Prints scores, sizes, and how far files and exports are from the model that was trained.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from hf_mlcl import MLCLModel, load_corpus
from hf_mlcl.data.own import OwnData
from hf_mlcl.experiments import build_experiment, own_recipe, run_experiment
from hf_mlcl.hub import export_onnx
from hf_mlcl.inference import Encoder
from measure import table

SCORES = ("test_mAP", "tuned_test_macro_f1", "tuned_test_micro_f1")


def train(data: OwnData, folder: Path, backbone: str, **settings: Any) -> dict[str, float]:
    recipe = own_recipe(data, "semeval2018", backbone)
    settings |= {"output_dir": str(folder), "use_cpu": True, "corpus": None, "save_strategy": "no"}
    experiment, training = build_experiment(recipe, settings)
    return run_experiment(experiment, training, data.splits, quiet=True).metrics


def vectors(folder: Path, texts: list[str]) -> dict[str, np.ndarray]:
    """Features of texts by everything that was saved, and what they are in float64."""
    import onnxruntime
    from sentence_transformers import SentenceTransformer

    tokenizer = AutoTokenizer.from_pretrained(folder / "encoder")
    tokens = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
    mask = tokens["attention_mask"]
    model = MLCLModel.from_pretrained(folder / "encoder")
    plain = AutoModel.from_pretrained(folder / "backbone", add_pooling_layer=False).eval()
    with torch.no_grad():
        hidden = plain(tokens["input_ids"], mask).last_hidden_state
    export_onnx(model, folder / "model.onnx")
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    inputs = {name: tokens[name].numpy() for name in ("input_ids", "attention_mask")}
    sentences = SentenceTransformer(str(folder / "backbone"), device="cpu")
    found = {
        "adapter and base model": Encoder(model, tokenizer).features(texts).numpy(),
        "AutoModel": ((hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)).numpy(),
        "SentenceTransformer": sentences.encode(texts, normalize_embeddings=False),
        "ONNX": session.run(["features"], inputs)[0],
    }
    model.double().eval()
    with torch.no_grad():
        both = [one(input_ids=tokens["input_ids"], attention_mask=mask).features for one in (model, model.merged())]
    return found | dict(zip(("exact", "exact, merged"), (features.numpy() for features in both), strict=True))


def show_differences(found: dict[str, np.ndarray]) -> None:
    adapted, exact = found["adapter and base model"], found["exact"]
    largest = np.abs(exact).max()
    rows = []
    for name in ("adapter and base model", "AutoModel", "SentenceTransformer", "ONNX", "exact, merged"):
        from_exact, from_adapted = (np.abs(found[name] - other).max() for other in (exact, adapted))
        cells = [f"{from_exact:.1e}", f"{from_exact / largest:.1e}", f"{from_adapted:.1e}"]
        rows.append([name, *(cells if "exact" not in name else [*cells[:2], ""])])
    table(
        f"Largest difference of a feature (largest feature {largest:.2f}); exact is adapter and base model in float64",
        ["", "from exact", "of the largest", "from adapter and base model"],
        rows,
    )


def saved_again(folder: Path) -> bool:
    again = folder.parent / "again"
    MLCLModel.from_pretrained(folder).save_pretrained(again)
    same = []
    for file in ("adapter_model.safetensors", "heads.safetensors"):
        before, after = load_file(folder / file), load_file(again / file)
        same += [before.keys() == after.keys(), *(torch.equal(value, after[name]) for name, value in before.items())]
    return all(same)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backbone", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--data_dir")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--ranks", type=int, nargs="+", default=[16])
    parser.add_argument("--rates", type=float, nargs="+", default=[None])
    parser.add_argument("--seeds", type=int, nargs="+", default=[42])
    given = parser.parse_args()
    splits = load_corpus("semeval2018", data_dir=given.data_dir, labelled_only=True)
    data = OwnData(splits, "text", "Tweet", "as given", "official")
    common = {"max_train_samples": given.rows, "max_steps": given.steps}
    cases: dict[str, dict[str, Any]] = {"full": {}}
    for rank in given.ranks:
        for rate in given.rates:
            chosen = {"lora_rank": rank} | ({} if rate is None else {"learning_rate": rate})
            cases[f"LoRA {rank}" + ("" if rate is None else f", rate {rate:g}")] = chosen
    with tempfile.TemporaryDirectory() as made:
        rows, folder = [], Path(made)
        for name, settings in cases.items():
            runs = []
            for seed in given.seeds:
                folder = Path(made, f"{name} {seed}")
                runs.append(train(data, folder, given.backbone, seed=seed, **common, **settings))
            weights = folder / "encoder" / ("adapter_model.safetensors" if settings else "model.safetensors")
            heads = folder / "encoder" / "heads.safetensors"
            size = weights.stat().st_size + (heads.stat().st_size if settings else 0)
            means = [100 * float(np.mean([run[score] for run in runs])) for score in SCORES]
            frozen = [100 * float(np.mean([run[f"frozen_{score}"] for run in runs])) for score in SCORES]
            rows.append([name, *(f"{value:.1f}" for value in means), f"{size / 1e6:.2f}"])
            print(rows[-1], "frozen", frozen, flush=True)
        rows.append(["frozen", *(f"{value:.1f}" for value in frozen), ""])
        table(
            f"{given.rows:,} tweets, {given.steps} steps, means over {len(given.seeds)} seeds",
            ["trained", "mAP", "macro-F1", "micro-F1", "saved, MB"],
            rows,
        )
        found, same = vectors(folder, list(splits["test"]["text"][:64])), saved_again(folder / "encoder")
    show_differences(found)
    print("Loaded and saved again, adapter and heads are the same to the bit:", same)


if __name__ == "__main__":
    main()
