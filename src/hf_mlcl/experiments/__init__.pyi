from .arguments import ExperimentArguments as ExperimentArguments
from .parsing import build_experiment as build_experiment, parse_experiment as parse_experiment
from .own import own_recipe as own_recipe, train_classifier as train_classifier
from .recipe import Recipe as Recipe, study_recipe as study_recipe
from .results import ExperimentResult as ExperimentResult, print_summary as print_summary
from .running import run_experiment as run_experiment, run_recipe as run_recipe
