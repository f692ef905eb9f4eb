"""The study files that come with the project."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hf_mlcl.study import load_study
from hf_mlcl.study.cost import study_cost
from hf_mlcl.study.paper import paper_values

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "studies").glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_ready_study_is_valid_and_its_cost_is_as_its_first_lines_say(path):
    study = load_study(path)
    total = study_cost(study)["total"]
    opening = path.read_text().split("\n\n")[0]
    assert f"{total.runs:,} runs" in opening
    assert study.description
    if total.hours > 1:
        assert f"about {float(f'{total.hours:.2g}'):,.0f} GPU hours" in opening


def test_the_example_in_the_docs_is_a_valid_study(tmp_path):
    page = (ROOT / "docs" / "studies.md").read_text()
    (example,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    path = tmp_path / "example.yaml"
    path.write_text(example)
    study = load_study(path)
    # 3 seeds x 2 searched values x (3 losses x 2 settings - the one that is skipped)
    assert (study.name, len(study.runs)) == ("emotions", 3 * 2 * 5)


def test_every_number_of_the_papers_tables_has_a_study_that_makes_it():
    made = {
        (run.arguments["corpus"], run.arguments.get("size", "full"), run.arguments["loss"], metric)
        for path in FILES
        for study in [load_study(path)]
        for run in study.runs
        for metric in (*study.report.metrics, "alignment", "uniformity")
    }
    assert set(map(tuple, paper_values())) <= made
