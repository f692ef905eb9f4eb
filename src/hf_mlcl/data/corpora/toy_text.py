"""toy_text: generated documents with what makes multi-label text hard, in seconds and without a download."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import numpy as np

from hf_mlcl.data.builder import CorpusBuilder, Plan
from hf_mlcl.data.sources import SourceTree
from hf_mlcl.data.splits import Example
from hf_mlcl.data.toy import draw_labels, generated_plan

SEED = 20_241_200
THEMES = 7
LABELS = str.split(
    "boats bread trees engines stars songs paint "  # the most frequent label of each theme, then the next
    "tides spices birds wheels planets drums marble "
    "fish wine wolves fuel comets strings masks "
    "pirates cheese moss rails rockets choirs poems"
)
GROUPS = [range(theme, len(LABELS), THEMES) for theme in range(THEMES)]
Words = list[str]


@functools.cache
def vocabulary() -> tuple[Words, list[Words], list[Words], list[Words]]:
    """Invented words of two or three syllables that hint at nothing, at each theme, at each label; and markers.

    Ordered pairs of the four markers of a theme stand for its labels.
    """
    rng = np.random.default_rng(SEED)
    onsets = str.split("b d f g k l m n p r s t v z br dr gl kr pl st tr")
    vowels = str.split("a e i o u ai ou")
    words: dict[str, None] = {}
    while len(words) < 500 + THEMES * (30 + 4) + len(LABELS) * 5:
        syllables = (rng.choice(onsets) + rng.choice(vowels) for _ in range(rng.integers(2, 4)))
        words["".join(syllables)] = None
    pool = iter(words)

    def take(count: int) -> Words:
        return list(itertools.islice(pool, count))

    themes = range(THEMES)
    return take(500), [take(30) for _ in themes], [take(5) for _ in LABELS], [take(4) for _ in themes]


def _some(rng: np.random.Generator, words: Sequence[str], low: int, high: int) -> list[str]:
    """Between `low` and `high` words, with repetition."""
    return [words[place] for place in rng.integers(0, len(words), rng.integers(low, high + 1))]


def make_document(rng: np.random.Generator) -> Example:
    """One document: a sentence of 3 to 11 words per label, mixed with sentences that mean nothing."""
    common, theme, own, markers = vocabulary()
    labels = draw_labels(rng, GROUPS, tail=1.15, in_group=0.4, across=0.45)
    sentences = []
    for label in labels:
        sentence = _some(rng, theme[label % THEMES], 1, 3) + _some(rng, common, 2, 5)
        if rng.random() < 0.45:
            sentence += _some(rng, own[label], 1, 1)
        rng.shuffle(sentence)
        if rng.random() < 0.8:
            place = int(rng.integers(0, len(sentence) + 1))
            a, b, c, d = markers[label % THEMES]
            sentence[place:place] = ((a, b), (b, a), (c, d), (d, c))[label // THEMES]
        sentences.append(sentence)
    for _ in range(rng.integers(2, 5)):
        sentence = _some(rng, common, 4, 8)
        if rng.random() < 0.5:  # a word that hints at a label which is not there
            sentence += _some(rng, own[int(rng.integers(len(LABELS)))], 1, 1)
        if rng.random() < 0.4:
            sentence += _some(rng, markers[int(rng.integers(THEMES))], 1, 1)
        rng.shuffle(sentence)
        sentences.append(sentence)
    text = ". ".join(" ".join(sentences[index]) for index in rng.permutation(len(sentences))) + "."
    return Example("", text, tuple(LABELS[label] for label in labels))


class ToyText(CorpusBuilder):
    """Generates documents."""

    def plan(self, sources: SourceTree) -> Plan:
        """Nothing is read: every example is generated."""
        return generated_plan(self, LABELS, make_document, SEED)
