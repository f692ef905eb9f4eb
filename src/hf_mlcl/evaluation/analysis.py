"""A look into the space of features: each function returns data, `hf_mlcl.evaluation.figures` draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hf_mlcl.metrics import LabelCounts, alignment, uniformity
from hf_mlcl.metrics._arrays import ArrayLike, as_array, as_multi_hot

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SpaceQuality:
    """Alignment and uniformity of a feature space; lower is better for both, and one is easily traded for the other."""

    alignment: float
    uniformity: float


def space_quality(features: ArrayLike, labels: ArrayLike, max_rows: int | None = None) -> SpaceQuality:
    """Alignment and uniformity together.

    Args:
        features: Features (rows, size).
        labels: Multi-hot labels (rows, labels).
        max_rows: Measure uniformity on at most this many rows.

    Examples:
        >>> space_quality([[1.0, 0.0], [0.0, 1.0]], [[1, 0], [1, 0]])
        SpaceQuality(alignment=2.0, uniformity=-4.0)
    """
    return SpaceQuality(alignment(features, labels), uniformity(features, max_rows=max_rows))


def label_centroids(features: ArrayLike, labels: ArrayLike) -> Array:
    """Mean normalised feature of the rows that carry each label: prototypes of a model that has none.

    Returns:
        Shape (labels, size); a label that no row carries is zero.

    Examples:
        >>> label_centroids([[2.0, 0.0], [0.0, 1.0]], [[1, 0], [1, 0]]).tolist()
        [[0.5, 0.5], [0.0, 0.0]]
    """
    truth = as_multi_hot(labels, "labels").astype(np.float64)
    return np.asarray(truth.T @ _normalised(features, "features") / np.maximum(truth.sum(0), 1)[:, np.newaxis])


def prototype_similarities(prototypes: ArrayLike) -> Array:
    """Cosine similarity of every two prototypes (or centroids), shape (labels, labels).

    Examples:
        >>> prototype_similarities([[1.0, 0.0], [0.0, 3.0]]).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    x = _normalised(prototypes, "prototypes")
    return np.asarray(x @ x.T)


def most_similar_labels(prototypes: ArrayLike, label_names: Sequence[str], k: int = 10) -> list[tuple[str, str, float]]:
    """The `k` pairs of labels whose prototypes are most similar, best first.

    Examples:
        >>> most_similar_labels([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], ["joy", "love", "anger"], k=1)
        [('joy', 'love', 1.0)]
    """
    similarity = prototype_similarities(prototypes)
    _named(label_names, len(similarity))
    first, second = np.triu_indices(len(similarity), k=1)
    order = np.argsort(-similarity[first, second], kind="stable")[:k]
    return [(label_names[first[i]], label_names[second[i]], float(similarity[first[i], second[i]])) for i in order]


@dataclass(frozen=True)
class Neighbours:
    """The rows nearest to each prototype: `rows` and their cosine `similarity`, both (labels, k), nearest first."""

    rows: npt.NDArray[np.int64]
    similarity: Array


def nearest_neighbours(prototypes: ArrayLike, features: ArrayLike, k: int = 10) -> Neighbours:
    """The `k` rows of `features` that are most similar to each prototype; among equals the earlier row.

    Examples:
        >>> nearest_neighbours([[1.0, 0.0]], [[0.0, 1.0], [1.0, 1.0], [2.0, 0.0]], k=2).rows.tolist()
        [[2, 1]]
    """
    x, c = _normalised(features, "features"), _normalised(prototypes, "prototypes")
    if not 1 <= k <= len(x):
        raise ValueError(f"`k` must lie between 1 and the number of rows, {len(x)}, but is {k}.")
    if x.shape[1] != c.shape[1]:
        raise ValueError(
            f"`prototypes` has size {c.shape[1]}, but `features` has {x.shape[1]}. Prototypes live in the "
            "projected space: compare them with embeddings, or features with `label_centroids`."
        )
    similarity = c @ x.T
    rows = np.argsort(-similarity, axis=1, kind="stable")[:, :k]
    return Neighbours(rows, np.take_along_axis(similarity, rows, axis=1))


