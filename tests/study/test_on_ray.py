"""A study on a local Ray cluster of two nodes, one of which is killed in the middle of a run."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter

import pytest

from hf_mlcl.study import run_study
from hf_mlcl.study.results import read_result
from study.quick import journal, make_study, note, quick_runner, scores

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'hf-mlcl[ray]'")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("JOURNAL", str(tmp_path / "journal.txt"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(os.path.abspath, sys.path)))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    for name, value in {"initial_delay_ms": "0", "period_ms": "500", "failure_threshold": "3"}.items():
        monkeypatch.setenv(f"RAY_health_check_{name}", value)  # a dead node is noticed within seconds
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    yield cluster
    cluster.shutdown()


def runner(run, folder):
    """Raises for bce, and is in the middle of its run on the node that will be killed, until it is."""
    if os.environ.get("DOOMED"):
        note(run, "held")
        while True:
            time.sleep(0.05)
    if run.loss == "bce":
        raise RuntimeError("the loss is not a number")
    return quick_runner(run, folder)


def test_a_node_that_is_killed_in_the_middle_changes_nothing_and_a_run_that_raises_is_written_down(cluster, tmp_path):
    doomed = cluster.add_node(num_cpus=1, env_vars={"DOOMED": "1"})
    study = make_study(tmp_path / "out", seeds=(0, 1))
    notes = tmp_path / "journal.txt"
    held = []

    def kill(line, progress):
        if not held and journal(notes, "held"):
            held.extend(journal(notes, "held"))
            cluster.remove_node(doomed, allow_graceful=False)

    progress = run_study(study, ray=cluster.address, runner=runner, notify=kill)
    assert len(held) == 1
    good = [run for run in study.runs if run.loss != "bce"]
    assert (progress.finished, progress.failed) == (8, 4)
    assert {run.id: read_result(study.run_folder(run))["metrics"] for run in good} == {r.id: scores(r) for r in good}
    assert Counter(journal(notes, "ended")) == Counter(run.id for run in good)  # none that was finished is done again
    bad = study.run_folder(next(run for run in study.runs if run.loss == "bce"))
    assert "the loss is not a number" in (bad / "failure.json").read_text()
    assert "Traceback" in (bad / "log.txt").read_text()
