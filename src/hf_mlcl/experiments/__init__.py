"""Whole experiments: a corpus, a backbone and a loss in; a trained encoder, a classifier and scores out.

The recipes, the command line and the study share these steps: a `Recipe` states the settings of a corpus,
`parse_experiment` lets a file and the command line change them, `run_experiment` trains, evaluates and saves.

Names are imported when they are first used, so that asking for `--help` does not load torch.
"""

from typing import TYPE_CHECKING

from hf_mlcl._lazy import attach

if TYPE_CHECKING:
    from hf_mlcl.experiments.arguments import ExperimentArguments as ExperimentArguments
    from hf_mlcl.experiments.parsing import build_experiment as build_experiment
    from hf_mlcl.experiments.parsing import parse_experiment as parse_experiment
    from hf_mlcl.experiments.recipe import Recipe as Recipe
    from hf_mlcl.experiments.recipe import own_recipe as own_recipe
    from hf_mlcl.experiments.recipe import study_recipe as study_recipe
    from hf_mlcl.experiments.results import ExperimentResult as ExperimentResult
    from hf_mlcl.experiments.results import print_summary as print_summary
    from hf_mlcl.experiments.running import run_experiment as run_experiment
    from hf_mlcl.experiments.running import run_recipe as run_recipe

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "arguments": ["ExperimentArguments"],
        "parsing": ["build_experiment", "parse_experiment"],
        "recipe": ["Recipe", "own_recipe", "study_recipe"],
        "results": ["ExperimentResult", "print_summary"],
        "running": ["run_experiment", "run_recipe"],
    },
)
