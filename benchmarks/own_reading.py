"""Speed and memory of reading one's own data: many rows, many labels, many columns.

    python benchmarks/own_reading.py [--scale 1.0]

Reading includes recognising the columns, the labels of every row, stratified splits, the description that
``hf-mlcl train --check`` shows, and the fingerprint that a training keeps. It fails past 60 seconds or 2 GB.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hf_mlcl.data import read_own_data
from hf_mlcl.data.own import data_fingerprint
from measure import in_own_process, peak_megabytes, table

LIMIT_SECONDS = 60
LIMIT_MB = 2000
WORDS = 40
"""Words of a text."""


def texts(rows: int) -> list[str]:
    """Texts of words that are drawn at random."""
    vocabulary = np.array([f"word{number}" for number in range(20_000)])
    drawn = np.random.default_rng(0).integers(0, len(vocabulary), (rows, WORDS))
    return [" ".join(vocabulary[row]) for row in drawn]


def delimited(path: Path, rows: int, labels: int) -> None:
    """One column of names, three for each row, with a long tail."""
    random = np.random.default_rng(1)
    chosen = (labels * random.random((rows, 3)) ** 2).astype(int)
    names = ["|".join(f"{label:05d}" for label in row) for row in chosen]
    lines = [f"{text},{joined}" for text, joined in zip(texts(rows), names, strict=True)]
    path.write_text("\n".join(["text,labels", *lines]))


def flags(path: Path, rows: int, labels: int) -> None:
    """A column of 0 and 1 for each label; each row has about three."""
    random = np.random.default_rng(2)
    with path.open("w") as file:
        file.write(",".join(["text", *(f"label{number}" for number in range(labels))]) + "\n")
        for text in texts(rows):
            ones = (random.random(labels) < 3 / labels).astype(np.uint8) + ord("0")
            file.write(f"{text},{','.join(ones.tobytes().decode())}\n")


def measured(path: str) -> tuple[float, float, float]:
    """In a process of its own: seconds to read, seconds for the fingerprint, and the memory peak in MB."""
    start = time.perf_counter()
    data = read_own_data(path)
    data.describe()
    read = time.perf_counter()
    data_fingerprint(data.splits)
    return read - start, time.perf_counter() - read, peak_megabytes()


CASES: list[tuple[str, Callable[[Path, int, int], None], int, int]] = [
    ("one column of names", delimited, 200_000, 100),
    ("one column of names", delimited, 20_000, 5_000),
    ("a column of 0 and 1 for each label", flags, 2_000, 5_000),
    ("a column of 0 and 1 for each label", flags, 5_000, 500),
]


def main() -> None:
    """Print the table; fail where a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of the rows; 0.01 for a quick look")
    scale = parser.parse_args().scale
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for name, write, rows, labels in CASES:
            path = Path(folder) / "data.csv"
            write(path, int(rows * scale), labels)
            seconds, fingerprint, memory = in_own_process(measured, str(path))
            size = f"{path.stat().st_size / 1e6:.0f} MB"
            counts = f"{int(rows * scale):,}", f"{labels:,}"
            lines.append([name, *counts, size, f"{seconds:.1f}", f"{fingerprint:.1f}", f"{memory:.0f} MB"])
            if seconds + fingerprint > LIMIT_SECONDS or memory > LIMIT_MB:
                sys.exit(f"{', '.join(lines[-1])} is past {LIMIT_SECONDS} s or {LIMIT_MB} MB.")
    header = ["labels in", "rows", "labels", "file", "seconds to read", "fingerprint", "memory of the process"]
    table("Reading one's own CSV, splits included", header, lines)


if __name__ == "__main__":
    main()
