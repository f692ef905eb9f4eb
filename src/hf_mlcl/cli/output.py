"""What commands print: tables in a terminal, plain lines in a log, JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from hf_mlcl.files import strict_json


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
    """Print a table: drawn where a person looks on, aligned plain text in a file or a pipe.

    Args:
        headings: One per column.
        rows: Cells; numbers stand to the right.
        title: Stands above.

    Examples:
        >>> print_table(["loss", "macro-F1"], [["reg", 0.5], ["bce", 0.4375]])
        loss  macro-F1
        reg     0.5000
        bce     0.4375
    """
    numeric = [all(isinstance(row[column], int | float) for row in rows) for column in range(len(headings))]
    cells = [[f"{value:.4f}" if isinstance(value, float) else str(value) for value in row] for row in rows]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text  # taken as it is: a formula's [brackets] are no markup

        table = Table(title=title or None, title_justify="left", header_style="bold")
        for heading, right in zip(headings, numeric, strict=True):
            table.add_column(heading, justify="right" if right else "left", overflow="fold")
        for row in cells:
            table.add_row(*map(Text, row))
        Console().print(table)
        return
    if title:
        print(title)
    lines = [list(headings), *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    for line in lines:
        placed = zip(line, widths, numeric, strict=True)
        print("  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in placed).rstrip())


def print_pairs(pairs: Sequence[tuple[str, str]], title: str = "") -> None:
    """Print headings with their texts, one below the other."""
    if title:
        print(title)
    width = max((len(heading) for heading, _ in pairs), default=0)
    for heading, text in pairs:
        print(f"  {heading:<{width}}  {text}")


def say(message: str) -> None:
    """A word to the person, beside the output: it goes to stderr, so that pipes get results only."""
    print(message, file=sys.stderr, flush=True)
