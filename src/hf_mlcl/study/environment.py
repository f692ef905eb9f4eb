"""Environment variables for a while."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables, or unset those that are None; afterwards all is as before.

    Examples:
        >>> with environment({"HF_MLCL_EXAMPLE": "1"}):
        ...     os.environ["HF_MLCL_EXAMPLE"]
        '1'
        >>> "HF_MLCL_EXAMPLE" in os.environ
        False
    """
    before = {name: os.environ.get(name) for name in changes}
    _set(changes)
    try:
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
