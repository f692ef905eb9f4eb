"""Claims: exactly one worker has a run at any time, and what a dead one leaves is taken up."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import subprocess
import sys
import time

import psutil
import pytest

from copies import HANGS
from hf_mlcl.study import StudyError, WorkList
from hf_mlcl.study.worklist import Worker, read_json, write_json
from study.made import result
from study.quick import make_study


@pytest.fixture
def planned(tmp_path):
    study = make_study(tmp_path)
    work_list = WorkList(tmp_path, lease=3600)
    work_list.plan(study)
    return study, work_list


def dead_worker() -> Worker:
    """A worker of this machine whose process has ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    worker = dataclasses.replace(Worker.this(), pid=process.pid, started=psutil.Process(process.pid).create_time())
    assert worker.is_alive()
    process.communicate()
    return worker


def elsewhere() -> Worker:
    return Worker(host="another-machine", boot="another-boot", pid=1, started=0.0, token="elsewhere")


def test_a_plan_is_read_back_as_it_was_written(planned):
    study, work_list = planned
    assert work_list.study() == study
    assert {work_list.status(run).state for run in study.runs} == {"waiting"}


def test_a_folder_without_a_study_says_so(tmp_path):
    with pytest.raises(StudyError, match="holds no study yet"):
        WorkList(tmp_path).study()


def test_planning_again_keeps_what_is_there(planned):
    study, work_list = planned
    claim = work_list.claim(study.runs[0], Worker.this())
    write_json(claim.folder / "result.json", result({}, {}))
    work_list.plan(dataclasses.replace(study, runs=study.runs[:3]))
    work_list.plan(study)
    assert work_list.status(study.runs[0]).state == "finished"
    assert len(work_list.study().runs) == len(study.runs)


def _claim_all(folder, study, together, queue):
    work_list, me = WorkList(folder), Worker.this()
    together.wait()
    queue.put([run.id for run in study.runs if work_list.claim(run, me) is not None])
    together.wait()  # a process that ends is a dead worker, whose runs are free


def test_of_many_processes_that_claim_every_run_at_once_each_run_goes_to_exactly_one(tmp_path):
    study = make_study(tmp_path, seeds=range(10))
    WorkList(tmp_path).plan(study)
    context = multiprocessing.get_context("fork")
    together, queue = context.Barrier(6), context.Queue()
    processes = [context.Process(target=_claim_all, args=(tmp_path, study, together, queue)) for _ in range(6)]
    for process in processes:
        process.start()
    claimed = [queue.get(timeout=HANGS) for _ in processes]
    for process in processes:
        process.join()
    assert sorted(run_id for each in claimed for run_id in each) == sorted(run.id for run in study.runs)


def test_a_living_workers_run_is_nobody_elses(planned):
    study, work_list = planned
    run = study.runs[0]
    assert work_list.claim(run, Worker.this()) is not None
    assert work_list.status(run).state == "running"
    assert work_list.claim(run, Worker.this()) is None


def test_a_dead_workers_run_is_taken_up_at_once_and_by_one_only(planned):
    study, work_list = planned
    run = study.runs[0]
    assert work_list.claim(run, dead_worker()).attempt == 1
    assert work_list.status(run).state == "waiting"
    assert work_list.claim(run, Worker.this()).attempt == 2
    assert work_list.claim(run, Worker.this()) is None


def test_a_process_that_has_a_dead_workers_number_is_not_taken_for_it(planned):
    study, work_list = planned
    me = Worker.this()
    earlier = dataclasses.replace(me, started=me.started - 1000)
    work_list.claim(study.runs[0], earlier)
    assert work_list.status(study.runs[0]).state == "waiting"


def test_a_worker_that_cannot_be_seen_is_dead_only_when_its_lease_has_run_out(planned):
    study, work_list = planned
    claim = work_list.claim(study.runs[0], elsewhere())
    assert work_list.status(study.runs[0]).state == "running"
    old = time.time() - 4000
    os.utime(claim.path, (old, old))
    assert work_list.status(study.runs[0]).state == "waiting"
    assert claim.beat()
    assert work_list.status(study.runs[0]).state == "running"


