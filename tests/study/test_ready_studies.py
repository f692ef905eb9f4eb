"""The study files that come with the project."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from typer.testing import CliRunner

from hf_mlcl.cli.app import app
from hf_mlcl.study import StudyError, load_outline, load_study, ready_studies
from hf_mlcl.study.cost import study_cost
from study.test_paper import numbers

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


def test_a_ready_study_is_found_by_name_from_any_folder_and_a_file_goes_before_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert sorted(ready_studies()) == [path.stem for path in FILES]
    assert len(load_study("quick").runs) == 24
    assert load_outline("table_full").output_dir == Path("outputs/table_full")
    (tmp_path / "quick").mkdir()  # a folder of that name is no study file
    assert load_outline("quick").description
    (tmp_path / "semeval").write_text("description: mine")
    assert load_outline("semeval").description == "mine"
    with pytest.raises(
        StudyError, match=r"no study file 'tabel_full'\. Ready ones, by name: .*figure_alpha, .*table_full"
    ):
        load_study("tabel_full")


def test_the_wheel_holds_the_ready_studies_and_the_repository_a_link_to_them():
    inside = ROOT / "src" / "hf_mlcl" / "studies"
    assert not inside.is_symlink()
    assert (ROOT / "studies").resolve() == inside
    assert not Path(os.readlink(ROOT / "studies")).is_absolute()
    files = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert {f"hf_mlcl/studies/{path.name}" for path in FILES} <= files


def test_the_share_of_training_data_is_studied_with_the_papers_search_over_epochs():
    runs = load_study("figure_data_share").runs
    epochs = {
        kind: {run.arguments.get("num_train_epochs") for run in runs if run.kind == kind}
        for kind in ("logit", "contrastive")
    }
    assert epochs == {"logit": {5, 10, 20}, "contrastive": {None}}  # the recipe's 10


def test_the_cost_of_a_study_shows_every_setting_with_its_origin():
    done = CliRunner().invoke(app, ["study", "cost", "table_newsgroups", "--settings"])
    assert done.exit_code == 0
    assert "newsgroups20, logit, the first of" in done.stdout
    assert re.search(r"^max_length +220 +paper$", done.stdout, re.MULTILINE)
    assert re.search(r"^learning_rate +5e-05 +study", done.stdout, re.MULTILINE)
    assert "steps  " in done.stdout
    as_json = CliRunner().invoke(app, ["study", "cost", "table_newsgroups", "--settings", "--json"])
    settings = json.loads(as_json.stdout)["settings"]["newsgroups20, contrastive"]
    assert settings["study"]["linear_epochs"] == {"value": 40, "origin": "authors' code", "note": "", "tried": []}


def test_the_examples_in_the_docs_are_valid_studies(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "studies.md").read_text()
    example, own = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    path = tmp_path / "example.yaml"
    path.write_text(example)
    study = load_study(path)
    # 3 seeds x 2 searched values x (3 losses x 2 settings - the one that is skipped)
    assert (study.name, len(study.runs)) == ("emotions", 3 * 2 * 5)
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"a text {i},{'plot|music' if i % 2 else 'plot'}\n" for i in range(20))
    (tmp_path / "reviews.csv").write_text(f"text,tags\n{rows}")
    path.write_text(own)
    assert len(load_study(path, ["backbone=small"]).runs) == 3 * 3


def test_every_number_of_the_papers_tables_has_a_study_that_makes_it():
    made = {
        (run.arguments["corpus"], run.arguments.get("size", "full"), run.arguments["loss"], metric)
        for path in FILES
        for study in [load_study(path)]
        for run in study.runs
        for metric in (*study.report.metrics, "alignment", "uniformity")
    }
    assert {number[:4] for number in numbers()} <= made
