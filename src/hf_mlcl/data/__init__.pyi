from .card import CorpusCard as CorpusCard, corpus_card as corpus_card
from .collators import (
    ImageCollator as ImageCollator,
    TextCollator as TextCollator,
    TextImageCollator as TextImageCollator,
)
from .errors import (
    CorpusDownloadError as CorpusDownloadError,
    CorpusError as CorpusError,
    CorpusFileError as CorpusFileError,
    CorpusFormatError as CorpusFormatError,
    CorpusWarning as CorpusWarning,
)
from .images import image_processor as image_processor, image_transform as image_transform
from .labels import encode_labels as encode_labels
from .own import OwnData as OwnData, read_own_data as read_own_data
from .registry import (
    corpus_builder as corpus_builder,
    corpus_facts as corpus_facts,
    list_corpora as list_corpora,
    load_corpus as load_corpus,
)
from .splits import stratified_parts as stratified_parts
from .text import (
    clean_text as clean_text,
    length_grouped_sampler as length_grouped_sampler,
    load_tokenizer as load_tokenizer,
    tokenize as tokenize,
    with_cleaning as with_cleaning,
    with_prompt as with_prompt,
    word_tokenizer as word_tokenizer,
)
