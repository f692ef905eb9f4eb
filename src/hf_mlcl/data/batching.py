"""Batches of texts of like length: less padding, the same examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch
    from datasets import Dataset
    from transformers.trainer_pt_utils import LengthGroupedSampler


def row_lengths(dataset: Dataset, column: str = "input_ids") -> list[int]:
    """Number of tokens of each row, from the Arrow column itself: 20,000 rows take milliseconds.

    Args:
        dataset: A tokenised split.
        column: Column with lists of tokens.

    Examples:
        >>> from datasets import Dataset
        >>> row_lengths(Dataset.from_dict({"input_ids": [[5, 6, 7], [], [8]]}))
        [3, 0, 1]
    """
    if column not in dataset.column_names:
        raise ValueError(
            f"column={column!r} is not a column of the dataset: it has {', '.join(dataset.column_names)}. Tokenise the "
            f"corpus first: hf_mlcl.data.tokenize(corpus, tokenizer)."
        )
    chunks = dataset.select_columns([column]).with_format("arrow").iter(batch_size=100_000)
    lengths = [table[column].combine_chunks().value_lengths().to_numpy(zero_copy_only=False) for table in chunks]
    return [int(length) for length in np.concatenate(lengths)] if lengths else []


def length_grouped_sampler(
    dataset: Dataset, batch_size: int, generator: torch.Generator | None = None
) -> LengthGroupedSampler:
    """The sampler behind the Trainer's `train_sampling_strategy="group_by_length"`, without its wait.

    The Trainer drops the column `length` with all others that the model does not take, and then measures the lengths by
    decoding every row; where the column stays, it looks up one length after another in each epoch (20,000 rows: 0.4 s
    and 1.8 s against 0.02 s). Here the sampler gets them all at once.

    Args:
        dataset: A tokenised split.
        batch_size: Examples a batch; times the accumulation steps, when gradients are accumulated.
        generator: Source of chance.

    Examples:
        >>> from datasets import Dataset
        >>> tokens = Dataset.from_dict({"input_ids": [[1] * length for length in (9, 1, 8, 2)]})
        >>> sampler = length_grouped_sampler(tokens, batch_size=2)
        >>> sorted(sampler)
        [0, 1, 2, 3]
    """
    from transformers.trainer_pt_utils import LengthGroupedSampler

    return LengthGroupedSampler(batch_size, lengths=row_lengths(dataset), generator=generator)
