"""From texts to tokens, computed once: the study's cleaning, tokenised corpora, batches of texts of like length."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from functools import partial
from typing import Any, TypeVar

import pyarrow.compute as pc
import torch
from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict
from datasets.fingerprint import Hasher
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase, Prepend, Replace, Sequence, Strip
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import WordLevelTrainer
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.trainer_pt_utils import LengthGroupedSampler

from hf_mlcl.data.errors import full_disk_named

AnyDataset = TypeVar("AnyDataset", Dataset, DatasetDict, IterableDataset, IterableDatasetDict)

_DROPPED = re.compile(r"[^A-Za-z0-9(),!?'`.]")
_SPACES = re.compile(r"\s{2,}")
_RULES = 1
"""Raise it when `_encode` changes: it is part of the key of tokenised caches."""


def clean_text(text: str) -> str:
    """The study's cleaning: keep letters, digits and ``(),!?'`.``; the rest becomes spaces; lower-case.

    Examples:
        >>> clean_text("Naïve  Bayes: 90% <accurate>, isn't it?")
        "na ve bayes 90 accurate , isn't it?"
    """
    return _SPACES.sub(" ", _DROPPED.sub(" ", text)).strip().lower()


def tokenize(
    corpus: AnyDataset,
    tokenizer: Any,
    max_length: int = 220,
    *,
    clean: bool = False,
    num_proc: int | None = None,
    text_column: str = "text",
) -> AnyDataset:
    """Replace the texts of a `Dataset` or `DatasetDict` by tokens, once: the next call opens the cache.

    Streams (``load_corpus(..., streaming=True)``) are tokenised as they are read.

    `datasets` finds a cache by hashing the function, and with it the tokenizer; but a fast tokenizer changes with its
    first use (it remembers how it truncated), so that the cache is missed. Here the key is made of what matters.

    The study keeps 220 tokens; with `clean`, `clean_text` comes first. The tokenizer remembers `max_length` as its
    ``model_max_length``: saved with the model, it cuts texts where training did. The column `length` is the one that
    the Trainer's `train_sampling_strategy="group_by_length"` looks for.
    """
    tokenizer.model_max_length = max_length
    if isinstance(corpus, DatasetDict | IterableDatasetDict):
        options: Any = {"clean": clean, "num_proc": num_proc, "text_column": text_column}
        splits = {split: tokenize(rows, tokenizer, max_length, **options) for split, rows in corpus.items()}
        return type(corpus)(splits)
    if text_column not in (corpus.column_names or [text_column]):  # a stream may not know its columns
        columns = ", ".join(corpus.column_names)
        raise ValueError(f"text_column={text_column!r} is not a column of the corpus: it has {columns}.")
    encode = partial(_encode, tokenizer=tokenizer, max_length=max_length, clean=clean)
    how: Any = {"input_columns": [text_column], "batched": True, "remove_columns": [text_column]}
    if isinstance(corpus, IterableDataset):
        if num_proc is not None:
            raise ValueError("num_proc is not for streams, which are tokenised as they are read. Leave it out.")
        return corpus.map(encode, **how)
    key = Hasher.hash([corpus._fingerprint, tokenizer_key(tokenizer), max_length, clean, text_column, _RULES])
    with full_disk_named(os.path.dirname(corpus.cache_files[0]["filename"]) if corpus.cache_files else ""):
        return corpus.map(encode, **how, num_proc=num_proc, new_fingerprint=key, desc="Tokenising")


def load_tokenizer(
    name: str | os.PathLike[str], *, prompt: str | None = None, trust_remote_code: bool = False, **kwargs: Any
) -> Any:
    """The tokenizer of a model, ready for batches of texts.

    Decoders often have no token to pad with: the one that ends a text takes its place, and no embedding is added. What
    texts begin with, where the model wants that, is built in (`with_prompt`).

    Args:
        name: Folder or Hub id of the model.
        prompt: A text such as ``"query: "``, or the name of one of the model's own prompts; ``""`` for none. If not
            given, the default one of its sentence-transformers files, or the one that they call classification.
        trust_remote_code: Whether Python files that come with it may run.
        **kwargs: What ``AutoTokenizer.from_pretrained`` takes.

    Examples:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> _ = word_tokenizer(["query : a cat"]).save_pretrained(folder)
        >>> load_tokenizer(folder, prompt="query: ").tokenize("a cat")
        ['query', ':', 'a', 'cat']
    """
    from hf_mlcl.models.loading import load, place
    from hf_mlcl.models.stated import stated_prompts

    tokenizer = load(AutoTokenizer, name, trust_remote_code=trust_remote_code, **kwargs)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    if tokenizer.pad_token is None:
        raise ValueError(f"The tokenizer of {os.fspath(name)} has no token to pad with: set its pad_token and save it.")
    prompts, usual = stated_prompts(name, **place(kwargs))
    chosen = usual if prompt is None else prompts.get(prompt, prompt)
    return with_prompt(tokenizer, chosen) if chosen else tokenizer


def with_prompt(tokenizer: Any, prompt: str) -> PreTrainedTokenizerFast:
    """The same fast tokenizer with a prompt built in: every text begins with it, wherever a saved model is used.

    Examples:
        >>> with_prompt(word_tokenizer(["query : a cat"]), "query: ").tokenize("a cat")
        ['query', ':', 'a', 'cat']
    """
    if special := [token for token in tokenizer.all_special_tokens if token in prompt]:
        raise ValueError(f"prompt={prompt!r} holds the special token {special[0]!r}: give it without, or '' for none.")
    return _with_steps(tokenizer, [Prepend(prompt)], f"The prompt {prompt!r}", "Put it before the texts.")


def with_cleaning(tokenizer: Any) -> PreTrainedTokenizerFast:
    """The same fast tokenizer with `clean_text` built in, so that a saved model cleans by itself wherever it is used.

    Examples:
        >>> tokenizer = with_cleaning(word_tokenizer(["naive bayes , isn ' t it ?"]))
        >>> tokenizer.tokenize("NAIVE <Bayes>")
        ['naive', 'bayes']
    """
    steps = [Replace(Regex(_DROPPED.pattern), " "), Replace(Regex(_SPACES.pattern), " "), Strip(), Lowercase()]
    return _with_steps(tokenizer, steps, "Cleaning", "Clean the texts.")


def _with_steps(tokenizer: Any, steps: list[Any], what: str, instead: str) -> PreTrainedTokenizerFast:
    """The same fast tokenizer with steps before its own."""
    if not tokenizer.is_fast:
        raise ValueError(f"{what} needs a fast tokenizer; {type(tokenizer).__name__} is not one. {instead}")
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.normalizer = Sequence([*steps, *([backend.normalizer] if backend.normalizer is not None else [])])
    # The general class keeps the steps when it is saved and loaded; those of single models build their own again.
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=tokenizer.model_max_length,
        model_input_names=tokenizer.model_input_names,
        padding_side=tokenizer.padding_side,
        truncation_side=tokenizer.truncation_side,
        **tokenizer.special_tokens_map,
    )


def word_tokenizer(texts: Iterable[str], max_words: int = 20_000) -> PreTrainedTokenizerFast:
    """A fast tokenizer of the most frequent words of some texts: for encoders that are trained from nothing, offline.

    Examples:
        >>> tokenizer = word_tokenizer(["a cat sat", "a dog sat"])
        >>> tokenizer.decode(tokenizer("a cat ran")["input_ids"])
        '[CLS] a cat [UNK]'
    """
    special = ["[PAD]", "[UNK]", "[CLS]"]
    tokenizer = Tokenizer(WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.train_from_iterator(
        texts, WordLevelTrainer(vocab_size=max_words, special_tokens=special, show_progress=False)
    )
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 2)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", model_max_length=512
    )


def tokenizer_key(tokenizer: Any) -> str:
    """A digest of everything in a tokenizer that decides about tokens, and nothing that its use changes."""
    state = json.loads(tokenizer.backend_tokenizer.to_str()) if tokenizer.is_fast else tokenizer.get_vocab()
    state = {name: value for name, value in state.items() if name not in ("truncation", "padding")}
    sides = [tokenizer.truncation_side, tokenizer.model_input_names]
    return str(Hasher.hash([type(tokenizer).__name__, json.dumps(state, sort_keys=True), sides]))


def _encode(texts: list[str], tokenizer: Any, max_length: int, clean: bool) -> dict[str, Any]:
    texts = [clean_text(text) for text in texts] if clean else texts
    encoded = dict(tokenizer(texts, truncation=True, max_length=max_length))
    return {**encoded, "length": [len(ids) for ids in encoded["input_ids"]]}


def row_lengths(dataset: Dataset, column: str = "input_ids") -> list[int]:
    """Number of tokens of each row, from the Arrow column itself: 20,000 rows take milliseconds.

    Examples:
        >>> row_lengths(Dataset.from_dict({"input_ids": [[5, 6, 7], [], [8]]}))
        [3, 0, 1]
    """
    if column not in dataset.column_names:
        raise ValueError(
            f"column={column!r} is not a column of the dataset: it has {', '.join(dataset.column_names)}. Tokenise the "
            f"corpus first: hf_mlcl.data.tokenize(corpus, tokenizer)."
        )
    tables = dataset.select_columns([column]).with_format("arrow").iter(batch_size=100_000)
    return [length for table in tables for length in pc.list_value_length(table[column]).to_pylist()]


def length_grouped_sampler(
    dataset: Dataset, batch_size: int, generator: torch.Generator | None = None
) -> LengthGroupedSampler:
    """The sampler behind the Trainer's `train_sampling_strategy="group_by_length"`, without its wait.

    The Trainer measures the lengths by decoding every row; here the sampler gets them all at once (20,000 rows: 1.8 s
    against 0.02 s). Where gradients are accumulated, `batch_size` is multiplied by the accumulation steps.

    Examples:
        >>> tokens = Dataset.from_dict({"input_ids": [[1] * length for length in (9, 1, 8, 2)]})
        >>> sorted(length_grouped_sampler(tokens, batch_size=2))
        [0, 1, 2, 3]
    """
    return LengthGroupedSampler(batch_size, lengths=row_lengths(dataset), generator=generator)
