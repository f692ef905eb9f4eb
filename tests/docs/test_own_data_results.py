"""The tables of docs/results.md on data of your own are those of the runs that are kept beside the benchmark."""

import importlib.util
import json
import re
from argparse import Namespace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "benchmarks" / "own_data"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("own_data", ROOT / "benchmarks" / "own_data.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_line_of_the_report_stands_in_the_docs(benchmark, capsys):
    benchmark.report(Namespace(output=RUNS, picture=None))
    printed = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    page = (ROOT / "docs" / "results.md").read_text()
    assert [line for line in printed if line not in page] == []
    assert sum(line.startswith("| semeval") for line in printed) >= 5


def test_runs_are_called_by_what_they_are(benchmark):
    paths = list(RUNS.glob("*.json"))
    assert paths
    for path in paths:
        run = json.loads(path.read_text())
        corpus, rows, seed, method = re.fullmatch(r"(\w+)-(\d+)-(\d+)-(\w+)", path.stem).groups()
        assert (run["corpus"], run["rows"], run["seed"], run["method"]) == (corpus, int(rows), int(seed), method)
        assert set(run["scores"]) == set(benchmark.METRICS)


def test_seeds_that_every_method_has_are_compared_and_those_with_fewer_say_how_many(benchmark, tmp_path, capsys):
    def write(method, seed, value):
        scores = dict.fromkeys(benchmark.METRICS, value)
        run = {"corpus": "coco", "rows": 300, "seed": seed, "method": method, "scores": scores, "cpu_seconds": 1.0}
        (tmp_path / f"coco-300-{seed}-{method}.json").write_text(
            json.dumps(run | {"date": "today", "hardware": "here"})
        )

    for seed, value in enumerate((50.0, 60.0, 10.0)):
        write("ours", seed, value)
    for seed, value in enumerate((40.0, 44.0)):
        write("frozen", seed, value)
    write("hf_bce", 0, 90.0)
    benchmark.report(Namespace(output=tmp_path, picture=None))
    printed = capsys.readouterr().out
    assert "Seeds: coco 300: 2" in printed
    assert "| coco, 300 | **55.0** |  | 42.0 |  | 90.0 (1) |  | +13.0 |" in printed
