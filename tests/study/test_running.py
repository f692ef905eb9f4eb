"""A study's runs: what they survive, what they leave, and that none is done twice."""

from __future__ import annotations

import dataclasses
import importlib
import json
import multiprocessing
import os
import random
import re
import signal
import time
from collections import Counter
from pathlib import Path

import pandas
import psutil
import pytest

import hf_mlcl.study
import hf_mlcl.study.running
from copies import HANGS
from experiments.tiny import text_backbone
from hf_mlcl.data import read_own_data
from hf_mlcl.data.own import data_fingerprint
from hf_mlcl.experiments.output_folder import OutputFolder
from hf_mlcl.experiments.results import DATA_FINGERPRINT
from hf_mlcl.study import execution, load_study, run_study, study_table
from hf_mlcl.study.execution import expanded, has_other_data, run_experiment_of
from hf_mlcl.study.results import read_result, run_lock, run_state
from study.made import fail
from study.quick import commands, journal, make_study, quick_runner, scores

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def notes(tmp_path, monkeypatch):
    path = tmp_path / "journal.txt"
    monkeypatch.setenv("JOURNAL", str(path))
    return path


@pytest.fixture
def study(tmp_path):
    return make_study(tmp_path / "out")


def start_command(study, workers=1, clock=None, **environment):
    """A command in a process of its own; a copy of this one, which has the imports behind it."""
    process = FORK.Process(target=_work, args=(study, workers, clock, environment))
    process.start()
    return process


def _work(study, workers, clock, environment):
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
    hf_mlcl.study.running.processes = lambda *modules, cuda: FORK
    if clock is not None:
        time.time = clock
    run_study(study, workers=workers, runner=quick_runner)


def wait_until(condition):
    end = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def results(study):
    found = {run.id: read_result(study.run_folder(run)) for run in study.runs}
    return {run_id: result for run_id, result in found.items() if result}


def all_metrics(study):
    return {run_id: result["metrics"] for run_id, result in results(study).items()}


def expected_metrics(study):
    return {run.id: scores(run) for run in study.runs}


def test_every_run_is_done_once_and_its_result_says_what_where_and_when(study, notes):
    lines = []
    progress = run_study(study, workers=2, runner=quick_runner, notify=lambda line, _: lines.append(line))
    assert (progress.finished, progress.failed) == (12, 0)
    assert Counter(journal(notes, "began")) == Counter(run.id for run in study.runs)
    assert all_metrics(study) == expected_metrics(study)
    for result in results(study).values():
        assert result["versions"].keys() >= {"python", "torch", "transformers", "hf-mlcl"}
        assert result["seconds"]["total"] >= result["seconds"]["train"]
        assert result["seconds"]["cpu"] >= 0
        assert 0.01 < result["machine"]["memory_gb"] < 1000
    for word in ("started", "finished"):
        assert sum(line.startswith(word) for line in lines) == 12
    assert run_study(study, runner=quick_runner).finished == 12
    assert len(journal(notes, "began")) == 12


@pytest.mark.parametrize(
    ("keep", "left"), [("results", set()), ("models", {"encoder"}), ("everything", {"encoder", "checkpoint-1"})]
)
def test_a_finished_run_keeps_what_the_study_says(tmp_path, notes, keep, left):
    study = dataclasses.replace(make_study(tmp_path / "out", ["toy_text"], ["reg"], [0]), keep=keep)
    run_study(study, runner=quick_runner)
    assert {path.name for path in (study.run_folder(study.runs[0]) / "work").iterdir()} == left


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


def test_failed_runs_are_tried_again_only_on_demand_and_once(tmp_path, notes, monkeypatch):
    study = make_study(tmp_path / "out", ["toy_text"], ["bce", "reg"], [0])
    fail(study, study.runs[0], "ValueError: no")
    assert run_study(study, runner=quick_runner).failed == 1
    assert journal(notes, "began") == [study.runs[1].id]
    monkeypatch.setenv("TROUBLE", json.dumps({"bce": "raise"}))
    assert run_study(study, runner=quick_runner, retry_failed=True).failed == 1
    assert journal(notes, "began")[1:] == [study.runs[0].id]
    monkeypatch.delenv("TROUBLE")
    assert run_study(study, runner=quick_runner, retry_failed=True).finished == 2
    assert set(study_table(study)["state"]) == {"finished"}


