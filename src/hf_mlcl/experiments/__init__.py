"""Whole experiments: a corpus, a backbone and a loss in; a trained encoder, a classifier and scores out.

The recipes, the command line and the study share these steps: a `Recipe` states the settings of a corpus,
`parse_experiment` lets a file and the command line change them, `run_experiment` trains, evaluates and saves.

Names are imported when they are first used, so that asking for `--help` does not load torch.
"""

from hf_mlcl._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
