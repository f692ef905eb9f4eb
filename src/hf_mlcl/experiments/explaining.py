"""What the page of a classifier shows, gathered from a training that has just ended or from a saved classifier."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hf_mlcl.data.own import data_fingerprint
from hf_mlcl.evaluation.feature_cache import FeatureCache
from hf_mlcl.experiments.inputs import rows_with, sample_rows
from hf_mlcl.experiments.prediction import Predictor, contents_of, training_result
from hf_mlcl.experiments.results import ExperimentResult
from hf_mlcl.experiments.verdict import side_by_side
from hf_mlcl.metrics import DecisionRule
from hf_mlcl.pages import Explained, Split, write_explain_page
from hf_mlcl.training.batches import evenly
from hf_mlcl.training.evaluation import SplitFeatures

Array = npt.NDArray[np.float32]


def explain_saved(
    predictor: Predictor,
    test: Any,
    train: Any = None,
    *,
    split: str = "test",
    data: str = "",
    cache_dir: str | os.PathLike[str] | None = None,
) -> Explained:
    """What a saved classifier makes of rows of `data`: each a `datasets.Dataset` with labels that it knows.

    Those of `train`, if there are any, are to find neighbours and doubtful labels among. A `cache_dir` keeps features
    for the next page of the same weights and rows.
    """
    path = Path(predictor.model).resolve() if Path(predictor.model).exists() else Path(predictor.model)
    title = f"{path.parent.name if path.name == 'classifier' else path.name} on {Path(data).name or 'data'}"
    modality: Any = predictor.modality
    result = training_result(predictor.model)  # before the work: it may be damaged
    judged, probabilities = _encoded(predictor, test, cache_dir)
    near = None if train is None else _encoded(predictor, train, cache_dir)[0]
    one = Explained(title, modality, predictor.label_names, predictor.rule, judged, probabilities, split, near)
    return _with_facts(one, result)


def explain_training(
    path: Path,
    modality: Any,
    data: Mapping[str, Any],
    result: ExperimentResult,
    evaluated: Any,
    features: SplitFeatures,
) -> None:
    """Write the page of a training that has just ended: `data` before it was tokenised, with the same rows' features.

    The evaluation on test has the classifier.
    """
    most = {"train": result.settings["max_train_samples"], "test": result.settings["max_eval_samples"]}
    rows = {split: rows_with(sample_rows(data[split], most[split]), modality) for split in most}
    rows["train"] = evenly(rows["train"], len(features["train"][1]))  # in a hurry, not all of them are encoded
    encoded = {"train": features["train"][0][0], "test": features["test"][0]}
    train, test = (_split(rows[name], modality, features[name][1] > 0, np.asarray(encoded[name])) for name in most)
    config = evaluated.classifier.config
    rule = DecisionRule.of(config)
    title = f"{result.folder.resolve().name}: {result.settings['loss']} on {_data_name(result)}"
    probabilities = rule.scaled(evaluated.test_probabilities).astype(np.float32)
    counts = [label["train_rows"] for label in result.per_label]
    one = Explained(title, modality, config.label_names, rule, test, probabilities, train=train, train_counts=counts)
    write_explain_page(path, _with_facts(one, result))


def _split(rows: Any, modality: str, labels: npt.NDArray[np.bool_], features: Array) -> Split:
    places = list(rows["place"]) if "place" in rows.column_names else None  # corpora do not tell
    return Split(contents_of(rows, modality), labels, features, places)


def _encoded(predictor: Predictor, rows: Any, cache_dir: str | os.PathLike[str] | None) -> tuple[Split, Array]:
    """The rows that it reads with their features, from a folder where it has them; and their probabilities."""
    rows = predictor.readable(rows)
    truth = predictor.truth(rows)

    def compute() -> dict[str, torch.Tensor]:
        found = predictor.features_and_probabilities(predictor.contents(rows))
        return {name: torch.from_numpy(each) for name, each in zip(("features", "probabilities"), found, strict=True)}

    if cache_dir is None:
        tensors = compute()
    else:
        key = predictor.feature_key(data_fingerprint({"rows": rows}))
        tensors = FeatureCache(cache_dir).get_or_compute(key, compute)
    return _split(rows, predictor.modality, truth, tensors["features"].numpy()), tensors["probabilities"].numpy()


def _with_facts(one: Explained, result: ExperimentResult | None) -> Explained:
    """With scores and their intervals; where the rows are those of the training, beside those of the frozen encoder."""
    counts = (one.test.labels.sum(0) if one.counts is None else one.counts).tolist()
    scores = side_by_side(one.test.labels, {"trained": one.probabilities}, {"trained": one.rule}, counts)
    known = (result.verdict if result else {}).get("scores", {})
    of_training, own = known.get("trained", {}), scores["trained"]
    # Other rows would hardly have the same scores.
    if all(name in of_training and abs(of_training[name][0] - own[name][0]) < 1e-3 for name in ("mAP", "micro_f1")):
        scores = {name: known[name] for name in ("trained", "frozen", "gain") if name in known}
    return replace(one, facts=_facts(one, result), scores=scores)


def _facts(one: Explained, result: ExperimentResult | None) -> dict[str, str]:
    cuts = one.rule.per_label(len(one.label_names))
    decides = f"a threshold per label, {min(cuts):.2f} to {max(cuts):.2f}" if len(set(cuts)) > 1 else f"at {cuts[0]:g}"
    trained_on = "" if one.train is None else f", {len(one.train.labels):,} of training"
    facts = {
        "labels": f"{len(one.label_names)}",
        "rows": f"{len(one.test.labels):,} judged{trained_on}",
        "decides": "the most probable label" if one.rule.single_label else decides,
    }
    if result is None:
        return facts
    settings, choices = result.settings, result.verdict.get("choices", {})
    kept = choices.get("kept")
    tuned = kept is None or not kept.startswith("the frozen encoder")
    encoder = "fine-tuned" if tuned else str(kept).replace("the frozen encoder", "frozen", 1)
    backbone = "/".join(Path(str(settings.get("backbone") or "the default")).parts[-2:])
    return {
        "data": _data_name(result),
        "backbone": backbone,
        "encoder": encoder + (f" ({kept})" if kept and tuned else ""),
        "loss": str(settings.get("loss")),
        **facts,
        "trained in": f"{result.seconds.get('total', 0) / 60:.1f} minutes",
        "versions": ", ".join(
            f"{name} {result.versions[name]}" for name in ("hf-mlcl", "torch") if name in result.versions
        ),
    }


def _data_name(result: ExperimentResult) -> str:
    return Path(str(result.settings.get("corpus"))).name