def test_two_commands_at_once_share_the_work_and_do_each_run_once(study, notes):
    both = [start_command(study, workers=2, COMMANDS="2") for _ in range(2)]
    for command in both:
        command.join(HANGS)
    assert [command.exitcode for command in both] == [0, 0]
    assert Counter(journal(notes, "began")) == Counter(run.id for run in study.runs)
    assert commands(notes) == {str(command.pid) for command in both}
    assert all_metrics(study) == expected_metrics(study)


def _stepping_back():
    """A clock that is set back by a day whenever somebody looks."""
    _stepping_back.now = getattr(_stepping_back, "now", 2e9) - 86_400
    return _stepping_back.now


def test_steps_of_the_clock_change_nothing(study, notes):
    both = [start_command(study, clock=_stepping_back, COMMANDS="2"), start_command(study, COMMANDS="2")]
    for command in both:
        command.join(HANGS)
    for path in study.output_dir.rglob("*"):
        os.utime(path, (4e9, 4e9))  # the file system's clock as well
    start_command(study).join(HANGS)
    assert Counter(journal(notes, "began")) == Counter(run.id for run in study.runs)
    assert all_metrics(study) == expected_metrics(study)


@pytest.mark.parametrize("name", ["running", "execution", "results", "on_ray"])
def test_nothing_is_decided_by_a_clock(name):
    source = Path(importlib.import_module(f"hf_mlcl.study.{name}").__file__).read_text()
    assert not re.search(r"time\.time\(|monotonic|st_mtime|getmtime|utime|create_time|sleep", source)
    assert source.count("datetime.now") == (name == "execution")  # printed in results, for people
    if name == "execution":
        assert source.count("_now()") == 3  # its definition, the log, the result


def test_killed_again_and_again_it_ends_with_every_run_and_repeats_none_that_was_finished(study, notes):
    kept: dict[str, str] = {}
    for kills in range(1, 4):
        # Held, so that it ends with none of the kills too late.
        command = start_command(study, HOLD_AFTER=str(3 * kills), SECONDS="0.1")
        wait_until(lambda kills=kills: len(journal(notes, "began")) >= 3 * kills)
        time.sleep(random.uniform(0, 0.2))  # at any moment from the beginning of a run to that of the next
        command.kill()
        command.join()
        assert command.exitcode == -signal.SIGKILL
        done = {run_id: json.dumps(result) for run_id, result in results(study).items()}
        assert kept.items() <= done.items()  # nothing lost, nothing done again
        kept = done
    assert len(kept) < len(study.runs), "there must be something left to do"
    command = start_command(study)
    command.join(HANGS)
    assert command.exitcode == 0
    assert all_metrics(study) == expected_metrics(study)
    assert kept.items() <= {run_id: json.dumps(result) for run_id, result in results(study).items()}.items()


def test_a_runs_process_ends_with_its_command(study, notes):
    command = start_command(study, HOLD_AFTER="0")
    wait_until(lambda: journal(notes, "began"))
    process = psutil.Process(int(notes.read_text().split()[2]))

    def has_ended():
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE

    assert process.pid != command.pid
    assert not has_ended()
    command.kill()
    command.join()
    wait_until(has_ended)
    assert has_ended()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_command_that_is_asked_to_stop_leaves_its_runs_to_the_next(study, notes, number):
    command = start_command(study, HOLD_AFTER="0")
    wait_until(lambda: journal(notes, "began"))
    assert list(study_table(study)["state"]).count("running") == 1
    os.kill(command.pid, number)
    command.join(HANGS)
    wait_until(lambda: set(study_table(study)["state"]) == {"waiting"})
    assert run_study(study, runner=quick_runner).finished == 12


def test_a_run_that_another_process_is_at_is_left_to_it_and_done_where_that_leaves_it_undone(tmp_path, notes):
    study = make_study(tmp_path / "out", ["toy_text"], ["bce", "reg"], [0])
    first = study.run_folder(study.runs[0])
    lines = []
    with run_lock(first):
        progress = run_study(study, runner=quick_runner, notify=lambda line, _: lines.append(line))
    assert (progress.finished, progress.failed) == (1, 0)
    assert "left toy_text bce seed 0 to another command" in lines
    lock = run_lock(first).acquire()

    def release(line, _):
        if line.startswith("left"):
            lock.lock.release()

    assert run_study(study, runner=quick_runner, notify=release).finished == 2
    assert Counter(journal(notes, "began")) == Counter(run.id for run in study.runs)


