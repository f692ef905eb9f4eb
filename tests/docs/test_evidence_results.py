"""The tables of docs/results.md on the losses are those of the runs that are kept beside the benchmarks."""

import json
from pathlib import Path

import pytest

from hf_mlcl.study import load_study
from hf_mlcl.study.rendering import to_markdown
from hf_mlcl.study.results import read_result
from hf_mlcl.study.tables import cost_tables, report_tables, space_tables

ROOT = Path(__file__).parents[2]
KEPT = sorted(path.name for path in (ROOT / "benchmarks" / "evidence").iterdir())


def kept(name):
    return load_study(f"evidence_{name}", [f"output_dir={ROOT / 'benchmarks' / 'evidence' / name}"])


@pytest.mark.parametrize("name", KEPT)
def test_every_row_of_a_finished_studys_tables_stands_in_the_docs(name):
    study = kept(name)
    if not all(read_result(study.run_folder(run)) for run in study.runs):
        pytest.skip(f"{name} has runs to come")
    page = (ROOT / "docs" / "results.md").read_text()
    tables = [*report_tables(study, per="setting"), *space_tables(study), *cost_tables(study)]
    rows = [line for table in tables for line in to_markdown(table).splitlines() if line.startswith("| ")]
    assert len(rows) > 3 * len(study.names("loss"))
    assert [row for row in rows if row not in page] == []


@pytest.mark.parametrize("name", KEPT)
def test_kept_runs_are_those_of_the_study_and_name_no_place_of_a_machine(name):
    study = kept(name)
    known = {study.run_folder(run).name for run in study.runs}
    folders = list((study.output_dir / "runs").iterdir())
    assert {folder.name for folder in folders} <= known
    for folder in folders:
        settings = json.loads((folder / "result.json").read_text())["settings"]
        paths = [value for value in settings.values() if isinstance(value, str) and value.startswith("/")]
        assert paths == [], folder.name
