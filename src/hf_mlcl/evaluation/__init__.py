"""Evaluation on plain arrays: features -> linear heads -> thresholds -> metrics, and a look into the space.

`linear` holds the study's linear evaluation and `best` the heads for users; `thresholds` turns probabilities into
decisions, `feature_cache` keeps features on disk. `analysis` and `gradients` look into the space,
and `figures` draws what they see (it is not imported here, because matplotlib is slow to load).
"""

from hf_mlcl._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
