"""transformers' Auto classes and pipelines know our models once `hf_mlcl` is imported, which loads neither of them.

When transformers loads its table of configurations, stand-ins for ours are registered there; whoever uses one imports
our models, and these register themselves. Losses thus need torch alone, and ``hf-mlcl --help`` nothing heavy.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Any

CONFIGURATIONS = "transformers.models.auto.configuration_auto"


class _StandIn(type):
    """Makes classes for which the one of the same name in `hf_mlcl.models` answers."""

    def __getattr__(cls, name: str) -> Any:
        return getattr(getattr(importlib.import_module("hf_mlcl.models"), cls.__name__), name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return getattr(importlib.import_module("hf_mlcl.models"), cls.__name__)(*args, **kwargs)


class MLCLConfig(metaclass=_StandIn):
    """Stands in for the configuration of encoders and classifiers."""


class FeatureBackboneConfig(metaclass=_StandIn):
    """Stands in for the configuration of backbones for precomputed features."""


class _AfterImport(MetaPathFinder):
    """Does something as soon as a module has been loaded."""

    def __init__(self, module: str, then: Callable[[], object]) -> None:
        self.module, self.then, self.looking = module, then, False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self.module or self.looking:
            return None
        self.looking = True
        try:
            spec = find_spec(name)
        finally:
            self.looking = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_tell(module: Any) -> None:
                execute(module)
                if self in sys.meta_path:  # only now: others may ask for the module's place without loading it
                    sys.meta_path.remove(self)
                self.then()

            spec.loader.exec_module = execute_and_tell  # type: ignore[method-assign]
        return spec


def _register_configurations() -> None:
    if "hf_mlcl.models" not in sys.modules:
        table = sys.modules[CONFIGURATIONS].CONFIG_MAPPING
        table.register("mlcl", MLCLConfig)
        table.register("mlcl_features", FeatureBackboneConfig)


def make_models_known() -> None:
    """Register our models and pipelines with transformers, now or as soon as it is imported."""
    actions: dict[str, Callable[[], object]] = {
        CONFIGURATIONS: _register_configurations,
        "transformers.pipelines": lambda: importlib.import_module("hf_mlcl.models"),
    }
    for module, then in actions.items():
        if module in sys.modules:
            then()
        else:
            sys.meta_path.insert(0, _AfterImport(module, then))
