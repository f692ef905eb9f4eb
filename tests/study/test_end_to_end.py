"""Real trainings on built-in data: killed and restarted, or shared by two workers, a study ends with the same table."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

from hf_mlcl.study import WorkList

FILE = """
defaults:
  max_train_samples: 64
  max_eval_samples: 32
  num_train_epochs: 2
  global_batch_size: 16
  linear_epochs: 3
  save_strategy: steps
  eval_strategy: steps
  save_steps: 3
  eval_steps: 3
  logging_steps: 1
  use_cpu: true
corpora: [toy_text, toy_images]
losses: [bce, wo_reg, reg]
seeds: [0, 1]
keep: results
"""
RUNS = 2 * 3 * 2
VOLATILE = ("seconds.", "machine.", "started", "finished", "attempts", "setting.logging_dir", "setting.output_dir")
PLACES = ("setting.resume_from_checkpoint", "setting.run_name", "setting.local_rank")


@pytest.fixture
def start(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text(FILE)

    def start(name):
        code = "from hf_mlcl.cli.study import study_app; study_app()"
        command = [sys.executable, "-c", code, "run", str(path), "--set", f"output_dir={tmp_path / name}"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    return start


def comparable(folder) -> pd.DataFrame:
    table = pd.read_parquet(folder / "runs.parquet")
    assert list(table["state"]) == ["finished"] * RUNS, table[["id", "state", "error"]].to_string()
    return table[[name for name in table.columns if not str(name).startswith((*VOLATILE, *PLACES))]]


def finished(folder) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in folder.glob("runs/*/result.json")}


def test_killed_three_times_or_shared_by_two_workers_a_study_ends_with_the_same_table(start, tmp_path):
    shared, killed = tmp_path / "shared", tmp_path / "killed"

    workers = [start("shared") for _ in range(2)]
    outputs = [worker.communicate(timeout=600)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], outputs
    study = WorkList(shared).study()
    assert [WorkList(shared).status(run).attempts for run in study.runs] == [1] * RUNS  # none was done twice

    before: dict[str, bytes] = {}
    for kill in range(1, 4):
        worker = start("killed")
        while len(finished(killed)) < 3 * kill - 2:
            assert worker.poll() is None, worker.communicate()[0]
            time.sleep(0.01)
        time.sleep(random.uniform(0, 1.5))
        worker.send_signal(signal.SIGKILL)
        worker.communicate()
        now = finished(killed)
        assert before.items() <= now.items()  # nothing is lost, nothing is done again
        before = now
    assert len(before) < RUNS, "the study must have been killed before its end"
    worker = start("killed")
    output, _ = worker.communicate(timeout=600)
    assert worker.returncode == 0, output
    assert before.items() <= finished(killed).items()

    undisturbed, restarted = comparable(shared), comparable(killed)
    assert {"test_macro_f1", "validation_micro_f1", "alignment", "setting.learning_rate"} <= set(undisturbed.columns)
    pd.testing.assert_frame_equal(restarted, undisturbed, check_exact=True)
    assert restarted["test_macro_f1"].nunique() > 1