def test_a_worker_that_was_taken_for_dead_learns_that_its_run_is_anothers(planned):
    study, work_list = planned
    claim = work_list.claim(study.runs[0], elsewhere())
    os.utime(claim.path, (0, 0))
    assert work_list.claim(study.runs[0], Worker.this()) is not None
    assert not claim.beat()


def test_a_run_that_a_dying_worker_finished_is_not_done_again(planned):
    study, work_list = planned
    claim = work_list.claim(study.runs[0], dead_worker())
    write_json(claim.folder / "result.json", result({}, {}))
    assert work_list.status(study.runs[0]).state == "finished"
    assert work_list.claim(study.runs[0], Worker.this()) is None


def test_a_failed_run_keeps_its_error_and_is_claimed_only_on_demand(planned):
    study, work_list = planned
    run = study.runs[0]
    work_list.claim(run, Worker.this()).end("failed", "Traceback ...\nValueError: no")
    status = work_list.status(run)
    assert (status.state, status.error.splitlines()[-1]) == ("failed", "ValueError: no")
    assert work_list.claim(run, Worker.this()) is None
    assert work_list.claim(run, Worker.this(), retry=lambda status: True).attempt == 2


def test_an_interrupted_run_waits_for_the_next(planned):
    study, work_list = planned
    work_list.claim(study.runs[0], Worker.this()).end("interrupted")
    assert work_list.status(study.runs[0]).state == "waiting"
    assert work_list.claim(study.runs[0], Worker.this()) is not None


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path):
    circular = []
    circular.append(circular)
    with pytest.raises(ValueError, match="Circular"):
        write_json(tmp_path / "file.json", circular)
    assert list(tmp_path.iterdir()) == []
    assert read_json(tmp_path / "file.json") is None


def with_metrics(metrics):
    return json.dumps({**result({}, {}), "metrics": metrics})


DAMAGED = [
    *("", '{"metr', "[]", '{"metrics": {}}', "\\x00" * 9, "[" * 100_000, None),
    *(with_metrics(wrong) for wrong in (None, [], "0.5", {"test_micro_f1": "0.5"}, {"test_micro_f1": {}})),
]


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_result_is_named_and_its_run_waits_to_be_done_again(content, planned, caplog):
    study, work_list = planned
    for run in study.runs[:2]:
        claim = work_list.claim(run, Worker.this())
        write_json(claim.folder / "result.json", result({"test_micro_f1": 0.5}, run.arguments))
        claim.end("finished")
    damaged = work_list.run_folder(study.runs[0]) / "result.json"
    if content is None:  # it can be opened, but not read
        damaged.unlink()
        damaged.mkdir()
    else:
        damaged.write_text(content)
    assert [work_list.status(run).state for run in study.runs[:2]] == ["waiting", "finished"]
    assert [run.id for run, _ in work_list.results(study.runs)] == [study.runs[1].id]
    assert caplog.text.count(f"{damaged} is damaged and not used") == 1
    assert work_list.claim(study.runs[0], Worker.this()).attempt == 2


@pytest.mark.parametrize("name", ["attempt-1.json", "ended-1.json"])
def test_a_damaged_claim_or_ending_does_not_block_its_run(name, planned):
    study, work_list = planned
    claim = work_list.claim(study.runs[0], dead_worker())
    claim.end("interrupted")
    (claim.folder / name).write_text("")
    assert work_list.status(study.runs[0]).state == "waiting"
    assert work_list.claim(study.runs[0], Worker.this()).attempt == 2


@pytest.mark.parametrize("name", ["plan.json", "runs/{run.id}/run.json"])
def test_a_damaged_plan_is_named_and_planning_again_mends_it(name, planned):
    study, work_list = planned
    path = work_list.folder / name.format(run=study.runs[0])
    path.write_text('{"half')
    with pytest.raises(StudyError, match=rf"{path.name} is (gone or )?damaged: `hf-mlcl study run FILE` writes it"):
        work_list.study()
    work_list.plan(study)
    assert work_list.study() == study
