"""hf-mlcl: multi-label contrastive learning for the Hugging Face ecosystem.

Everything is imported when it is first used; transformers' Auto classes know the models all the same.
"""

from hf_mlcl._auto import make_models_known
from hf_mlcl._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
make_models_known()
