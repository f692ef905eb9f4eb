"""Speed and memory of the data station.

Builds a generated RCV1-format corpus, and decodes, augments and batches the images of COCO where they are at hand.

    python benchmarks/corpora.py [--items 100000] [--coco ../shared/data/coco2014_mini]
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import datasets
import numpy as np
from torch.utils.data import DataLoader

from hf_mlcl.data import ImageCollator, image_transform, load_corpus
from hf_mlcl.data.corpora.rcv1 import TOPICS, TRAIN_IDS

ITEMS = 100_000
COCO = Path(__file__).resolve().parents[2] / "shared" / "data" / "coco2014_mini"
LIMIT_MB = 300
NEWS_WORDS = 230
"""Words of an average story of the Reuters corpus."""


def write_rcv1(folder: Path, items: int) -> None:
    """Stories in the zip files of 365 days, as on the CDs, and their topic assignments."""
    rng = np.random.default_rng(0)
    vocabulary = np.array([f"word{number}" for number in range(20_000)])
    numbers = np.linspace(TRAIN_IDS.start, 810_596, items).astype(int)
    with open(folder / "rcv1-v2.topics.qrels", "w") as qrels:
        for day, group in enumerate(np.array_split(numbers, 365)):
            with zipfile.ZipFile(folder / f"day{day:03d}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                for number in group:
                    words = " ".join(vocabulary[rng.integers(0, len(vocabulary), NEWS_WORDS)])
                    archive.writestr(
                        f"{number}newsML.xml",
                        f'<?xml version="1.0" encoding="iso-8859-1" ?>\n<newsitem itemid="{number}">'
                        f"<headline>Story {number}</headline><text><p>{words}</p><p>Caf&#233; &amp; more.</p></text>"
                        f"</newsitem>",
                    )
                    for topic in {*(rng.zipf(1.6, 3) % len(TOPICS))}:
                        qrels.write(f"{TOPICS[topic]} {number} 1\n")


def resident_mb() -> float:
    """Memory that this process holds now (Linux), or the most that it ever held (elsewhere)."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20
    except FileNotFoundError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_rcv1(folder: str, cache: str) -> None:
    """In a process of its own: print rows, seconds, and the peak of the memory above what was held before."""
    datasets.disable_progress_bars()
    load_corpus("toy_text", cache_dir=cache)  # everything that a first build imports is there before the measurement
    before = resident_mb()
    start = time.perf_counter()
    corpus = load_corpus("rcv1", data_dir=folder, cache_dir=cache)
    seconds = time.perf_counter() - start
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    print(sum(len(data) for data in corpus.values()), seconds, growth)


def rcv1_table(items: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        data, cache = Path(folder) / "data", Path(folder) / "cache"
        data.mkdir()
        write_rcv1(data, items)
        size = sum(file.stat().st_size for file in data.iterdir()) / 2**20
        command = [sys.executable, __file__, "--measure-rcv1", str(data), str(cache)]
        rows, seconds, growth = map(float, subprocess.check_output(command, text=True).split()[-3:])
    if growth > LIMIT_MB:
        raise SystemExit(f"Building {rows:,.0f} items took {growth:.0f} MB of memory, the limit is {LIMIT_MB} MB.")
    return (
        "| corpus | items | packed size | seconds | items a second | memory growth |\n|---|---|---|---|---|---|\n"
        f"| RCV1 format, generated | {rows:,.0f} | {size:.0f} MB | {seconds:.0f} | {rows / seconds:,.0f} "
        f"| {growth:.0f} MB |"
    )


def loading_rate(data: datasets.Dataset, train: bool, workers: int, batch: int = 64) -> float:
    """Images a second that come out of a `DataLoader`, without the start of its workers."""
    collate = ImageCollator(image_transform(224, train=train), 80)
    batches = iter(DataLoader(data, batch_size=batch, collate_fn=collate, num_workers=workers))
    next(batches)
    start = time.perf_counter()
    return sum(len(each["labels"]) for each in batches) / (time.perf_counter() - start)


def image_table(folder: Path, images: int = 768, repeats: int = 3) -> str:
    """Build COCO, then load it in turns with each setting; the best turn counts."""
    with tempfile.TemporaryDirectory() as cache:
        start = time.perf_counter()
        corpus = load_corpus("coco2014", data_dir=folder, cache_dir=cache)
        seconds = time.perf_counter() - start
        total = sum(len(data) for data in corpus.values())
        data = corpus["train"].select(range(images))
        rates: dict[tuple[bool, int], list[float]] = {}
        for _ in range(repeats):
            for train, workers in ((True, 1), (True, 2), (False, 1), (False, 2)):
                rates.setdefault((train, workers), []).append(loading_rate(data, train, workers))
    lines = [f"Build of {total:,} images with a check of each: {total / seconds:,.0f} images a second.", ""]
    lines += [f"| images | transform | workers | images a second (best of {repeats}) |", "|---|---|---|---|"]
    for (train, workers), measured in rates.items():
        name = "RandAugment(2, 9), 224 x 224" if train else "resize to 224 x 224"
        lines.append(f"| COCO, 128 x 128 JPEG | {name} | {workers} | {max(measured):,.0f} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Print the tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--items", type=int, default=ITEMS)
    parser.add_argument("--coco", type=Path, default=COCO)
    parser.add_argument("--measure-rcv1", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure_rcv1:
        measure_rcv1(*options.measure_rcv1)
        return
    datasets.disable_progress_bars()
    print("## Corpora\n")
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {time.strftime('%F')}"
    print(f"`python benchmarks/corpora.py`, {machine}.\n")
    print(rcv1_table(options.items) + "\n")
    print(image_table(options.coco) if options.coco.is_dir() else f"No images: {options.coco} is not there.")


if __name__ == "__main__":
    main()
