"""Label names as a prior: what an encoder makes of "joy" is where it will put joyful texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

TEMPLATES = ("{}", "This text is about {}.", "This text expresses {}.")
"""Sentences that a name is put into; the training rows choose."""


def readable(name: str) -> str:
    """A label's name as a person would write it in a sentence.

    Examples:
        >>> readable("comp.sys.ibm_pc"), readable("MachineLearning"), readable("cs.LG"), readable("F1-score")
        ('comp sys ibm pc', 'machine learning', 'cs LG', 'F1 score')
    """
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", re.sub(r"[\W_]+", " ", name)).strip()
    words = [word if word.isupper() or any(map(str.isdigit, word)) else word.lower() for word in spaced.split()]
    return " ".join(words) or name


def check_templates(templates: Sequence[str]) -> None:
    """Raise unless each template has one place for a name."""
    for template in templates:
        if template.count("{}") != 1:
            raise ValueError(f"A label template must have one {{}} where the label's name goes; got {template!r}.")


def name_priors(
    label_names: Sequence[str], encode: Callable[[list[str]], Tensor], templates: Sequence[str] = TEMPLATES
) -> dict[str, Tensor]:
    """Priors for `fit_best_heads`: the encoded names of all labels, for each template.

    `encode` gives the features (rows, size) of texts, as the heads will see them.

    Examples:
        >>> lengths = lambda texts: torch.tensor([[float(len(text))] for text in texts])
        >>> name_priors(["joy", "deep_sorrow"], lengths, templates=["It is {}."])["It is {}."].tolist()
        [[10.0], [18.0]]
    """
    check_templates(templates)
    names = [readable(name) for name in label_names]
    encoded = encode([template.replace("{}", name) for template in templates for name in names])
    return dict(zip(templates, torch.split(encoded, len(names)), strict=True))
