"""What came of a training, for a person: frozen encoder and trained classifier side by side, choices, what to try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_mlcl.evaluation import BestHeads, LinearEvaluationResult
from hf_mlcl.experiments.anytime import Anytime
from hf_mlcl.experiments.stages import Stages
from hf_mlcl.metrics import DecisionRule, LabelCounts, bootstrap_intervals, frequency_groups, mean_average_precision

FEW_ROWS = 30
"""Training rows below which more of them are the first thing to try for a label."""
FEW_JUDGES = 50
"""Rows of validation or test below which neither choices nor scores can be trusted."""
NAMED = 5
CELLS = 50_000_000
"""Test rows x labels x draws that intervals may take: a few seconds."""
DRAWS, FEWEST_DRAWS = 200, 20


def verdict(anytime: Anytime, trained: LinearEvaluationResult, per_label: list[dict[str, Any]]) -> dict[str, Any]:
    """Test scores of the frozen and the best classifier with intervals, the choices that were made, and advice."""
    stages, frozen = anytime.stages, anytime.frozen
    kept: Any = stages.best
    in_vain = kept.result.best.prior == "zero" and not anytime.descriptions  # nobody has said what the labels mean
    advice = _advice(stages, per_label, frozen.best if in_vain else None, anytime.had_time)
    rows = {split: len(anytime.inputs.data[split]) for split in ("validation", "test")}
    if min(rows.values()) < FEW_JUDGES:
        counts = " and ".join(f"{count:,} of {split}" for split, count in rows.items())
        advice.insert(0, f"More rows to judge by: {counts} decide what was chosen and what the scores say.")
    told = {"choices": _choices(stages), "advice": advice, "rows": rows}
    if trained.test_labels is None:
        return told
    both = {"frozen": frozen, "trained": trained}
    scores = side_by_side(
        trained.test_labels,
        {name: one.test_probabilities for name, one in both.items()},  # type: ignore[misc]  # of test rows, as above
        {name: _rule(one) for name, one in both.items()},
        [row["train_rows"] for row in per_label],
    )
    return {"scores": scores, **told}


def _rule(result: LinearEvaluationResult) -> DecisionRule:
    return result.tuned.rule if result.tuned else DecisionRule(single_label=result.config.single_label)


def side_by_side(
    labels: npt.NDArray[Any],
    probabilities: dict[str, npt.NDArray[np.float32]],
    rules: Mapping[str, DecisionRule],
    train_rows: Sequence[int],
) -> dict[str, dict[str, list[float]]]:
    """For each classifier and metric: the score on test, and the ends of its 95 % interval over resampled rows.

    The gain of the last classifier over the first is paired: both are scored on the same resampled rows. A classifier
    alone has none.

    Args:
        labels: Multi-hot truth (rows, labels).
        probabilities: Of each classifier, by name.
        rules: What each decides by.
        train_rows: Of each label, for the groups of frequent and rare ones.

    Examples:
        >>> truth = np.eye(4, dtype=bool)[np.arange(40) % 4]
        >>> scores = {"frozen": np.full(truth.shape, 0.4, np.float32), "trained": np.where(truth, 0.9, 0.1)}
        >>> table = side_by_side(truth, scores, dict.fromkeys(scores, DecisionRule()), [10] * 4)
        >>> table["trained"]["macro_f1"], table["gain"]["macro_f1"][0]
        ([1.0, 1.0, 1.0], 1.0)
    """
    decisions = {name: rules[name].decide(p) for name, p in probabilities.items()}
    first, last = next(iter(probabilities)), list(probabilities)[-1]
    groups = {"macro_f1": np.arange(labels.shape[1])}
    groups |= {f"{name}_f1": ids for name, ids in frequency_groups(np.asarray(train_rows)).items()}

    def scores(rows: npt.NDArray[np.int64]) -> dict[str, float]:
        truth = labels[rows]
        carried = np.asarray(truth.any(axis=0))  # a label that was not drawn says nothing: 0 would count against all
        found: dict[str, float] = {}
        for name, p in probabilities.items():
            counts = LabelCounts.of(truth, decisions[name][rows])
            found[f"{name} mAP"] = mean_average_precision(truth, p[rows], absent=float("nan"))
            found[f"{name} micro_f1"] = float(counts.pooled().f1().item())
            for group, ids in groups.items():
                seen = ids[carried[ids]]
                if len(seen):
                    found[f"{name} {group}"] = float(counts.f1()[seen].mean())
        metrics = [key.removeprefix(f"{last} ") for key in found if key.startswith(f"{last} ") and first != last]
        for metric in metrics:
            found[f"gain {metric}"] = found[f"{last} {metric}"] - found[f"{first} {metric}"]
        return found

    samples = int(np.clip(CELLS // max(labels.size, 1), FEWEST_DRAWS, DRAWS))
    intervals = bootstrap_intervals(scores, len(labels), samples)
    table: dict[str, dict[str, list[float]]] = {}
    for key, value in scores(np.arange(len(labels))).items():
        name, metric = key.split(" ", 1)
        table.setdefault(name, {})[metric] = [float(value), *intervals.get(key, (float("nan"), float("nan")))]
    return table


def _choices(stages: Stages) -> dict[str, str]:
    """What was chosen, and by what."""
    best: Any = stages.best
    config = stages.trainer.model.config
    heads, tuned = best.result.best, best.result.tuned
    why = "fine-tuning was not better on validation" if len(stages.history) > 1 else "nothing was fine-tuned"
    way = "" if best.share == 1 else f"{best.share:.0%} of the way from the frozen encoder to "
    scores = "" if tuned is None else ", ".join(f"{name} {value:.3f}" for name, value in tuned.scores.items())
    untuned = "none: the most probable label" if best.result.config.single_label else "0.5"
    losses = ", ".join(f"{name} {min(each):.4f}" for name, each in heads.loss.items())
    rows, known = len(stages.train), len(stages.trainer.train_dataset)
    fewer = {"heads": f"fitted to {rows:,} of {known:,} rows, for want of time"} if rows < known else {}
    return {
        "kept": f"{way}step {best.step}" if best.step else f"the frozen encoder: {why}",
        "looks": ", ".join(f"step {step}: {score:.3f}" for step, score in stages.history),
        **fewer,
        "pooling": config.pooling + (", scaled to length 1" if config.normalize_features else ""),
        "prior": f"{heads.prior} (log loss of unseen rows, each at its best strength: {losses})",
        "weight_decay": f"{heads.weight_decay:g}",
        "thresholds": f"{tuned.kind} (cross-fitted F1: {scores})" if tuned else untuned,
    }


def _advice(
    stages: Stages, per_label: list[dict[str, Any]], heads: BestHeads | None = None, had_time: bool = True
) -> list[str]:
    """What is likely to help next, the most promising first; the frozen encoder's `heads` tell of labels' names."""
    tips = []
    few = sorted((row for row in per_label if row["train_rows"] < FEW_ROWS), key=lambda row: row["f1"])
    if few:
        named = ", ".join(f"{row['label']} ({row['train_rows']})" for row in few[:NAMED])
        more = f" and {len(few) - NAMED} more" if len(few) > NAMED else ""
        tips.append(f"More rows for labels with fewer than {FEW_ROWS}: {named}{more}.")
        if heads is not None and heads.prior == "zero" and len(heads.loss) > 1:
            words = "Words for the labels (--label_descriptions FILE), if their names are codes or abbreviations"
            tips.insert(0, f"{words}: the names as they are told the encoder nothing.")
    history = stages.history
    if not had_time:
        tips.append("More time: there was none for fine-tuning (--minutes).")
    elif len(history) > 1 and history[-1][1] > max(score for _, score in history[:-1]):
        tips.append("More time: the last look at validation was the best one (--minutes, or --epochs).")
    return [*tips, "A larger encoder (--backbone), if the machine allows it."]
