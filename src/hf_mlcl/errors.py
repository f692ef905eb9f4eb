"""Messages that several stations share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def unknown_name(what: str, name: object, valid: Iterable[str], most: int | None = None) -> str:
    """The message for a name that is not valid, with those that are, nearest first, and at most `most` of them.

    Examples:
        >>> unknown_name("loss", "rag", ["bce", "reg", "zlpr"], most=2)
        "There is no loss 'rag'. Known, nearest first: reg, zlpr and 1 more."
    """
    wrong = str(name).lower()
    nearest = sorted(valid, key=lambda known: -difflib.SequenceMatcher(None, wrong, known.lower()).ratio())
    shown = nearest[:most]
    more = f" and {len(nearest) - len(shown)} more" if len(shown) < len(nearest) else ""
    return f"There is no {what} {name!r}. Known, nearest first: {', '.join(shown)}{more}."
