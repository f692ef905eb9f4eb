"""Run all benchmarks and print their tables: `make bench`, or `python benchmarks/run.py losses` for some."""

from __future__ import annotations

import importlib
import sys
from datetime import date

from measure import hardware

ALL = ["losses"]


def main() -> None:
    """Run those named on the command line, or all."""
    chosen = sys.argv[1:] or ALL
    unknown = [name for name in chosen if name not in ALL]
    if unknown:
        sys.exit(f"There is no benchmark {', '.join(unknown)}. Known: {', '.join(ALL)}.")
    print(f"{date.today()}, {hardware()}")
    for name in chosen:
        print(f"\n## {name.capitalize()}", flush=True)
        importlib.import_module(name).main()


if __name__ == "__main__":
    main()
