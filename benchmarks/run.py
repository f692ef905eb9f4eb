"""Run all benchmarks and print their tables: `make bench`, or `python benchmarks/run.py losses` for some."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path

from measure import hardware

ALL = ["losses", "corpora", "own_reading", "training", "evaluation", "inference"]


def main() -> None:
    """Run those named on the command line, or all, each in a process of its own."""
    chosen = sys.argv[1:] or ALL
    unknown = [name for name in chosen if name not in ALL]
    if unknown:
        sys.exit(f"There is no benchmark {', '.join(unknown)}. Known: {', '.join(ALL)}.")
    print(f"{date.today()}, {hardware()}")
    for name in chosen:
        print(f"\n## {name.capitalize()}", flush=True)
        subprocess.run([sys.executable, Path(__file__).with_name(f"{name}.py")], check=True)


if __name__ == "__main__":
    main()
