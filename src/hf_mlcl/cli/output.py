"""What commands print: tables in a terminal, plain lines in a log, JSON for programs."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from hf_mlcl.files import strict_json

LONGEST_WORD = 24
"""Characters of a word that a column makes room for; longer ones, such as paths, may be split."""


def quiet_libraries() -> None:
    """No bars and no notes of the libraries below: what is printed is the result. Training keeps its own bar."""
    import datasets
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    datasets.disable_progress_bars()


def print_json(content: Any) -> None:
    """Print anything as JSON, to be read by a program."""
    print(strict_json(content))


def print_table(headings: Sequence[str], rows: Sequence[Sequence[Any]], title: str = "") -> None:
    """Print a table: drawn where a person looks on, aligned plain text in a file or a pipe; numbers to the right.

    Examples:
        >>> print_table(["loss", "macro-F1"], [["reg", 0.5], ["bce", 0.4375]])
        loss  macro-F1
        reg     0.5000
        bce     0.4375
    """
    numeric = [all(isinstance(row[column], int | float) for row in rows) for column in range(len(headings))]
    cells = [[f"{value:.4f}" if isinstance(value, float) else str(value) for value in row] for row in rows]
    if sys.stdout.isatty():
        _draw(list(headings), cells, numeric, title)
        return
    if title:
        print(title)
    lines = [list(headings), *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    for line in lines:
        placed = zip(line, widths, numeric, strict=True)
        print("  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in placed).rstrip())


def _draw(headings: list[str], cells: list[list[str]], numeric: list[bool], title: str) -> None:
    """Draw a table, in parts one below the other where its columns do not fit side by side; no word is split."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text  # taken as it is: a formula's [brackets] are no markup

    console = Console()
    columns = list(zip(headings, *cells, strict=True))
    words = [[len(word) for cell in column for word in cell.split()] for column in columns]
    least = [min(max(lengths, default=0), LONGEST_WORD) for lengths in words]
    parts: list[list[int]] = [[0]]
    for number in range(1, len(columns)):
        part = parts[-1]
        if sum(least[one] + 3 for one in (*part, number)) + 1 > console.width and len(part) > 1:
            parts.append([0])  # the first column says what a row is
        parts[-1].append(number)
    for part in parts:
        table = Table(title=title if part is parts[0] else None, title_justify="left", header_style="bold")
        for number in part:
            side: Any = "right" if numeric[number] else "left"
            table.add_column(headings[number], justify=side, min_width=least[number], overflow="fold")
        for row in cells:
            table.add_row(*(Text(row[number]) for number in part))
        console.print(table)


def print_pairs(pairs: Sequence[tuple[str, str]], title: str = "") -> None:
    """Print headings with their texts, one below the other; in a terminal long texts go on below their beginning."""
    if title:
        print(title)
    width = max((len(heading) for heading, _ in pairs), default=0)
    room = shutil.get_terminal_size().columns - width - 4 if sys.stdout.isatty() else 0
    wrapper = textwrap.TextWrapper(max(room, 1), break_on_hyphens=False, break_long_words=False)
    for heading, text in pairs:
        lines = text.splitlines() or [""]
        if room >= 20:
            lines = [part for line in lines for part in (wrapper.wrap(line) or [""])]
        for number, line in enumerate(lines):
            print(f"  {heading if number == 0 else '':<{width}}  {line}")


def say(message: str) -> None:
    """A word to the person, beside the output: it goes to stderr, so that pipes get results only."""
    print(message, file=sys.stderr, flush=True)
