"""Packages whose names are imported when they are first used (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def attach(
    package: str, names: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package, from the public names of each of its modules.

    Type checkers read the same names under ``if TYPE_CHECKING``; a test compares the two.
    """
    home = {name: module for module, defined in names.items() for name in defined}

    def get(name: str) -> Any:
        if name not in home and name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{home.get(name, name)}")
        value = getattr(module, name) if name in home else module
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted([*home, *names]), sorted(home)
