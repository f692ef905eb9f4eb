"""What a person sees while an experiment runs: one live display in a terminal, plain lines in a file or a pipe.

Nothing heavy is imported here, so that the first line is there before torch is.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

PATIENCE = 30.0
"""Seconds after which a plain log gets a line, if nothing else was written."""
PER_SECOND = 4
"""How often the live display is drawn."""
RECENT = 40
"""Steps that the speed is measured over."""


class _Stage:
    """Something that takes time: how far it is, and how fast it goes."""

    def __init__(self, name: str, total: int = 0, rows: int = 0, unit: str = "step") -> None:
        self.name, self.total, self.rows, self.unit = name, total, rows, unit
        self.began = time.monotonic()
        self.done = 0
        self.times = deque([(self.began, 0)], RECENT)

    def taken(self) -> str:
        return str(timedelta(seconds=round(time.monotonic() - self.began)))

    def pace(self) -> str:
        """Where it is: ``step 120/300  312 rows/s  0:02:10 left``, or how long it has taken."""
        if not self.total:
            return self.taken()
        said = f"{self.unit} {self.done:,}/{self.total:,}"
        (first, earlier), (last, done) = self.times[0], self.times[-1]
        if done > earlier and last > first:
            speed = (done - earlier) / (last - first)
            rows = f"{speed * self.rows:,.{0 if speed * self.rows >= 10 else 1}f} rows/s"
            said += f"  {rows}  {timedelta(seconds=round((self.total - self.done) / speed))} left"
        return said


class Display:
    """Shows stages, how fast they go, and `facts` such as the loss; once it is closed, only what was told remains.

    A `quiet` one shows nothing, a `plain` one writes lines, also in a terminal.

    Examples:
        >>> with Display(plain=True) as display, display.stage("Reading"):
        ...     display.tell("900 rows")
        Reading ...
        900 rows
    """

    def __init__(self, quiet: bool = False, plain: bool = False) -> None:
        self.quiet = quiet
        self.is_live = not quiet and not plain and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self.facts: dict[str, str] = {}
        self._stages: list[_Stage] = []
        self._live: Any = None
        self._written = time.monotonic()

    def __enter__(self) -> Display:
        if self.is_live and self._live is None:
            from rich.live import Live

            if hasattr(os, "register_at_fork"):  # a copy of this process must not wait for the thread that draws
                os.register_at_fork(after_in_child=partial(vars(sys).update, stdout=sys.stdout, stderr=sys.stderr))
            self._live = Live(get_renderable=self._drawn, refresh_per_second=PER_SECOND, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Show what takes time in the block."""
        depth = len(self._stages)
        self.begin(name)
        if depth == 0:
            self._line(f"{name} ...")
        try:
            yield
            if depth == 0 and self._live is not None:
                self._live.console.print(f"{name}: {self._stages[0].taken()}", style="dim", highlight=False)
        finally:
            del self._stages[depth:]

    def begin(self, name: str, total: int = 0, rows: int = 0, unit: str = "step") -> None:
        """Something of so many steps, of so many rows each, begins within the stage; `end` ends it."""
        self._stages.append(_Stage(name, total, rows, unit))

    def end(self) -> None:
        """The last that began has ended."""
        self._stages.pop()

    def count(self, total: int, rows: int, begun: int = 0) -> None:
        """The stage has so many steps of so many rows, of which some were done before."""
        stage = self._stages[-1]
        stage.total, stage.rows, stage.done = total, rows, begun
        stage.times = deque([(time.monotonic(), begun)], RECENT)

    def reached(self, done: int) -> None:
        """So many steps are done; a plain log gets a line now and then."""
        stage = self._stages[-1]
        first = stage.done == 0 and len(self._stages) == 1
        stage.done = done
        stage.times.append((time.monotonic(), done))
        if first or time.monotonic() - self._written > PATIENCE:
            facts = "".join(f"  {name} {fact}" for name, fact in self.facts.items())
            self._line(f"{stage.name}: {stage.pace()}{facts}")

    def advance(self) -> None:
        """One more step is done."""
        self.reached(self._stages[-1].done + 1)

    def tell(self, line: str) -> None:
        """Write a line that stays."""
        if not self.quiet:
            print(line, flush=True)  # above the live display, which catches what is printed
            self._written = time.monotonic()

    def _line(self, line: str) -> None:
        """Write a line where nothing is drawn."""
        if not self.is_live:
            self.tell(line)

    def _drawn(self) -> Any:
        """Name, bar and pace of each stage; below them the facts, as many to a line as fit."""
        from rich.columns import Columns
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        bars = Table.grid(padding=(0, 1), expand=True)
        for settings in ({"no_wrap": True}, {"ratio": 1, "min_width": 8}, {"no_wrap": True, "justify": "right"}):
            bars.add_column(**settings)
        for stage in self._stages:
            bar = ProgressBar(stage.total, stage.done) if stage.total else Spinner("dots")
            bars.add_row(Text(stage.name, style="bold"), bar, Text(stage.pace()))
        facts = [Text(f"{name} {fact}", style="cyan", no_wrap=True) for name, fact in self.facts.items()]
        return Group(bars, Columns(facts, padding=(0, 3)))


def same_command() -> str:
    """The command that started this program, to be typed again."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
