"""Large corpora stream."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pytest

from data import official
from hf_mlcl.data import corpus_builder

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "corpora.py"
MB = 2**20


def peak_of_reading(name, folder, cache):
    """Peak of Python's memory, in bytes, while all rows of a corpus pass by, and how many bytes they have."""
    builder = corpus_builder(name, data_dir=folder, cache_dir=cache)
    builder._split_generators(SimpleNamespace(manual_dir=str(folder)))
    tracemalloc.start()
    size = 0
    for split in ("train", "validation", "test"):
        for _, row in builder._generate_examples(split):
            size += len(row["text"] if "text" in row else row["image"]["bytes"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak, size


def test_reading_rcv1_holds_one_item_at_a_time(tmp_path):
    numbers = (*official.RCV1_TRAIN_IDS, *official.RCV1_TEST_IDS)
    items = {
        f"{number}newsML.xml": official.news_item(number, paragraphs=(("w" * 999 + " ") * 1000,)) for number in numbers
    }
    official.write_zip(tmp_path / "data" / "19960820.zip", items)
    official.write_files(tmp_path / "data", {"rcv1-v2.topics.qrels": official.rcv1_qrels()})
    peak, size = peak_of_reading("rcv1", tmp_path / "data", tmp_path / "cache")
    assert size > 65 * MB
    assert peak < 20 * MB


def test_reading_images_holds_one_image_at_a_time(tmp_path):
    files = {**official.voc_files("trainval", range(1, 21)), **official.voc_files("test", range(21, 41))}
    padding = bytes(2 * MB)  # a JPEG may be followed by anything
    images = {name: data + padding if name.endswith(".jpg") else data for name, data in files.items()}
    official.write_tar(tmp_path / "data" / "VOC.tar", images)
    peak, size = peak_of_reading("voc2007", tmp_path / "data", tmp_path / "cache")
    assert size > 80 * MB
    assert peak < 20 * MB


@pytest.mark.slow
def test_building_100000_items_of_rcv1_grows_the_memory_by_less_than_300_mb():
    command = [sys.executable, str(BENCHMARK), "--items", "100000", "--coco", "/not/there"]
    table = subprocess.check_output(command, text=True)
    row = next(line for line in table.splitlines() if "RCV1 format" in line)
    assert float(row.split("|")[-2].split()[0]) < 300
