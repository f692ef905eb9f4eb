"""Corpora, and what turns them into batches.

`load_corpus` gives a `DatasetDict` from official files or from nothing; `tokenize` and `image_transform` make inputs of
its rows, `TextCollator` and `ImageCollator` batches of the inputs; `corpus_card` shows what is in it.

Names are imported when they are first used, so that `import hf_mlcl` does not load datasets and matplotlib.
"""

from typing import TYPE_CHECKING

from hf_mlcl._lazy import attach

if TYPE_CHECKING:
    from hf_mlcl.data.card import CorpusCard as CorpusCard
    from hf_mlcl.data.card import corpus_card as corpus_card
    from hf_mlcl.data.collators import ImageCollator as ImageCollator
    from hf_mlcl.data.collators import TextCollator as TextCollator
    from hf_mlcl.data.collators import TextImageCollator as TextImageCollator
    from hf_mlcl.data.errors import CorpusDownloadError as CorpusDownloadError
    from hf_mlcl.data.errors import CorpusError as CorpusError
    from hf_mlcl.data.errors import CorpusFileError as CorpusFileError
    from hf_mlcl.data.errors import CorpusFormatError as CorpusFormatError
    from hf_mlcl.data.errors import CorpusWarning as CorpusWarning
    from hf_mlcl.data.images import image_processor as image_processor
    from hf_mlcl.data.images import image_transform as image_transform
    from hf_mlcl.data.labels import encode_labels as encode_labels
    from hf_mlcl.data.own import OwnData as OwnData
    from hf_mlcl.data.own import read_own_data as read_own_data
    from hf_mlcl.data.registry import corpus_builder as corpus_builder
    from hf_mlcl.data.registry import corpus_facts as corpus_facts
    from hf_mlcl.data.registry import list_corpora as list_corpora
    from hf_mlcl.data.registry import load_corpus as load_corpus
    from hf_mlcl.data.splits import stratified_parts as stratified_parts
    from hf_mlcl.data.text import clean_text as clean_text
    from hf_mlcl.data.text import length_grouped_sampler as length_grouped_sampler
    from hf_mlcl.data.text import load_tokenizer as load_tokenizer
    from hf_mlcl.data.text import tokenize as tokenize
    from hf_mlcl.data.text import with_cleaning as with_cleaning
    from hf_mlcl.data.text import with_prompt as with_prompt
    from hf_mlcl.data.text import word_tokenizer as word_tokenizer

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "card": ["CorpusCard", "corpus_card"],
        "collators": ["ImageCollator", "TextCollator", "TextImageCollator"],
        "errors": ["CorpusDownloadError", "CorpusError", "CorpusFileError", "CorpusFormatError", "CorpusWarning"],
        "images": ["image_processor", "image_transform"],
        "labels": ["encode_labels"],
        "own": ["OwnData", "read_own_data"],
        "registry": ["corpus_builder", "corpus_facts", "list_corpora", "load_corpus"],
        "splits": ["stratified_parts"],
        "text": [
            *("clean_text", "length_grouped_sampler", "load_tokenizer", "tokenize", "with_cleaning", "with_prompt"),
            "word_tokenizer",
        ],
    },
)