def project_2d(features: ArrayLike, method: Literal["pca", "tsne", "umap"] = "pca", seed: int = 0) -> Array:
    """A map of the normalised features in the plane, shape (rows, 2).

    Args:
        features: Features (rows, size).
        method: ``"pca"`` keeps distances as well as a plane can; ``"tsne"`` and ``"umap"`` keep neighbourhoods. UMAP
            needs `pip install hf-mlcl[umap]`.
        seed: t-SNE and UMAP depend on it.

    Examples:
        >>> project_2d(np.eye(5), method="pca").shape
        (5, 2)
    """
    x = _normalised(features, "features")
    reducer: Any
    if method == "pca":
        from sklearn.decomposition import PCA

        reducer = PCA(n_components=2, random_state=seed)
    elif method == "tsne":
        from sklearn.manifold import TSNE

        reducer = TSNE(n_components=2, init="pca", perplexity=min(30, (len(x) - 1) / 3), random_state=seed)
    elif method == "umap":
        try:
            from umap import UMAP
        except ImportError as error:
            raise ImportError("method='umap' needs UMAP: pip install 'hf-mlcl[umap]', or use method='tsne'.") from error
        reducer = UMAP(n_components=2, random_state=seed)
    else:
        raise ValueError(f"`method` must be 'pca', 'tsne' or 'umap', but is {method!r}.")
    return np.asarray(reducer.fit_transform(x), dtype=np.float64)


@dataclass(frozen=True)
class FrequencyCurve:
    """F1 of each label beside its frequency in training; every field has one entry a label."""

    label_names: list[str]
    frequency: npt.NDArray[np.int64]
    f1: Array


def f1_by_frequency(
    labels: ArrayLike, predictions: ArrayLike, train_labels: ArrayLike, label_names: Sequence[str] | None = None
) -> FrequencyCurve:
    """F1 of each label against how often it occurs in training.

    Args:
        labels: Multi-hot truth (rows, labels).
        predictions: Multi-hot predictions, same shape.
        train_labels: Multi-hot training labels (rows, labels).
        label_names: One a label; numbers if not given.

    Examples:
        >>> f1_by_frequency([[1, 0]], [[1, 1]], [[1, 1], [1, 0]], ["a", "b"]).frequency.tolist()
        [2, 1]
    """
    f1 = LabelCounts.of(labels, predictions).f1()
    frequency = np.count_nonzero(as_multi_hot(train_labels, "train_labels"), axis=0)
    if len(frequency) != len(f1):
        raise ValueError(f"`train_labels` has {len(frequency)} labels, but `labels` has {len(f1)}.")
    names = [str(i) for i in range(len(f1))] if label_names is None else list(label_names)
    _named(names, len(f1))
    return FrequencyCurve(names, frequency, f1)


@dataclass(frozen=True)
class RunComparison:
    """F1 of two runs, label by label.

    Attributes:
        first: The one run.
        second: The other.
        gain: F1 of the second minus F1 of the first.
    """

    first: FrequencyCurve
    second: FrequencyCurve
    gain: Array


def compare_runs(first: FrequencyCurve, second: FrequencyCurve) -> RunComparison:
    """Set two runs on the same labels against each other.

    Examples:
        >>> train = [[1, 1], [1, 0]]
        >>> one = f1_by_frequency([[1, 1]], [[1, 0]], train)
        >>> two = f1_by_frequency([[1, 1]], [[1, 1]], train)
        >>> compare_runs(one, two).gain.tolist()
        [0.0, 1.0]
    """
    if first.label_names != second.label_names:
        raise ValueError("the two runs must have the same labels in the same order.")
    return RunComparison(first, second, second.f1 - first.f1)


def _normalised(values: ArrayLike, name: str) -> Array:
    x = as_array(values).astype(np.float64)
    if x.ndim != 2:
        raise ValueError(f"`{name}` must be a matrix with a row for each vector, but has shape {x.shape}.")
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray(x / np.where(norm == 0, 1, norm))


def _named(label_names: Sequence[str], count: int) -> None:
    if len(label_names) != count:
        raise ValueError(f"`label_names` has {len(label_names)} names, but there are {count} labels.")
