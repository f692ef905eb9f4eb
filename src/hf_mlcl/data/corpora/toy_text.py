"""toy_text: generated documents with what makes multi-label text hard, in seconds and without a download."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hf_mlcl.data.builder import CorpusBuilder, Plan
from hf_mlcl.data.sources import SourceTree
from hf_mlcl.data.splits import Example
from hf_mlcl.data.toy import draw_labels, generated_plan

SEED = 20_241_200
THEMES = (
    ("boats", "tides", "fish", "pirates"),
    ("bread", "spices", "wine", "cheese"),
    ("trees", "birds", "wolves", "moss"),
    ("engines", "wheels", "fuel", "rails"),
    ("stars", "planets", "comets", "rockets"),
    ("songs", "drums", "strings", "choirs"),
    ("paint", "marble", "masks", "poems"),
)
# Themes take turns, so that each has a frequent label and a rare one.
GROUPS = tuple(tuple(range(theme, 4 * len(THEMES), len(THEMES))) for theme in range(len(THEMES)))
LABELS = tuple(THEMES[label % len(THEMES)][label // len(THEMES)] for label in range(4 * len(THEMES)))
COMMON_WORDS, THEME_WORDS, OWN_WORDS, MARKERS = 500, 30, 5, 4


class Vocabulary(NamedTuple):
    """The words of the corpus, by what they hint at: nothing, a theme, a label; and the markers.

    Ordered pairs of a theme's markers stand for its labels.
    """

    common: Sequence[str]
    theme: Sequence[Sequence[str]]
    own: Sequence[Sequence[str]]
    markers: Sequence[Sequence[str]]


@functools.cache
def vocabulary() -> Vocabulary:
    """Invented words of two or three syllables."""
    rng = np.random.default_rng(SEED)
    onsets = str.split("b d f g k l m n p r s t v z br dr gl kr pl st tr")
    vowels = str.split("a e i o u ai ou")
    words: dict[str, None] = {}
    needed = COMMON_WORDS + len(THEMES) * (THEME_WORDS + MARKERS) + len(LABELS) * OWN_WORDS
    while len(words) < needed:
        syllables = (rng.choice(onsets) + rng.choice(vowels) for _ in range(rng.integers(2, 4)))
        words["".join(syllables)] = None
    pool = iter(words)

    def take(count: int) -> list[str]:
        return [next(pool) for _ in range(count)]

    return Vocabulary(
        take(COMMON_WORDS),
        [take(THEME_WORDS) for _ in THEMES],
        [take(OWN_WORDS) for _ in LABELS],
        [take(MARKERS) for _ in THEMES],
    )


def phrase(label: int) -> tuple[str, str]:
    """The two words that, in this order and side by side, stand for a label: (a b), (b a), (c d) or (d c)."""
    a, b, c, d = vocabulary().markers[label % len(THEMES)]
    return ((a, b), (b, a), (c, d), (d, c))[label // len(THEMES)]


def some(rng: np.random.Generator, words: Sequence[str], low: int, high: int) -> list[str]:
    """Between `low` and `high` words, with repetition."""
    return [words[place] for place in rng.integers(0, len(words), rng.integers(low, high + 1))]


def make_document(rng: np.random.Generator) -> Example:
    """One document: a sentence of 3 to 11 words a label, mixed with sentences that mean nothing."""
    words = vocabulary()
    labels = draw_labels(rng, GROUPS, tail=1.15, in_group=0.4, across=0.45)
    sentences = []
    for label in labels:
        sentence = some(rng, words.theme[label % len(THEMES)], 1, 3) + some(rng, words.common, 2, 5)
        if rng.random() < 0.45:
            sentence += some(rng, words.own[label], 1, 1)
        rng.shuffle(sentence)
        if rng.random() < 0.8:
            place = int(rng.integers(0, len(sentence) + 1))
            sentence[place:place] = phrase(label)
        sentences.append(sentence)
    for _ in range(rng.integers(2, 5)):
        sentence = some(rng, words.common, 4, 8)
        if rng.random() < 0.5:  # a word that hints at a label which is not there
            sentence += some(rng, words.own[int(rng.integers(len(LABELS)))], 1, 1)
        if rng.random() < 0.4:
            sentence += some(rng, words.markers[int(rng.integers(len(THEMES)))], 1, 1)
        rng.shuffle(sentence)
        sentences.append(sentence)
    text = ". ".join(" ".join(sentences[index]) for index in rng.permutation(len(sentences))) + "."
    return Example("", text, tuple(LABELS[label] for label in labels))


class ToyText(CorpusBuilder):
    """Generates documents."""

    def plan(self, sources: SourceTree) -> Plan:
        """Nothing is read: every example is generated."""
        return generated_plan(self, LABELS, make_document, SEED)
