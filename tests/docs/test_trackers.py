"""The docs' example of trackers reports to Trackio as well, which lives in an environment of its own."""

from __future__ import annotations

import json
import subprocess

import pytest

from docs.test_code_blocks import ROOT, blocks
from hub.fresh import environment_without_package, run

TRACKIO = "trackio>=0.43,<1"


@pytest.mark.slow
def test_the_example_of_looking_on_reports_to_trackio_and_tensorboard(tmp_path):
    """Trackio wants an older Pillow than the one here; all but what it brings along is found here."""
    python = environment_without_package(tmp_path / "environment")
    install = [str(python), "-m", "pip", "install", "--disable-pip-version-check", TRACKIO]
    installed = subprocess.run(install, capture_output=True, text=True)
    if "No matching distribution found for trackio" in installed.stderr:
        pytest.skip("Trackio is not installed, and no package index is in reach")
    assert installed.returncode == 0, installed.stderr
    (example,) = (code for _, code in blocks(ROOT / "docs" / "training.md") if "trackio" in code)
    run(example, python=python, cwd=tmp_path)
    assert list((tmp_path / "outputs" / "tensorboard").glob("events.out.tfevents.*"))

    def ask(*words):
        words, where = (*words, "--project", "emotions", "--json"), {"TRACKIO_DIR": "outputs/trackio"}
        return json.loads(
            run("from trackio.cli import main; main()", *words, python=python, cwd=tmp_path, **where).stdout
        )

    (name,) = ask("list", "runs")["runs"]
    values = [point["value"] for point in ask("get", "metric", "--run", name, "--metric", "train/prr")["values"]]
    assert len(values) == 2  # of four steps, every second is logged
    assert all(0 <= value <= 1 for value in values)
