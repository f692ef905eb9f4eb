"""What the page of a classifier shows, gathered from a training that has just ended or from a saved classifier."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hf_mlcl.data.own import data_fingerprint
from hf_mlcl.evaluation.feature_cache import FeatureCache, feature_key
from hf_mlcl.experiments.inputs import rows_with, sample_rows
from hf_mlcl.experiments.prediction import Predictor, contents_of, training_result
from hf_mlcl.experiments.results import ExperimentResult
from hf_mlcl.experiments.verdict import side_by_side
from hf_mlcl.metrics import DecisionRule
from hf_mlcl.pages import Explained, Split, write_explain_page
from hf_mlcl.training.evaluation import SplitFeatures

Array = npt.NDArray[np.float32]
Scores = Mapping[str, Mapping[str, Sequence[float]]]


def explain_saved(
    predictor: Predictor,
    test: Any,
    train: Any = None,
    *,
    split: str = "test",
    data: str = "",
    cache_dir: str | os.PathLike[str] | None = None,
) -> Explained:
    """What a saved classifier makes of rows.

    Args:
        predictor: The classifier.
        test: Rows to judge it on (a `datasets.Dataset`), with labels that it knows.
        train: Rows to find neighbours and doubtful labels among, likewise; None if there are none.
        split: What the test rows are called.
        data: Name of the data.
        cache_dir: Keeps features for the next page of the same weights and rows.
    """
    path = Path(predictor.model).resolve() if Path(predictor.model).exists() else Path(predictor.model)
    name = path.parent.name if path.name == "classifier" else path.name
    return _explained(
        f"{name} on {Path(data).name or 'data'}",
        predictor.modality,
        predictor.label_names,
        predictor.rule,
        *_encoded(predictor, test, cache_dir),
        None if train is None else _encoded(predictor, train, cache_dir)[0],
        training_result(predictor.model),
        split,
    )


def explain_training(
    path: Path,
    modality: str,
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
    encoded = {"train": features["train"][0][0], "test": features["test"][0]}
    train, test = (_split(rows[name], modality, features[name][1] > 0, np.asarray(encoded[name])) for name in most)
    config = evaluated.classifier.config
    rule = DecisionRule.of(config)
    title = f"{result.folder.resolve().name}: {result.settings['loss']} on {_data_name(result)}"
    probabilities = rule.scaled(evaluated.test_probabilities).astype(np.float32)
    write_explain_page(path, _explained(title, modality, config.label_names, rule, test, probabilities, train, result))


def _explained(
    title: str,
    modality: Any,
    label_names: Sequence[str],
    rule: DecisionRule,
    test: Split,
    probabilities: Array,
    train: Split | None,
    result: ExperimentResult | None,
    split: str = "test",
) -> Explained:
    counts = (test if train is None else train).labels.sum(0).tolist()
    return Explained(
        title=title,
        modality=modality,
        label_names=label_names,
        rule=rule,
        test=test,
        probabilities=probabilities,
        split=split,
        train=train,
        facts=_facts(rule, len(label_names), len(test.labels), train, result),
        scores=_scores(test.labels, probabilities, rule, counts, result),
    )


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
        key = feature_key(predictor.state_dict(), data_fingerprint({"rows": rows}), predictor.processing())
        tensors = FeatureCache(cache_dir).get_or_compute(key, compute)
    return _split(rows, predictor.modality, truth, tensors["features"].numpy()), tensors["probabilities"].numpy()


def _scores(
    truth: npt.NDArray[np.bool_],
    probabilities: npt.NDArray[np.float32],
    rule: DecisionRule,
    train_rows: Sequence[int],
    result: ExperimentResult | None,
) -> Scores:
    """Of these rows with intervals; where they are those of the training, beside those of the frozen encoder."""
    own = side_by_side(truth, {"trained": probabilities}, {"trained": rule}, train_rows)
    known = (result.verdict if result else {}).get("scores", {})
    same = {
        name: value[0]
        for name, value in known.get("trained", {}).items()
        if name in own["trained"] and abs(value[0] - own["trained"][name][0]) < 1e-3
    }
    if {"mAP", "micro_f1"} <= same.keys():  # other rows would hardly have the same scores
        return {name: known[name] for name in ("trained", "frozen", "gain") if name in known}
    return {"trained": own["trained"]}


def _facts(
    rule: DecisionRule, labels: int, rows: int, train: Split | None, result: ExperimentResult | None
) -> dict[str, str]:
    cuts = rule.per_label(labels)
    decides = f"a threshold per label, {min(cuts):.2f} to {max(cuts):.2f}" if len(set(cuts)) > 1 else f"at {cuts[0]:g}"
    facts = {
        "labels": f"{labels}",
        "rows": f"{rows:,} judged" + ("" if train is None else f", {len(train.labels):,} of training"),
        "decides": "the most probable label" if rule.single_label else decides,
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