def test_shards_are_parts_that_make_the_whole(study, notes):
    for number in (1, 2, 3):
        progress = run_study(study, shard=(number, 3), runner=quick_runner)
        assert (progress.total, progress.finished) == (4, 4)
        assert len(results(study)) == 4 * number
    assert Counter(journal(notes, "began")) == Counter(run.id for run in study.runs)
    with pytest.raises(ValueError, match=r"shard must be \(k, n\) with k from 1 to n; got \(0, 3\)"):
        run_study(study, shard=(0, 3))


def test_a_data_folder_may_name_a_variable_of_the_machine(monkeypatch):
    monkeypatch.setenv("DATA", "/data")
    assert expanded("$DATA/aapd") == "/data/aapd"
    with pytest.raises(ValueError, match="not set"):
        expanded("$NO_SUCH_VARIABLE/aapd")


def test_a_result_names_places_as_the_study_does_and_not_as_the_machine(tmp_path, monkeypatch):
    """So that results of one machine are those of another, and can be shown to anybody."""
    monkeypatch.setenv("ENCODERS", str(tmp_path))
    text_backbone(tmp_path / "tiny")
    (tmp_path / "study.yaml").write_text("""
        corpora: [toy_text]
        losses: [bce]
        defaults: {backbone: $ENCODERS/tiny, max_train_samples: 40, max_eval_samples: 20, max_steps: 1, use_cpu: true}
    """)
    study = load_study(tmp_path / "study.yaml", [f"output_dir={tmp_path / 'out'}"])
    (run,) = study.runs
    settings = run_experiment_of(run, tmp_path / "run")["settings"]
    assert (settings["backbone"], settings["used_backbone"]) == ("$ENCODERS/tiny", "tiny")
    assert [name for name, value in settings.items() if str(tmp_path) in str(value)] == []
    monkeypatch.delenv("ENCODERS")
    with pytest.raises(ValueError, match=r"backbone '\$ENCODERS/tiny' names an environment variable that is not set"):
        run_experiment_of(run, tmp_path / "run")
    with pytest.raises(ValueError, match=r"not set here: \$ENCODERS\. .* --set backbone=PATH"):
        run_study(study)
    assert run_state(study.run_folder(run)) == "waiting"  # and not failed


def test_a_run_does_not_go_on_from_weights_that_learned_from_other_rows(tmp_path):
    def of(texts):
        return read_own_data(pandas.DataFrame({"text": texts, "labels": ["a", "b"] * (len(texts) // 2)}))

    before, now = of([f"row {i}" for i in range(20)]), of([f"row {i}" for i in range(22)])
    assert not has_other_data(tmp_path, now)  # nothing was begun
    OutputFolder(tmp_path).begin({DATA_FINGERPRINT: data_fingerprint(before.splits)})
    assert (has_other_data(tmp_path, before), has_other_data(tmp_path, now)) == (False, True)


def test_the_number_of_workers_is_checked(tmp_path):
    with pytest.raises(ValueError, match="workers must be at least 1; got 0"):
        run_study(make_study(tmp_path), workers=0, runner=quick_runner)
    with pytest.raises(ValueError, match="workers cannot be given with ray"):
        run_study(make_study(tmp_path), workers=2, ray=True, runner=quick_runner)


def test_a_run_whose_result_is_damaged_is_done_again_and_the_others_stay(tmp_path, notes):
    study = make_study(tmp_path / "out", ["toy_text"], ["bce", "reg"], [0])
    run_study(study, runner=quick_runner)
    (study.run_folder(study.runs[0]) / "result.json").write_text('{"metrics": ')
    assert list(study_table(study)["state"]) == ["waiting", "finished"]
    assert run_study(study, runner=quick_runner).finished == 2
    assert Counter(journal(notes, "began")) == {study.runs[0].id: 2, study.runs[1].id: 1}


def test_cpu_seconds_are_those_of_this_process_and_the_peak_of_memory_is_at_least_what_is_held():
    before, start = execution._cpu_seconds(), time.process_time()
    while time.process_time() - start < 0.3:
        pass
    assert execution._cpu_seconds() - before == pytest.approx(time.process_time() - start, abs=0.2)
    held = psutil.Process().memory_info().rss
    assert 0.99 * held <= execution.peak_memory() <= psutil.virtual_memory().total
