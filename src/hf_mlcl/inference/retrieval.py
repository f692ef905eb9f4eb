"""The training examples nearest to a text or an image."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from hf_mlcl.files import whole_file
from hf_mlcl.metrics._arrays import ArrayLike, unit_rows
from hf_mlcl.models.loading import unreadable_weights

TILE_ROWS = 16_384
"""Examples that queries are compared with at a time: memory grows with queries x tile and not with the index."""


class Neighbours(NamedTuple):
    """The examples nearest to each query: `rows` and their cosine `similarity`, both (queries, k), nearest first."""

    rows: npt.NDArray[np.int64]
    similarity: npt.NDArray[np.float64]


class ExampleIndex:
    """An exact index of features: finds the examples whose cosine similarity to a query is highest.

    It answers with row numbers, in the order of the features: ``data["train"][int(row)]`` is the example.

    Args:
        features: Of the examples (rows, size), such as `Encoder.features` or `trainer.extract_features` give them.

    Examples:
        >>> index = ExampleIndex([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
        >>> found = index.search([[0.0, 1.0]], k=2)
        >>> found.rows.tolist(), found.similarity.round(3).tolist()
        ([[1, 2]], [[1.0, 0.707]])
    """

    def __init__(self, features: ArrayLike) -> None:
        self.features = unit_rows(features, "features").float()
        if not len(self.features):
            raise ValueError("features has no rows: an index needs at least one example.")

    def __len__(self) -> int:
        return len(self.features)

    @torch.no_grad()
    def search(self, queries: ArrayLike, k: int = 5) -> Neighbours:
        """The `k` nearest examples of each query (rows, size), nearest first; among equals the earlier row."""
        q = unit_rows(queries, "queries").float()
        if q.shape[1] != self.features.shape[1]:
            raise ValueError(
                f"queries has {q.shape[1]} numbers per row, but the index {self.features.shape[1]}: both must be "
                "features of the same encoder."
            )
        if not 1 <= k <= len(self):
            raise ValueError(f"k must lie between 1 and the number of examples, {len(self)}; got {k}.")
        best, rows = q.new_empty(len(q), 0), torch.empty(len(q), 0, dtype=torch.long)
        for start in range(0, len(self), TILE_ROWS):
            similarity = q @ self.features[start : start + TILE_ROWS].T
            columns = _highest(similarity, min(k, similarity.shape[1]))
            every = torch.cat([best, similarity.gather(1, columns)], dim=1)
            best, order = every.sort(dim=1, descending=True, stable=True)
            best, rows = best[:, :k], torch.cat([rows, columns + start], dim=1).gather(1, order[:, :k])
        return Neighbours(rows.numpy(), best.double().numpy())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to a safetensors file, all of it or nothing."""
        with whole_file(path) as draft:
            save_file({"features": self.features.contiguous()}, draft, {"format": "pt"})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ExampleIndex:
        """Read what `save` has written."""
        if not Path(path).is_file():
            raise ValueError(f"There is no index at {path}: write one with ExampleIndex(features).save(path).")
        try:
            tensors: dict[str, Tensor] = load_file(path)
        except SafetensorError as error:
            raise unreadable_weights(path, error) from error
        if "features" not in tensors:
            raise ValueError(f"{path} is no index: it holds {', '.join(tensors)} and no features.")
        return cls(tensors["features"])


def _highest(values: Tensor, k: int) -> Tensor:
    """Columns of the `k` highest values of each row, ascending; of equal values the earlier ones.

    Where values are equal, topk may take any of them: here it only finds the lowest value that is needed.
    """
    lowest = values.topk(k, dim=1).values[:, -1:]
    above, equal = values > lowest, values == lowest
    still_needed = k - above.sum(dim=1, keepdim=True)
    return (above | (equal & (equal.cumsum(dim=1) <= still_needed))).nonzero()[:, 1].view(len(values), k)
