"""Workers: what they survive, what they leave, and that no run is done twice."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import random
import signal
import time
from collections import Counter

import psutil
import pytest

import hf_mlcl.study.runner
from copies import HANGS
from hf_mlcl.study import WorkList, run_study
from hf_mlcl.study.execution import expanded
from hf_mlcl.study.table import study_table
from hf_mlcl.study.worklist import Worker
from study.quick import journal, make_study, quick_runner, scores

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def notes(tmp_path, monkeypatch):
    path = tmp_path / "journal.txt"
    monkeypatch.setenv("JOURNAL", str(path))
    return path


@pytest.fixture
def study(tmp_path):
    return make_study(tmp_path / "out")


def start_worker(study, workers=1, **environment):
    """A worker in a process of its own; a copy of this one, which has the imports behind it."""
    process = FORK.Process(target=_work, args=(study, workers, environment))
    process.start()
    return process


def _work(study, workers, environment):
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
    hf_mlcl.study.runner._context = lambda devices, runner: FORK
    run_study(study, workers=workers, runner=quick_runner)


def wait_until(condition):
    end = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def test_every_run_is_done_once_and_its_result_says_what_where_and_when(study, notes):
    lines = []
    progress = run_study(study, workers=2, runner=quick_runner, notify=lambda line, _: lines.append(line))
    assert (progress.finished, progress.failed) == (12, 0)
    assert Counter(journal(notes, "began")) == Counter(run.id for run in study.runs)
    for run, result in WorkList(study.output_dir).results(study.runs):
        assert result["metrics"] == scores(run)
        assert result["versions"].keys() >= {"python", "torch", "transformers", "hf-mlcl"}
        assert result["seconds"]["total"] >= result["seconds"]["train"]
    assert sum(line.startswith("finished") for line in lines) == 12
    assert run_study(study, runner=quick_runner).finished == 12
    assert len(journal(notes, "began")) == 12


@pytest.mark.parametrize(
    ("keep", "left"), [("results", set()), ("models", {"encoder"}), ("everything", {"encoder", "checkpoint-1"})]
)
def test_a_finished_run_keeps_what_the_study_says(tmp_path, notes, keep, left):
    study = dataclasses.replace(make_study(tmp_path / "out", ["toy_text"], ["reg"], [0]), keep=keep)
    run_study(study, runner=quick_runner)
    assert {path.name for path in (tmp_path / "out/runs" / study.runs[0].id / "work").iterdir()} == left


def test_a_run_that_raises_or_crashes_is_written_down_and_the_others_go_on(tmp_path, notes, monkeypatch):
    study = make_study(tmp_path / "out", corpora=["toy_text"])
    monkeypatch.setenv("TROUBLE", json.dumps({"bce": "raise", "wo_reg": "crash"}))
    progress = run_study(study, runner=quick_runner)
    assert (progress.finished, progress.failed) == (2, 4)
    table = study_table(study).set_index("loss")
    assert set(table.loc["reg", "state"]) == {"finished"}
    assert set(table.loc[["bce", "wo_reg"], "state"]) == {"failed"}
    assert set(table.loc["bce", "error"]) == {"RuntimeError: the loss is not a number"}
    assert all("SIGKILL" in error for error in table.loc["wo_reg", "error"])
    log = next((tmp_path / "out/runs").glob("toy_text-bce-seed0*/log.txt")).read_text()
    assert "Traceback" in log
    assert "quick.py" in log


def test_failed_runs_are_tried_again_only_on_demand_and_once(tmp_path, notes):
    study = make_study(tmp_path / "out", ["toy_text"], ["bce", "reg"], [0])
    work_list = WorkList(study.output_dir)
    work_list.plan(study)
    work_list.claim(study.runs[0], Worker.this()).end("failed", "ValueError: no")
    assert run_study(study, runner=quick_runner).failed == 1
    assert journal(notes, "began") == [study.runs[1].id]
    assert run_study(study, runner=quick_runner, retry_failed=True).finished == 2
    assert WorkList(study.output_dir).status(study.runs[0]).attempts == 2


def test_two_workers_started_at_once_never_do_the_same_run_twice(study, notes):
    workers = [start_worker(study, workers=2, WORKERS="2") for _ in range(2)]
    for worker in workers:
        worker.join(HANGS)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert Counter(journal(notes, "began")) == Counter(run.id for run in study.runs)
    assert set(study_table(study)["attempts"]) == {1}
    claims = [json.loads(path.read_text())["worker"]["pid"] for path in study.output_dir.glob("runs/*/attempt-1.json")]
    assert set(claims) == {worker.pid for worker in workers}  # both had a part in it


def test_killed_again_and_again_it_ends_with_every_run_and_repeats_none_that_was_finished(study, notes):
    work_list = WorkList(study.output_dir)
    kept: dict[str, str] = {}
    for kills in range(1, 6):
        # Held, so that it ends with none of the kills too late.
        worker = start_worker(study, HOLD_AFTER=str(2 * kills), SECONDS="0.1")
        wait_until(lambda kills=kills: len(journal(notes, "began")) >= 2 * kills)
        time.sleep(random.uniform(0, 0.2))  # at any moment from the beginning of a run to that of the next
        worker.kill()
        worker.join()
        assert worker.exitcode == -signal.SIGKILL
        finished = {run.id: json.dumps(result) for run, result in work_list.results(study.runs)}
        assert kept.items() <= finished.items()  # nothing lost, nothing done again
        kept = finished
    assert len(kept) < len(study.runs), "there must be something left to do"
    worker = start_worker(study)
    worker.join(HANGS)
    assert worker.exitcode == 0
    results = {run.id: result for run, result in work_list.results(study.runs)}
    assert {run.id: results[run.id]["metrics"] for run in study.runs} == {run.id: scores(run) for run in study.runs}
    assert kept.items() <= {run_id: json.dumps(result) for run_id, result in results.items()}.items()


def test_a_runs_process_ends_with_its_worker(study, notes):
    worker = start_worker(study, HOLD_AFTER="0")
    wait_until(lambda: journal(notes, "began"))
    process = psutil.Process(int(notes.read_text().split()[2]))

    def has_ended():
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE

    assert process.pid != worker.pid
    assert not has_ended()
    worker.kill()
    worker.join()
    wait_until(has_ended)
    assert has_ended()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_asked_to_stop_gives_its_runs_back(study, notes, number):
    worker = start_worker(study, HOLD_AFTER="0")
    wait_until(lambda: journal(notes, "began"))
    os.kill(worker.pid, number)
    worker.join(HANGS)
    (folder,) = {path.parent for path in study.output_dir.glob("runs/*/attempt-1.json")}
    assert json.loads((folder / "ended-1.json").read_text())["ending"] == "interrupted"
    assert set(study_table(study)["state"]) == {"waiting"}


def test_a_data_folder_may_name_a_variable_of_the_machine(monkeypatch):
    monkeypatch.setenv("DATA", "/data")
    assert expanded("$DATA/aapd") == "/data/aapd"
    with pytest.raises(ValueError, match="not set"):
        expanded("$NO_SUCH_VARIABLE/aapd")


def test_the_number_of_workers_is_checked(tmp_path):
    with pytest.raises(ValueError, match="workers must be at least 1; got 0"):
        run_study(make_study(tmp_path), workers=0, runner=quick_runner)


def test_a_run_whose_result_is_damaged_is_done_again_and_the_others_stay(tmp_path, notes):
    study = make_study(tmp_path / "out", ["toy_text"], ["bce", "reg"], [0])
    run_study(study, runner=quick_runner)
    (study.output_dir / "runs" / study.runs[0].id / "result.json").write_text('{"metrics": ')
    assert list(study_table(study)["state"]) == ["waiting", "finished"]
    assert run_study(study, runner=quick_runner).finished == 2
    assert Counter(journal(notes, "began")) == {study.runs[0].id: 2, study.runs[1].id: 1}
