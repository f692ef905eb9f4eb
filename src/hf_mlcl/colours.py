"""The colours and markers of all figures and pages; apart from them, so that whoever needs colours loads nothing else.

The palette is Okabe and Ito's (https://jfly.uni-koeln.de/color), whose colours people with deuteranopia or protanopia
tell apart. Each loss has one colour and one marker everywhere, so that a print in grey can be read.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import NamedTuple

BLUE, ORANGE, GREEN, PINK, SKY, RED = "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"
DPI = 200
"""Of pictures that are no SVG: sharp on screens with two pixels for one."""
GREY, DARK = "#8a8f98", "#4d4d4d"
PALETTE = [BLUE, ORANGE, GREEN, PINK, SKY, RED, DARK, "#a6951d"]
HATCHES = ["", "//", "..", "xx", "\\\\", "--"]
"""Of bars, which have no markers."""
MARKERS = ["o", "s", "^", "D", "v", "X", "P", "<"]
"""One for each colour, where things have no name of ours."""


class Style(NamedTuple):
    """How a loss is drawn: matplotlib's names for marker and line, and Vega's for the marker."""

    colour: str
    marker: str
    line: str = "-"
    shape: str = "circle"


SOLID, DASHED = "-", "--"
LOSSES = {
    "reg": Style(BLUE, "o", SOLID, "circle"),
    "wo_reg": Style(SKY, "s", SOLID, "square"),
    "msc": Style(GREEN, "^", SOLID, "triangle-up"),
    "mulsupcon": Style(PINK, "D", SOLID, "diamond"),
    "base": Style(DARK, "v", SOLID, "triangle-down"),
    "proto": Style("#a6951d", "<", SOLID, "triangle-left"),
    "supcon": Style(PINK, "d", SOLID, "wedge"),
    "supcon_reg": Style(BLUE, "8", SOLID, "stroke"),
    "zlpr": Style(ORANGE, "X", DASHED, "cross"),
    "bce": Style(RED, "P", DASHED, "cross"),
    "asymmetric": Style(GREEN, ">", DASHED, "triangle-right"),
    "focal": Style(DARK, "p", DASHED, "diamond"),
    "lsep": Style(SKY, "H", DASHED, "square"),
    "two_way": Style(BLUE, "$\\updownarrow$", DASHED, "arrow"),
    "cross_entropy": Style(RED, "h", DASHED, "triangle"),
}
"""Losses on logits have dashed lines."""
OTHERS = [
    Style(colour, marker, "-.", shape) for marker, shape in (("*", "triangle"), ("1", "arrow")) for colour in PALETTE
]


def loss_styles(names: Iterable[str], in_order: bool = False) -> dict[str, Style]:
    """The style of each loss by name; joined losses and names of a user's own keep theirs too, among the same others.

    With `in_order`, names are those of runs or encoders and need not be losses: all that are not take the colours and
    markers in turn.

    Examples:
        >>> loss_styles(["reg", "reg+zlpr"])["reg"].colour
        '#0072b2'
    """
    names = list(names)
    if in_order and not set(names) & LOSSES.keys():
        every = [Style(colour, marker) for colour, marker in zip(PALETTE, MARKERS, strict=True)]
        return {name: every[i % len(every)] for i, name in enumerate(names)}
    found: dict[str, Style] = {}
    taken: set[int] = set()
    for name in sorted(set(names)):
        if name in LOSSES:
            found[name] = LOSSES[name]
            continue
        number = zlib.crc32(name.encode()) % len(OTHERS)
        while number in taken and len(taken) < len(OTHERS):
            number = (number + 1) % len(OTHERS)
        taken.add(number)
        found[name] = OTHERS[number]
    return {name: found[name] for name in names}
