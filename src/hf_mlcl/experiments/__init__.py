"""Whole experiments: a corpus, a backbone and a loss in; a trained encoder, a classifier and scores out.

The recipes, the command line and the study share these steps: a `Recipe` states the settings of a corpus,
`parse_experiment` lets a file and the command line change them, `run_experiment` trains, evaluates and saves.

Names are imported when they are first used, so that asking for `--help` does not load torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hf_mlcl.experiments.arguments import ExperimentArguments
    from hf_mlcl.experiments.parsing import build_experiment, parse_experiment
    from hf_mlcl.experiments.recipe import Recipe, own_recipe, study_recipe
    from hf_mlcl.experiments.results import ExperimentResult, print_summary
    from hf_mlcl.experiments.running import run_experiment, run_recipe

_HOME = {
    "ExperimentArguments": "arguments",
    "ExperimentResult": "results",
    "Recipe": "recipe",
    "build_experiment": "parsing",
    "own_recipe": "recipe",
    "parse_experiment": "parsing",
    "print_summary": "results",
    "run_experiment": "running",
    "run_recipe": "running",
    "study_recipe": "recipe",
}

__all__ = [
    "ExperimentArguments",
    "ExperimentResult",
    "Recipe",
    "build_experiment",
    "own_recipe",
    "parse_experiment",
    "print_summary",
    "run_experiment",
    "run_recipe",
    "study_recipe",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"hf_mlcl.experiments.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
