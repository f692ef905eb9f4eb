"""A look into the space of features: each function returns data, `hf_mlcl.evaluation.figures` draws it.

What lies near a prototype is found by `hf_mlcl.inference.ExampleIndex`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hf_mlcl.metrics import alignment, f1, uniformity
from hf_mlcl.metrics._arrays import ArrayLike, as_multi_hot, unit_rows

Array = npt.NDArray[np.float64]


def space_quality(features: ArrayLike, labels: ArrayLike, max_rows: int | None = None) -> dict[str, float]:
    """Alignment and uniformity (on at most `max_rows` rows); lower is better, and one is easily traded for the other.

    Examples:
        >>> space_quality([[1.0, 0.0], [0.0, 1.0]], [[1, 0], [1, 0]])
        {'alignment': 2.0, 'uniformity': -4.0}
    """
    return {"alignment": alignment(features, labels), "uniformity": uniformity(features, max_rows=max_rows)}


def label_centroids(features: ArrayLike, labels: ArrayLike) -> Array:
    """Mean normalised feature of the rows that carry each label: prototypes of a model that has none.

    It has shape (labels, size); a label that no row carries is zero.

    Examples:
        >>> label_centroids([[2.0, 0.0], [0.0, 1.0]], [[1, 0], [1, 0]]).tolist()
        [[0.5, 0.5], [0.0, 0.0]]
    """
    truth = as_multi_hot(labels, "labels").astype(np.float64)
    return np.asarray(truth.T @ _unit(features, "features") / np.maximum(truth.sum(0), 1)[:, np.newaxis])


def prototype_similarities(prototypes: ArrayLike) -> Array:
    """Cosine similarity of every two prototypes (or centroids), shape (labels, labels).

    Examples:
        >>> prototype_similarities([[1.0, 0.0], [0.0, 3.0]]).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    x = _unit(prototypes, "prototypes")
    return np.asarray(x @ x.T)


def most_similar_labels(prototypes: ArrayLike, label_names: Sequence[str], k: int = 10) -> list[tuple[str, str, float]]:
    """The `k` pairs of labels whose prototypes are most similar, best first.

    Examples:
        >>> most_similar_labels([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], ["joy", "love", "anger"], k=1)
        [('joy', 'love', 1.0)]
    """
    similarity = prototype_similarities(prototypes)
    _check_names(label_names, len(similarity))
    pairs = np.transpose(np.triu_indices(len(similarity), k=1))
    order = np.argsort(-similarity[tuple(pairs.T)], kind="stable")[:k]
    return [(label_names[i], label_names[j], float(similarity[i, j])) for i, j in pairs[order]]


def project_2d(features: ArrayLike, method: Literal["pca", "tsne", "umap"] = "pca", seed: int = 0) -> Array:
    """A map of the normalised features in the plane, shape (rows, 2).

    ``"pca"`` keeps distances as well as a plane can; ``"tsne"`` and ``"umap"`` keep neighbourhoods, and depend on the
    seed. UMAP needs `pip install hf-mlcl[umap]`.

    Examples:
        >>> project_2d(np.eye(5), method="pca").shape
        (5, 2)
    """
    x = _unit(features, "features")
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
    """F1 of each label beside its frequency in training; every field has one entry per label."""

    label_names: list[str]
    frequency: npt.NDArray[np.int64]
    f1: Array


def f1_by_frequency(
    labels: ArrayLike, predictions: ArrayLike, train_labels: ArrayLike, label_names: Sequence[str] | None = None
) -> FrequencyCurve:
    """F1 of each label against how often it occurs in training; all arrays are multi-hot (rows, labels).

    Examples:
        >>> f1_by_frequency([[1, 0]], [[1, 1]], [[1, 1], [1, 0]], ["a", "b"]).frequency.tolist()
        [2, 1]
    """
    each = f1(labels, predictions)
    frequency = np.count_nonzero(as_multi_hot(train_labels, "train_labels"), axis=0)
    if len(frequency) != len(each):
        raise ValueError(f"`train_labels` has {len(frequency)} labels, but `labels` has {len(each)}.")
    names = list(map(str, range(len(each)))) if label_names is None else list(label_names)
    _check_names(names, len(each))
    return FrequencyCurve(names, frequency, each)


def _unit(values: ArrayLike, name: str) -> Array:
    return np.asarray(unit_rows(values, name).double().cpu().numpy())


def _check_names(label_names: Sequence[str], count: int) -> None:
    if len(label_names) != count:
        raise ValueError(f"`label_names` has {len(label_names)} names, but there are {count} labels.")
