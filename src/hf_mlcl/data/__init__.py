"""Corpora, and what turns them into batches.

`load_corpus` gives a `DatasetDict` from official files or from nothing; `tokenize` and `image_transform` make inputs of
its rows, `TextCollator` and `ImageCollator` batches of the inputs; `corpus_card` shows what is in it.

Names are imported when they are first used, so that `import hf_mlcl` does not load datasets and matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hf_mlcl.data.card import CorpusCard, corpus_card
    from hf_mlcl.data.collators import ImageCollator, TextCollator
    from hf_mlcl.data.errors import CorpusDownloadError, CorpusError, CorpusFileError, CorpusFormatError, CorpusWarning
    from hf_mlcl.data.images import image_processor, image_transform
    from hf_mlcl.data.labels import encode_labels
    from hf_mlcl.data.own import OwnData, read_own_data
    from hf_mlcl.data.registry import corpus_builder, corpus_facts, list_corpora, load_corpus
    from hf_mlcl.data.splits import stratified_parts
    from hf_mlcl.data.text import clean_text, length_grouped_sampler, tokenize, with_cleaning, word_tokenizer

_NAMES = {
    "card": "CorpusCard corpus_card",
    "collators": "ImageCollator TextCollator",
    "errors": "CorpusDownloadError CorpusError CorpusFileError CorpusFormatError CorpusWarning",
    "images": "image_processor image_transform",
    "labels": "encode_labels",
    "own": "OwnData read_own_data",
    "registry": "corpus_builder corpus_facts list_corpora load_corpus",
    "splits": "stratified_parts",
    "text": "clean_text length_grouped_sampler tokenize with_cleaning word_tokenizer",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "CorpusCard",
    "CorpusDownloadError",
    "CorpusError",
    "CorpusFileError",
    "CorpusFormatError",
    "CorpusWarning",
    "ImageCollator",
    "OwnData",
    "TextCollator",
    "clean_text",
    "corpus_builder",
    "corpus_card",
    "corpus_facts",
    "encode_labels",
    "image_processor",
    "image_transform",
    "length_grouped_sampler",
    "list_corpora",
    "load_corpus",
    "read_own_data",
    "stratified_parts",
    "tokenize",
    "with_cleaning",
    "word_tokenizer",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"hf_mlcl.data.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
