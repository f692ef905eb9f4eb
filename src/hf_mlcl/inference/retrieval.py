"""The training examples nearest to a text or an image."""

from __future__ import annotations

import logging
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save_file
from torch import Tensor

from hf_mlcl.files import whole_file
from hf_mlcl.metrics._arrays import ArrayLike, unit_rows
from hf_mlcl.models.loading import read_tensors

logger = logging.getLogger(__name__)

EXACT_ROWS = 100_000
"""Examples up to which every query is compared with each of them."""
INSTALL = "pip install 'hf-mlcl[faiss]'"
GRAPH = "HNSW32,Flat"
"""FAISS's name for a graph of near vectors, which needs no training and holds the vectors as they are."""
SEARCHED = 256
"""Vectors that a search in the graph keeps in sight; more find more of the nearest, and take longer."""
TILE_ROWS = 16_384
"""Examples that queries are compared with at a time: memory grows with queries x tile and not with the index."""


class Neighbours(NamedTuple):
    """The examples nearest to each query: `rows` and their cosine `similarity`, both (queries, k), nearest first."""

    rows: npt.NDArray[np.int64]
    similarity: npt.NDArray[np.float64]


class ExampleIndex:
    """An index of features: finds the examples whose cosine similarity to a query is highest.

    It answers with row numbers, in the order of the features: ``data["train"][int(row)]`` is the example. Up to 100,000
    examples the search is exact. Above, the FAISS index of `datasets` looks through a graph of near examples: it may
    miss one of the nearest, but what it finds has its exact similarity. That needs ``pip install 'hf-mlcl[faiss]'``.

    Args:
        features: Of the examples (rows, size), such as `Encoder.features` or `trainer.extract_features` give them.
        approximate: Whether to search by FAISS; by the number of examples if not given, and exactly, with a warning,
            where FAISS is not installed.

    Examples:
        >>> index = ExampleIndex([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
        >>> found = index.search([[0.0, 1.0]], k=2)
        >>> found.rows.tolist(), found.similarity.round(3).tolist()
        ([[1, 2]], [[1.0, 0.707]])
    """

    def __init__(self, features: ArrayLike, approximate: bool | None = None) -> None:
        self.features = unit_rows(features, "features").float()
        if not len(self.features):
            raise ValueError("features has no rows: an index needs at least one example.")
        if approximate and find_spec("faiss") is None:
            raise ImportError(f"An approximate index needs FAISS: {INSTALL}. Or search exactly: approximate=False.")
        wanted = len(self) > EXACT_ROWS and _has_faiss(len(self)) if approximate is None else approximate
        self._graph: Any = _build_graph(self.features) if wanted else None

    @property
    def is_exact(self) -> bool:
        """Whether every query is compared with each example."""
        return self._graph is None

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
        if self._graph is not None:
            return self._search_graph(q, k)
        best, rows = q.new_empty(len(q), 0), torch.empty(len(q), 0, dtype=torch.long)
        for start in range(0, len(self), TILE_ROWS):
            similarity = q @ self.features[start : start + TILE_ROWS].T
            columns = _highest(similarity, min(k, similarity.shape[1]))
            every = torch.cat([best, similarity.gather(1, columns)], dim=1)
            best, order = every.sort(dim=1, descending=True, stable=True)
            best, rows = best[:, :k], torch.cat([rows, columns + start], dim=1).gather(1, order[:, :k])
        return Neighbours(rows.numpy(), best.double().numpy())

    def _search_graph(self, queries: Tensor, k: int) -> Neighbours:
        """The nearest of those that the graph finds, by their exact similarity."""
        wanted = min(len(self), max(4 * k, 64))
        self._graph.faiss_index.hnsw.efSearch = max(SEARCHED, 2 * wanted)
        found = torch.from_numpy(np.asarray(self._graph.search_batch(queries.numpy(), wanted).total_indices))
        similarity = torch.einsum("qd,qkd->qk", queries, self.features[found.clamp(min=0)])
        similarity = similarity.masked_fill(found < 0, -torch.inf)  # what FAISS says where it has found no more
        order = (-similarity).sort(dim=1, stable=True).indices[:, :k]
        return Neighbours(found.gather(1, order).numpy(), similarity.gather(1, order).double().numpy())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to a safetensors file, all of it or nothing; a graph to ``PATH.faiss`` beside it."""
        with whole_file(path) as draft:
            save_file({"features": self.features.contiguous()}, draft, {"format": "pt"})
        if self._graph is None:
            _graph_file(path).unlink(missing_ok=True)  # that of an earlier index
        else:
            with whole_file(_graph_file(path)) as draft:
                self._graph.save(str(draft))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ExampleIndex:
        """Read what `save` has written; a graph that is there is not built again."""
        if not Path(path).is_file():
            raise ValueError(f"There is no index at {path}: write one with ExampleIndex(features).save(path).")
        tensors, _ = read_tensors(path)
        if "features" not in tensors:
            raise ValueError(f"{path} is no index: it holds {', '.join(tensors)} and no features.")
        file = _graph_file(path)
        index = cls(tensors["features"], approximate=False)
        if file.is_file() and _has_faiss(len(index)):
            from datasets.search import FaissIndex

            index._graph = FaissIndex.load(str(file))
            if index._graph.faiss_index.ntotal != len(index):
                raise ValueError(f"{file} is the graph of other features than those in {path}: save the index again.")
        return index


def _graph_file(path: str | os.PathLike[str]) -> Path:
    return Path(f"{os.fspath(path)}.faiss")


def _has_faiss(rows: int) -> bool:
    if find_spec("faiss") is not None:
        return True
    logger.warning("%s examples are searched one by one, since FAISS is not installed: %s", f"{rows:,}", INSTALL)
    return False


def _build_graph(features: Tensor) -> Any:
    import faiss
    from datasets.search import FaissIndex

    graph = FaissIndex(string_factory=GRAPH, metric_type=faiss.METRIC_INNER_PRODUCT)
    graph.add_vectors(features.contiguous().numpy())
    return graph


def _highest(values: Tensor, k: int) -> Tensor:
    """Columns of the `k` highest values of each row, ascending; of equal values the earlier ones.

    Where values are equal, topk may take any of them: here it only finds the lowest value that is needed.
    """
    lowest = values.topk(k, dim=1).values[:, -1:]
    above, equal = values > lowest, values == lowest
    still_needed = k - above.sum(dim=1, keepdim=True)
    return (above | (equal & (equal.cumsum(dim=1) <= still_needed))).nonzero()[:, 1].view(len(values), k)
