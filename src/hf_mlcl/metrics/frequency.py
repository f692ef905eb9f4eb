"""Metrics of frequent and of rare labels apart: where a method gains in the long tail, and where not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from hf_mlcl.metrics._arrays import ArrayLike, IntArray, as_array, as_multi_hot
from hf_mlcl.metrics.classification import LabelCounts

GROUP_NAMES = ("head", "medium", "tail")


def frequency_groups(train_labels: ArrayLike, shares: Sequence[float] = (1 / 3, 1 / 3)) -> Mapping[str, IntArray]:
    """Labels sorted into head, medium and tail by how often they occur in training.

    Args:
        train_labels: Multi-hot training labels (rows, labels), or the number of occurrences of each label (labels,).
        shares: Shares of the labels that are head and medium, most frequent first; the rest are tail. Of labels
            that occur equally often the lower id counts as the more frequent.

    Returns:
        For each of ``head``, ``medium`` and ``tail`` its label ids, ascending. A group may be empty if labels are few.

    Examples:
        >>> {name: ids.tolist() for name, ids in frequency_groups([5, 100, 40]).items()}
        {'head': [1], 'medium': [2], 'tail': [0]}
    """
    counts = as_array(train_labels)
    if counts.ndim == 2:
        counts = np.count_nonzero(as_multi_hot(counts, "train_labels"), axis=0)
    elif counts.ndim != 1:
        raise ValueError(
            f"`train_labels` must be multi-hot (rows, labels) or counts (labels,), but has shape {counts.shape}."
        )
    if len(shares) != 2 or min(shares) < 0 or sum(shares) > 1 + 1e-9:
        raise ValueError(
            f"`shares` must be two shares, of head and of medium, that sum to at most 1, but is {shares!r}."
        )
    order = np.argsort(-counts, kind="stable")
    cuts = np.rint(np.cumsum(shares) * len(counts)).astype(int)
    parts = np.split(order, cuts)
    return MappingProxyType({name: np.sort(ids) for name, ids in zip(GROUP_NAMES, parts, strict=True)})


def frequency_breakdown(
    labels: ArrayLike, predictions: ArrayLike, train_labels: ArrayLike, shares: Sequence[float] = (1 / 3, 1 / 3)
) -> dict[str, float]:
    """Macro-F1 of the head, medium and tail labels; a group with no label is left out.

    Args:
        labels: Multi-hot truth (rows, labels).
        predictions: Multi-hot predictions, same shape.
        train_labels: See `frequency_groups`.
        shares: See `frequency_groups`.

    Examples:
        >>> frequency_breakdown([[1, 0, 0], [1, 1, 1]], [[1, 0, 0], [1, 1, 0]], train_labels=[90, 30, 2])
        {'head_f1': 1.0, 'medium_f1': 1.0, 'tail_f1': 0.0}
    """
    each = LabelCounts.of(labels, predictions).f1()
    groups = frequency_groups(train_labels, shares)
    known = sum(len(ids) for ids in groups.values())
    if known != len(each):
        raise ValueError(f"`train_labels` speaks of {known} labels, but `labels` has {len(each)} columns.")
    return {f"{name}_f1": float(each[ids].mean()) for name, ids in groups.items() if len(ids)}
