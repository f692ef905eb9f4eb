"""Real trainings on built-in data: killed and restarted, or shared by two commands, a study gives the same table."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal

import pandas as pd
import pytest
from transformers import Trainer

import hf_mlcl.study.running
from copies import Copy, all_went_well
from hf_mlcl.cli.study import study_app

FILE = """
defaults:
  max_train_samples: 32
  max_eval_samples: 16
  num_train_epochs: 3
  global_batch_size: 16
  linear_epochs: 2
  save_strategy: epoch
  eval_strategy: epoch
  logging_steps: 1
  use_cpu: true
corpora: [toy_text, toy_images]
losses: [bce, reg]
seeds: SEEDS
keep: results
"""
VOLATILE = ("seconds.", "machine.", "finished", "argument.logging_dir", "argument.output_dir")
PLACES = ("argument.resume_from_checkpoint", "argument.run_name", "argument.local_rank")
DECIDED = ("f1", "precision", "recall", "hamming_loss", "accuracy", "mAP")


def work(file, folder, die_at):
    """What the program does, but that runs are copies of the worker, which has the imports behind it.

    At a step of training or evaluation, counted over all runs, a run kills its worker.
    """
    context = multiprocessing.get_context("fork")
    hf_mlcl.study.running.processes = lambda *modules, cuda: context
    steps = context.Value("i", 0)

    def dying(step):
        def stepped(*args, **kwargs):
            with steps.get_lock():
                steps.value += 1
                if steps.value == die_at:
                    os.kill(os.getppid(), signal.SIGKILL)
            return step(*args, **kwargs)

        return stepped

    Trainer.training_step, Trainer.prediction_step = dying(Trainer.training_step), dying(Trainer.prediction_step)
    study_app(["run", str(file), "--set", f"output_dir={folder}"])


@pytest.fixture
def start(tmp_path, seeds):
    path = tmp_path / "study.yaml"
    path.write_text(FILE.replace("SEEDS", str(seeds)))

    def start(folder, who=0, die_at=-1):
        return Copy(work, path, folder, die_at, output=tmp_path / f"{folder.name} {who}.txt")

    return start


def comparable(folder) -> pd.DataFrame:
    table = pd.read_parquet(folder / "runs.parquet")
    assert set(table["state"]) == {"finished"}, table[["id", "state", "error"]].to_string()
    return table[[name for name in table.columns if not str(name).startswith((*VOLATILE, *PLACES))]]


def finished(folder) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in folder.glob("runs/*/result.json")}


@pytest.mark.parametrize(
    ("seeds", "kills"), [([0], 2), pytest.param([0, 1, 2], 3, marks=pytest.mark.slow)], ids=["4 runs", "12 runs"]
)
def test_killed_again_and_again_or_shared_by_two_commands_a_study_ends_with_the_same_table(
    start, seeds, kills, tmp_path
):
    shared, killed = tmp_path / "shared", tmp_path / "killed"

    assert all_went_well([start(shared, who) for who in range(2)])
    for log in shared.glob("runs/*/log.txt"):
        assert log.read_text().count("--- ") == 1  # none was done twice

    before: dict[str, bytes] = {}
    for _ in range(kills):
        worker = start(killed, die_at=random.randint(5, 15))
        assert worker.end() == -signal.SIGKILL, worker.printed()
        now = finished(killed)
        assert before.items() <= now.items()  # nothing is lost, nothing is done again
        before = now
    assert len(before) < 4 * len(seeds), "the study must have been killed before its end"
    assert all_went_well([start(killed)])
    assert before.items() <= finished(killed).items()

    undisturbed, restarted = comparable(shared), comparable(killed)
    assert len(restarted) == len(undisturbed) == 4 * len(seeds)
    assert {"test_macro_f1", "validation_micro_f1", "alignment", "argument.learning_rate"} <= set(undisturbed.columns)
    # Weights agree but for rounding. A decision that it turns shows in scores of decisions, and there alone.
    decided = [name for name in undisturbed.columns if name.endswith(DECIDED)]
    pd.testing.assert_frame_equal(restarted[decided], undisturbed[decided], rtol=0, atol=0.02)
    rest = [name for name in undisturbed.columns if name not in decided]
    pd.testing.assert_frame_equal(restarted[rest], undisturbed[rest], rtol=1e-4, atol=1e-5)
    assert restarted["test_macro_f1"].nunique() > 1
