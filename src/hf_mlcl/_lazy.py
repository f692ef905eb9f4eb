"""Packages whose names are imported when they are first used (PEP 562)."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package, from the imports in the stub beside its file.

    Type checkers read the stub too, so that every name stands once. The modules that it names are attributes as well,
    but not public names, which is why this is not left to the library `lazy_loader`.
    """
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    home = {alias.name: node.module for node in imports if node.module for alias in node.names}
    modules = {*home.values(), *(alias.name for node in imports if not node.module for alias in node.names)}

    def get(name: str) -> Any:
        if name not in home and name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{home.get(name, name)}")
        value = getattr(module, name) if name in home else module
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted([*home, *map(str, modules)]), sorted(home)
