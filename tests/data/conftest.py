"""Fixtures of the data station's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from hf_mlcl.data import load_corpus

REAL_DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(autouse=True, scope="session")
def _no_progress_bars() -> None:
    datasets.disable_progress_bars()


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests that need not see it empty."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def load(cache_dir: Path) -> Callable[..., datasets.DatasetDict]:
    """`load_corpus` with the tests' cache."""

    def call(*args: Any, **kwargs: Any) -> datasets.DatasetDict:
        return load_corpus(*args, **{"cache_dir": cache_dir, **kwargs})

    return call


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with real corpora beside the repository."""
    if not REAL_DATA.is_dir():
        pytest.skip("needs the real corpora in ../shared/data beside the repository")
    return REAL_DATA
