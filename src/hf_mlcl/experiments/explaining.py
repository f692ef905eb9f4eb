"""What the page of a classifier shows, gathered from a training that has just ended or from a saved classifier."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hf_mlcl.data.own import data_fingerprint
from hf_mlcl.evaluation.feature_cache import FeatureCache, feature_key
from hf_mlcl.experiments.inputs import Inputs, rows_with, sample_rows
from hf_mlcl.experiments.output_folder import OutputFolder
from hf_mlcl.experiments.prediction import Predictor, contents_of
from hf_mlcl.experiments.results import METRICS_FILE, PAGE_FILE, ExperimentResult
from hf_mlcl.experiments.verdict import side_by_side
from hf_mlcl.metrics import DecisionRule
from hf_mlcl.pages import Explained, Split, write_explain_page
from hf_mlcl.training.evaluation import SplitFeatures, split_features

logger = logging.getLogger(__name__)
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
    test, train = predictor.readable(test), None if train is None else predictor.readable(train)
    truth, near = predictor.truth(test), None
    features, probabilities = _encoded(predictor, test, cache_dir)
    if train is not None:
        known = _encoded(predictor, train, cache_dir)[0]
        near = Split(predictor.contents(train), predictor.truth(train), known, places_of(train))
    result = _result_of(predictor.model)
    counts = (truth if near is None else near.labels).sum(0).tolist()
    return Explained(
        title=f"{_name(predictor.model)} on {Path(data).name or 'data'}",
        modality=predictor.modality,  # type: ignore[arg-type]  # one of the two
        label_names=predictor.label_names,
        rule=predictor.rule,
        test=Split(predictor.contents(test), truth, features, places_of(test)),
        probabilities=probabilities,
        split=split,
        train=near,
        facts=_facts(predictor.rule, len(predictor.label_names), len(truth), near, result),
        scores=_scores(truth, probabilities, predictor.rule, counts, result),
    )


def write_page_of_training(
    trainer: Any,
    inputs: Inputs,
    data: Mapping[str, Any],
    result: ExperimentResult,
    evaluated: Any,
    features: SplitFeatures,
    output: OutputFolder,
) -> bool:
    """Write the page of a training that has just ended; whether it is there.

    Every rank has to call it where there are several: features that training had no need of are computed by all.
    Everything is trained, judged and saved: nothing of this is worth a failed run.

    Args:
        trainer: With the weights that were evaluated.
        inputs: What was trained on.
        data: The same before it was tokenised.
        result: Of the experiment.
        evaluated: Its evaluation on test, with the classifier.
        features: Those that training has computed, by split.
        output: Where the page goes.
    """
    warning = "The model is saved, but its page could not be written: %s: %s"
    try:
        missing = {split: inputs.data[split] for split in ("train", "test") if split not in features}
        features = {**features, **split_features(trainer, missing)}
    except Exception as error:
        if trainer.args.world_size > 1:  # the others may be waiting for this rank's features
            raise
        logger.warning(warning, type(error).__name__, error)
        return False
    if not trainer.is_world_process_zero():
        return False
    try:
        most = {split: result.settings[f"max_{kind}_samples"] for split, kind in (("train", "train"), ("test", "eval"))}
        rows = {split: rows_with(sample_rows(data[split], most[split]), inputs.modality) for split in most}
        with output.writing(PAGE_FILE):
            explained = explain_result(result, evaluated, rows, features, inputs.modality)
            write_explain_page(output.path / PAGE_FILE, explained)
    except Exception as error:
        logger.warning(warning, type(error).__name__, error)
        (output.path / PAGE_FILE).unlink(missing_ok=True)
        return False
    return True


def explain_result(
    result: ExperimentResult,
    evaluated: Any,
    rows: Mapping[str, Any],
    features: Mapping[str, Any],
    modality: str,
) -> Explained:
    """What a training that has just ended makes of its test rows.

    Args:
        result: Of the experiment.
        evaluated: Its evaluation on test, with the classifier.
        rows: ``train`` and ``test`` as they were before tokenising.
        features: Of both, with labels, as `split_features` gives them.
        modality: ``"text"``, ``"image"`` or ``"text+image"``.
    """
    config = evaluated.classifier.config
    rule = DecisionRule.of(config)
    train_features, train_labels = features["train"]
    test_features, test_labels = features["test"]
    probabilities = rule.scaled(evaluated.test_probabilities).astype(np.float32)
    known = np.asarray(train_features[0])
    near = Split(contents_of(rows["train"], modality), train_labels > 0, known, places_of(rows["train"]))
    truth = test_labels > 0
    return Explained(
        title=f"{result.folder.resolve().name}: {result.settings['loss']} on {_data_name(result)}",
        modality=modality,  # type: ignore[arg-type]
        label_names=config.label_names,
        rule=rule,
        test=Split(contents_of(rows["test"], modality), truth, np.asarray(test_features), places_of(rows["test"])),
        probabilities=probabilities,
        train=near,
        facts=_facts(rule, len(config.label_names), len(truth), near, result),
        scores=_scores(truth, probabilities, rule, [row["train_rows"] for row in result.per_label], result),
    )


def places_of(rows: Any) -> Sequence[str] | None:
    """Where rows of one's own were read; corpora do not tell."""
    return list(rows["place"]) if "place" in rows.column_names else None


def _encoded(
    predictor: Predictor, rows: Any, cache_dir: str | os.PathLike[str] | None
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Features and probabilities of rows, from a folder where it has them."""

    def compute() -> dict[str, torch.Tensor]:
        found = predictor.features_and_probabilities(predictor.contents(rows))
        return {name: torch.from_numpy(each) for name, each in zip(("features", "probabilities"), found, strict=True)}

    if cache_dir is None:
        tensors = compute()
    else:
        key = feature_key(predictor.state_dict(), data_fingerprint({"rows": rows}), predictor.processing())
        tensors = FeatureCache(cache_dir).get_or_compute(key, compute)
    return tensors["features"].numpy(), tensors["probabilities"].numpy()


def _result_of(model: str) -> ExperimentResult | None:
    """What is known of the training of a classifier, where its folder tells it."""
    folder = Path(model).parent
    if not (folder / METRICS_FILE).is_file():
        return None
    try:
        return ExperimentResult.load(folder)
    except Exception:  # of JSON or of what it holds: the page tells what the classifier itself knows
        return None


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


def _name(model: str) -> str:
    path = Path(model).resolve() if Path(model).exists() else Path(model)
    return path.parent.name if path.name == "classifier" else path.name
