"""The folder of a study: a plan and results that are whole or count as not there."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from hf_mlcl.files import write_json
from hf_mlcl.study import StudyError, planned_study
from hf_mlcl.study.results import kept_files, read_result, run_lock, run_state, study_table, write_plan
from study.made import fail, result
from study.quick import make_study


@pytest.fixture
def study(tmp_path):
    study = make_study(tmp_path)
    write_plan(study)
    return study


def test_a_plan_is_read_back_as_it_was_written(study):
    assert planned_study(study.output_dir) == study
    assert {run_state(study.run_folder(run)) for run in study.runs} == {"waiting"}


def test_a_folder_without_a_study_says_so(tmp_path):
    with pytest.raises(StudyError, match="holds no study yet"):
        planned_study(tmp_path)


def test_planning_again_keeps_what_is_there(study):
    write_json(study.run_folder(study.runs[0]) / "result.json", result({}, {}))
    write_plan(dataclasses.replace(study, runs=study.runs[:3]))
    write_plan(study)
    assert run_state(study.run_folder(study.runs[0])) == "finished"
    assert len(planned_study(study.output_dir).runs) == len(study.runs)


def test_a_run_is_finished_running_failed_or_waiting(study):
    folder = study.run_folder(study.runs[0])
    fail(study, study.runs[0], "ValueError: no")
    assert run_state(folder) == "failed"
    with run_lock(folder):
        assert run_state(folder) == "running"
    assert run_state(folder) == "failed"
    write_json(folder / "result.json", result({}, {}))
    assert run_state(folder) == "finished"


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path):
    circular = []
    circular.append(circular)
    with pytest.raises(ValueError, match="Circular"):
        write_json(tmp_path / "result.json", circular)
    assert list(tmp_path.iterdir()) == []
    assert read_result(tmp_path) is None


def with_metrics(metrics):
    return json.dumps({**result({}, {}), "metrics": metrics})


DAMAGED = [
    *("", '{"metr', "[]", '{"metrics": {}}', "\\x00" * 9, "[" * 100_000, None),
    *(with_metrics(wrong) for wrong in (None, [], "0.5", {"test_micro_f1": "0.5"}, {"test_micro_f1": {}})),
]


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_result_is_named_and_its_run_waits_to_be_done_again(content, study, caplog):
    for run in study.runs[:2]:
        write_json(study.run_folder(run) / "result.json", result({"test_micro_f1": 0.5}, run.arguments))
    damaged = study.run_folder(study.runs[0]) / "result.json"
    if content is None:  # it can be opened, but not read
        damaged.unlink()
        damaged.mkdir()
    else:
        damaged.write_text(content)
    for _ in range(2):
        assert [run_state(study.run_folder(run)) for run in study.runs[:2]] == ["waiting", "finished"]
    assert caplog.text.count(f"{damaged} is damaged and not used") == 1


def test_a_damaged_failure_does_not_block_its_run(study):
    fail(study, study.runs[0], "ValueError: no")
    (study.run_folder(study.runs[0]) / "failure.json").write_text("")
    assert run_state(study.run_folder(study.runs[0])) == "waiting"


@pytest.mark.parametrize("content", ['{"half', '{"name": "x"}', None])
def test_a_damaged_plan_is_named_and_planning_again_fixes_it(content, study):
    path = study.output_dir / "plan.json"
    earlier = {**json.loads(path.read_text()), "runs": [run.id for run in study.runs]}  # as older versions wrote it
    path.write_text(json.dumps(earlier) if content is None else content)
    with pytest.raises(StudyError, match=r"plan.json is damaged: `hf-mlcl study run FILE` writes it"):
        planned_study(study.output_dir)
    write_plan(study)
    assert planned_study(study.output_dir) == study


def test_a_number_that_is_none_is_no_reason_to_lose_what_a_run_has_kept(study):
    content = {"per_label": [{"label": "joy", "train_rows": 3, "f1": 0.5}], "history": [{"step": 10, "loss": None}]}
    write_json(study.run_folder(study.runs[0]) / "work" / "metrics.json", content)
    kept = kept_files(study, study.runs[0].id)
    assert kept["labels"] == [("joy", 3, 0.5)]
    assert [log["step"] for log in kept["history"]] == [10]
    assert np.isnan(kept["history"][0]["loss"])


def test_the_table_says_what_came_of_an_auto_in_the_file(study):
    run = study.runs[0]
    run.arguments.update(bf16="auto", pooling="auto", seed=5)
    write_json(study.run_folder(run) / "result.json", result({}, {"bf16": True, "seed": 4}))
    row = study_table(study).iloc[0]
    assert (row["argument.bf16"], row["argument.pooling"], row["argument.seed"]) == (True, "auto", 5)
