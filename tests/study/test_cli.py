"""`hf-mlcl study` as a person uses it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from hf_mlcl.cli.study import study_app
from hf_mlcl.study import load_study, planned_study
from study.made import fail, finished_study, run

FILE = """
corpora: [toy_text]
losses: [bce, reg]
defaults: {num_train_epochs: 1, max_train_samples: 32, max_eval_samples: 16, linear_epochs: 1, use_cpu: true}
"""


@pytest.fixture
def call(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments):
        return CliRunner().invoke(study_app, [str(argument) for argument in arguments])

    return call


@pytest.fixture
def study(tmp_path):
    runs = [
        (run("toy_text", loss, seed), {"test_macro_f1": value + 0.01 * seed})
        for loss, value in (("bce", 0.2), ("reg", 0.5))
        for seed in range(3)
    ]
    return finished_study(tmp_path / "made", [*runs, (run("toy_text", "msc", 0), {})], metrics=("macro_f1",))


def test_a_file_alone_is_run_and_reported(call, tmp_path):
    (tmp_path / "mine.yaml").write_text(FILE)
    answer = call("mine.yaml", "--set", "num_train_epochs=2")
    assert answer.exit_code == 0, answer.output
    assert "2 of 2 runs are finished, 0 failed" in answer.output
    assert "Macro-F1" in answer.output
    folder = tmp_path / "outputs" / "mine"
    assert (folder / "runs.parquet").exists()
    assert planned_study(folder).runs[0].arguments["num_train_epochs"] == 2
    status = call("status", "mine.yaml")  # knows the runs that were planned, without --set
    assert "2 runs: 2 finished" in status.output
    again = json.loads(call("mine.yaml", "--set", "num_train_epochs=2", "--json").stdout)
    assert (again["total"], again["finished"], again["failed"]) == (2, 2, 0)
    assert [cell["loss"] for cell in again["tables"]["Macro-F1 (%)"]] == ["bce", "reg"]
    for log in folder.glob("runs/*/log.txt"):
        assert "train_loss" in log.read_text()
        assert not re.search(r"it/s|%\||\r", log.read_text()), "a run's output is plain lines, without progress bars"


def test_status_counts_estimates_and_names_errors(call, study):
    answer = call("status", study.output_dir)
    assert "6 finished, 1 waiting" in answer.output
    assert "about 60 s of one worker" in answer.output
    fail(study, study.runs[-1], "Traceback\nValueError: no [b]luck[/b]")
    answer = call("status", study.output_dir)
    assert "failed: ValueError: no [b]luck[/b]" in answer.output
    found = json.loads(call("status", study.output_dir, "--json").output)
    assert found["states"] == {"finished": 6, "failed": 1}
    assert found["runs"][-1]["error"] == "ValueError: no [b]luck[/b]"


def test_tables_in_every_format(call, study):
    assert "51.00* ± 1.00" in call("table", study.output_dir).output
    assert "| `reg` | **51.00** ± 1.00 |" in call("table", study.output_dir, "--format", "markdown").output
    assert r"\textbf{51.00}" in call("table", study.output_dir, "--format", "latex").output
    assert "<strong>51.00</strong>" in call("table", study.output_dir, "--format", "html").output
    found = json.loads(call("table", study.output_dir, "--json").output)
    assert found["Macro-F1 (%)"][1]["bold"] is True


def test_a_page_gets_the_tables_between_its_marks_and_keeps_the_rest(call, study, tmp_path):
    page = tmp_path / "docs" / "results.md"
    assert call("publish", study.output_dir, page).output.split() == [str(page)]
    first = page.read_text()
    assert first.startswith(
        "# made by hand\n\n<!-- study made by hand: begin -->\n\n6 of 7 runs of `made by hand`, 2027"
    )
    assert "| `reg` | **51.00** ± 1.00 |" in first
    words = "Before.\n\n{}\n\nAfter, with a \\1.\n"
    old = "<!-- study made by hand: begin -->\nold\n<!-- study made by hand: end -->"
    page.write_text(words.format(old))
    call("publish", study.output_dir, page)
    section = first.split("\n\n", 1)[1].rstrip()
    assert page.read_text() == words.format(section)
    page.write_text(words.format(old.split("\n")[0]))
    refused = call("publish", study.output_dir, page)
    assert (refused.exit_code, page.read_text()) == (2, words.format(old.split("\n")[0]))
    assert "must have" in refused.stderr
    page.write_bytes(b"Before.\r\n")
    call("publish", study.output_dir, page)
    assert page.read_bytes() == f"Before.\n\n{section}\n".replace("\n", "\r\n").encode()
    page.write_bytes(b"\xff")
    assert f"{page} is not a text in UTF-8" in " ".join(call("publish", study.output_dir, page).stderr.split())
    assert "is a folder" in call("publish", study.output_dir, tmp_path).stderr


def test_figures_that_cannot_be_drawn_are_named(call, study):
    answer = call("figures", study.output_dir)
    assert answer.exit_code == 1
    assert "alpha: not drawn; it needs" in answer.stderr
    assert call("figures", study.output_dir, "--name", "beta").exit_code == 2


def test_cost_is_estimated_with_its_assumptions(call, tmp_path):
    (tmp_path / "mine.yaml").write_text(FILE)
    answer = call("cost", "mine.yaml")
    assert answer.exit_code == 0, answer.output
    assert "Assumed: 100 x 10^12 operations per second on texts" in answer.output
    one, ten = (
        json.loads(call("cost", "mine.yaml", "--tera_ops", rate, "--json").output)["costs"]["total"] for rate in (1, 10)
    )
    assert one["runs"] == 2
    assert one["hours"] == pytest.approx(10 * ten["hours"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.yaml"], "There is no study file 'none.yaml'"),
        (["status", "."], "holds no study yet"),
        (["bad.yaml"], "There is no key 'corpra'. Known, nearest first: corpora"),
        (["good.yaml", "--set", "sed=1"], "no argument 'sed'"),
        (["good.yaml", "--shard", "0/4"], "must be K/N with K from 1 to N"),
        (["good.yaml", "--shard", "half"], "must be K/N with K from 1 to N"),
        (["good.yaml", "--ray", "--workers", "2"], "--workers cannot be given with Ray"),
    ],
)
def test_what_is_wrong_is_said_and_the_exit_code_is_2(call, tmp_path, arguments, said):
    (tmp_path / "bad.yaml").write_text("corpra: [toy_text]")
    (tmp_path / "good.yaml").write_text(FILE)
    answer = call(*arguments)
    assert answer.exit_code == 2
    assert said in answer.stderr
    assert "Traceback" not in answer.output


def test_a_study_that_has_not_begun_has_no_table_and_no_figures_and_is_left_as_it_is(call, tmp_path):
    (tmp_path / "mine.yaml").write_text(FILE)
    for command in ("table", "figures"):
        answer = call(command, "mine.yaml")
        assert (answer.exit_code, answer.stdout) == (1, "")
        assert "No run is finished yet: start them with `hf-mlcl study run mine.yaml`" in answer.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]
    assert "2 runs: 2 waiting" in call("status", "mine.yaml").output


@pytest.mark.parametrize("arguments", [["--help"], ["corpora"], ["corpora", "--json"], ["study", "--help"]])
def test_the_program_ends_without_a_word_where_nobody_reads_on(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as closed:
        command = [sys.executable, "-m", "hf_mlcl", *arguments]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        ended = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True, env=environment)
    assert (ended.returncode, ended.stderr) == (1, "")


@pytest.mark.parametrize("command", ["status", "table"])
def test_what_is_printed_of_finished_runs_takes_neither_torch_nor_transformers(tmp_path, command):
    (tmp_path / "mine.yaml").write_text(FILE)
    runs = load_study(tmp_path / "mine.yaml").runs
    metrics = {"test_macro_f1": 0.5, "alignment": 0.3, "uniformity": -1.0}
    finished_study(tmp_path / "outputs/mine", [(run, metrics) for run in runs])
    code = """if True:
        import sys
        sys.argv[0] = "hf-mlcl"
        from hf_mlcl.cli import main
        try:
            main()
        finally:
            print(sorted({"torch", "transformers"} & set(sys.modules)), file=sys.stderr)
        """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", code, "study", command, "mine.yaml"],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "[]\n")
    assert (tmp_path / "outputs/mine/figures/space.png").exists() is (command == "table")


@pytest.mark.parametrize("content", ["", '{"metrics": '])
def test_a_damaged_result_blocks_neither_the_table_nor_the_status(content, call, study, caplog):
    damaged = study.output_dir / "runs" / study.runs[0].id / "result.json"
    damaged.write_text(content)
    table = call("table", study.output_dir)
    assert table.exit_code == 0, table.output
    assert "reg" in table.output
    status = json.loads(call("status", study.output_dir, "--json").stdout)
    assert status["states"] == {"finished": 5, "waiting": 2}
    assert f"{damaged} is damaged" in caplog.text


def test_changes_are_refused_for_the_folder_of_a_study(call, study):
    answer = call("table", study.output_dir, "--set", "report.level=0.5")
    assert answer.exit_code == 2
    assert "is the folder of its runs. Give the file" in " ".join(answer.output.split())
