"""The tables of docs/results.md on the losses are those of the runs that are kept beside the benchmarks."""

import json
from pathlib import Path

import pytest

from hf_mlcl.study import load_study
from hf_mlcl.study.publishing import publish_into
from hf_mlcl.study.results import read_result

ROOT = Path(__file__).parents[2]
KEPT = sorted(path.name for path in (ROOT / "benchmarks" / "evidence").iterdir())


def kept(name):
    return load_study(f"evidence_{name}", [f"output_dir={ROOT / 'benchmarks' / 'evidence' / name}"])


@pytest.mark.parametrize("name", KEPT)
def test_a_studys_section_of_the_docs_is_what_its_runs_give(name, tmp_path):
    study, page = kept(name), tmp_path / "results.md"
    if not all(read_result(study.run_folder(run)) for run in study.runs):
        pytest.skip(f"{name} has runs to come")
    before = (ROOT / "docs" / "results.md").read_text()
    assert f"<!-- study evidence_{name}: begin -->" in before
    page.write_text(before)
    publish_into(study, page, per="study" if len(study.names("setting")) > 1 else "setting")
    assert page.read_text() == before


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
