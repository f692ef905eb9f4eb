"""Corpora, and what turns them into batches.

`load_corpus` gives a `DatasetDict` from official files or from nothing; `tokenize` and `image_transform` make inputs of
its rows, `TextCollator` and `ImageCollator` batches of the inputs; `corpus_card` shows what is in it.

Names are imported when they are first used, so that `import hf_mlcl` does not load datasets and matplotlib.
"""

from hf_mlcl._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
