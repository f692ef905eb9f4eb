"""toy_images: generated pictures with what makes multi-label images hard, in seconds and without a download."""

from __future__ import annotations

import colorsys
import io
import math

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from hf_mlcl.data.builder import CorpusBuilder, Plan
from hf_mlcl.data.sources import SourceTree
from hf_mlcl.data.splits import Example
from hf_mlcl.data.toy import draw_labels, generated_plan

SEED = 20_241_201
SIDE, OVERSAMPLED = 32, 64
GROUPS = ((0, 5, 10), (1, 6, 11), (2, 7, 12), (3, 8, 13), (4, 9, 14))

Points = list[tuple[float, float]]


def _polygon(corners: int) -> Points:
    angles = [2 * math.pi * k / corners for k in range(corners)]
    return [(math.cos(angle), math.sin(angle)) for angle in angles]


def _star(tips: int, inner: float) -> Points:
    corners = [((1.0, inner)[k % 2], math.pi * k / tips) for k in range(2 * tips)]
    return [(radius * math.cos(angle), radius * math.sin(angle)) for radius, angle in corners]


def _bar(x: float, y: float, width: float, height: float) -> Points:
    return [(x + a * width, y + b * height) for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))]


DISC, SQUARE = _polygon(40), _bar(0, 0, 0.8, 0.8)
# Each kind: filled outlines in the unit circle; "hole" outlines are cut out again.
KINDS: dict[str, tuple[list[Points], list[Points]]] = {
    "disc": ([DISC], []),
    "square": ([SQUARE], []),
    "triangle": ([_polygon(3)], []),
    "star": ([_star(5, 0.45)], []),
    "cross": ([_bar(0, 0, 1, 0.28), _bar(0, 0, 0.28, 1)], []),
    "ring": ([DISC], [[(0.6 * x, 0.6 * y) for x, y in DISC]]),
    "frame": ([SQUARE], [[(0.62 * x, 0.62 * y) for x, y in SQUARE]]),
    "arrow": ([[(1, 0), (0.1, 0.8), (0.1, 0.3), (-1, 0.3), (-1, -0.3), (0.1, -0.3), (0.1, -0.8)]], []),
    "gear": ([_star(9, 0.72)], [[(0.3 * x, 0.3 * y) for x, y in DISC]]),
    "stripes": ([_bar(0, y, 0.9, 0.15) for y in (-0.75, 0.0, 0.75)], []),
    "moon": ([DISC], [[(0.85 * x + 0.45, 0.85 * y) for x, y in DISC]]),
    "ladder": ([_bar(-0.6, 0, 0.14, 1), _bar(0.6, 0, 0.14, 1), *(_bar(0, y, 0.6, 0.12) for y in (-0.5, 0.0, 0.5))], []),
    "bowtie": ([[(-1, -0.7), (0, 0), (-1, 0.7)], [(1, -0.7), (0, 0), (1, 0.7)]], []),
    "dots": ([[(0.3 * x + a, 0.3 * y + b) for x, y in DISC] for a in (-0.6, 0.6) for b in (-0.6, 0.6)], []),
    "eye": ([[(x, 0.5 * y) for x, y in DISC]], [[(0.3 * x, 0.3 * y) for x, y in DISC]]),
}
LABELS = tuple(KINDS)


def _draw_object(rng: np.random.Generator, picture: Image.Image, label: int) -> None:
    radius = rng.uniform(0.17, 0.34) * OVERSAMPLED
    x, y = rng.uniform(0.2, 0.8, 2) * OVERSAMPLED
    turn = rng.normal(0, 0.35)
    cos, sin = radius * math.cos(turn), radius * math.sin(turn)
    mask = Image.new("L", picture.size)
    draw = ImageDraw.Draw(mask)
    for outlines, fill in zip(KINDS[LABELS[label]], (255, 0), strict=True):
        for outline in outlines:
            draw.polygon([(x + a * cos - b * sin, y + a * sin + b * cos) for a, b in outline], fill=fill)
    # Three kinds share a favourite hue, and any may take another: colour hints at a kind and does not tell it.
    hue = (label % 5) / 5 + rng.normal(0, 0.05) if rng.random() < 0.85 else rng.random()
    red, green, blue = colorsys.hsv_to_rgb(hue % 1.0, rng.uniform(0.55, 1.0), rng.uniform(0.6, 1.0))
    picture.paste((int(255 * red), int(255 * green), int(255 * blue)), mask=mask)


def make_picture(rng: np.random.Generator) -> Example:
    """One picture: its objects in random order over a soft background, slightly blurred, with noise."""
    labels = draw_labels(rng, GROUPS, tail=1.0, in_group=0.35, across=0.4)
    corners = rng.integers(40, 170, (2, 2, 3), dtype=np.uint8)
    picture = Image.fromarray(corners).resize((OVERSAMPLED, OVERSAMPLED), Image.Resampling.BILINEAR)
    objects = [label for label in labels for _ in range(1 + (rng.random() < 0.25))]
    for index in rng.permutation(len(objects)):
        _draw_object(rng, picture, objects[index])
    picture = picture.resize((SIDE, SIDE), Image.Resampling.BOX).filter(ImageFilter.GaussianBlur(rng.uniform(0, 0.5)))
    pixels = np.asarray(picture, dtype=np.float32) + rng.normal(0, 8, (SIDE, SIDE, 3))
    encoded = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(encoded, "PNG", compress_level=1)
    return Example("", encoded.getvalue(), tuple(LABELS[label] for label in labels))


class ToyImages(CorpusBuilder):
    """Generates pictures."""

    def plan(self, sources: SourceTree) -> Plan:
        """Nothing is read: every example is generated."""
        return generated_plan(self, LABELS, make_picture, SEED)
