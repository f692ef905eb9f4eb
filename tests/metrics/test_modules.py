from pathlib import Path

import evaluate
import numpy as np
import pytest
from hatchling.builders.wheel import WheelBuilder

from hf_mlcl import metrics

LABELS = [[1, 0, 0], [1, 1, 0], [0, 0, 0]]
PREDICTIONS = [[1, 1, 0], [0, 1, 0], [0, 0, 1]]
SCORES = [[0.9, 0.4, 0.1], [0.6, 0.9, 0.3], [0.7, 0.1, 0.8]]


@pytest.fixture(autouse=True)
def _offline(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.parametrize("average", ["micro", "macro", None])
def test_the_f1_module_gives_the_numbers_of_the_functions(average):
    result = evaluate.load(metrics.module_path("multilabel_f1")).compute(
        predictions=PREDICTIONS, references=LABELS, average=average
    )
    for name in ("f1", "precision", "recall"):
        np.testing.assert_allclose(result[name], getattr(metrics, name)(LABELS, PREDICTIONS, average))


def test_the_hamming_and_map_modules_give_the_numbers_of_the_functions():
    hamming = evaluate.load(metrics.module_path("hamming_loss")).compute(predictions=PREDICTIONS, references=LABELS)
    assert hamming == {"hamming_loss": metrics.hamming_loss(LABELS, PREDICTIONS)}
    ranking = evaluate.load(metrics.module_path("mean_average_precision"))
    assert ranking.compute(predictions=SCORES, references=LABELS) == {
        "mean_average_precision": metrics.mean_average_precision(LABELS, SCORES)
    }
    skipped = ranking.compute(predictions=SCORES, references=LABELS, absent=float("nan"))
    assert skipped["mean_average_precision"] == metrics.mean_average_precision(LABELS, SCORES, absent=float("nan"))


def test_the_representation_module_gives_the_numbers_of_the_functions():
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(12, 4)), rng.integers(0, 2, (12, 2))
    result = evaluate.load(metrics.module_path("alignment_uniformity")).compute(predictions=features, references=labels)
    assert result["alignment"] == pytest.approx(metrics.alignment(features, labels))
    assert result["uniformity"] == pytest.approx(metrics.uniformity(features))


@pytest.mark.parametrize("name", metrics.list_modules())
def test_every_module_is_a_folder_that_could_be_pushed_as_a_space(name):
    folder = Path(metrics.module_path(name))
    card = (folder / "README.md").read_text(encoding="utf-8")
    header = card.split("---")[1]
    assert "sdk: gradio" in header
    assert f"app_file: {name}.py" in header
    assert "hf-mlcl" in (folder / "requirements.txt").read_text()
    module = evaluate.load(str(folder))
    assert module.description.strip()
    assert "Args:" in module.inputs_description
    assert "arxiv" in module.info.reference_urls[0]


def test_batches_added_one_by_one_give_the_same_as_all_at_once():
    metric = evaluate.load(metrics.module_path("hamming_loss"))
    for prediction, reference in zip(PREDICTIONS, LABELS, strict=True):
        metric.add(prediction=prediction, reference=reference)
    assert metric.compute() == {"hamming_loss": metrics.hamming_loss(LABELS, PREDICTIONS)}


def test_an_unknown_module_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"`name` must be one of alignment_uniformity, .* but is 'f1'"):
        metrics.module_path("f1")


def test_the_wheel_would_hold_the_modules():
    root = Path(__file__).parents[2]
    names = {Path(file.path).name for file in WheelBuilder(str(root)).recurse_included_files()}
    assert {f"{name}.py" for name in metrics.list_modules()} <= names
