"""Pages of classifiers that are made by hand."""

from __future__ import annotations

import json
import re

import numpy as np
from PIL import Image

from hf_mlcl.metrics import DecisionRule
from hf_mlcl.pages import Explained, Split

NASTY = '</script><img src=x onerror="alert(1)"> & \ud800 <b>bold</b>'
NAMES = ["joy", "anger", "fear & <i>", "sadness"]


def split(rows, seed, pictures=False):
    random = np.random.default_rng(seed)
    labels = random.random((rows, len(NAMES))) < (0.5, 0.3, 0.2, 0.1)
    features = (labels @ np.eye(len(NAMES), 12) + 0.3 * random.normal(size=(rows, 12))).astype(np.float32)
    named = [", ".join(NAMES[i] for i in np.flatnonzero(row)) or "nothing" for row in labels]
    texts = [f"text {number} of {names}" for number, names in enumerate(named)]
    texts[0] = NASTY
    pixels = [Image.new("RGB", (40, 30), tuple(int(v) for v in random.integers(255, size=3))) for _ in range(rows)]
    return Split(pixels if pictures else texts, labels, features)


def explained(rows=120, train=200, pictures=False, **more):
    test = split(rows, 0, pictures)
    noise = np.random.default_rng(1).normal(size=test.labels.shape)
    probabilities = (1 / (1 + np.exp(-(4 * test.labels - 2 + 1.5 * noise)))).astype(np.float32)
    known = {"rule": DecisionRule([0.5, 0.4, 0.3, 0.2]), "train": split(train, 2, pictures) if train else None}
    scores = {"trained": {"macro_f1": [0.6, 0.5, 0.7]}, "frozen": {"macro_f1": [0.5, 0.4, 0.6]}}
    scores["gain"] = {"macro_f1": [0.1, 0.05, 0.15]}
    known |= {"facts": {"loss": "reg", "encoder": "fine-tuned"}, "scores": scores, **more}
    kind = "image" if pictures else "text"
    return Explained("Feelings <&>", kind, NAMES, test=test, probabilities=probabilities, **known)


def data_of(page):
    """What a page's script reads."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S).group(1))
