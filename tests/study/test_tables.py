"""Tables: the right numbers in bold, everything escaped, the paper's numbers where they belong."""

from __future__ import annotations

import dataclasses
import html.parser
import re
import threading

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from hf_mlcl.experiments.results import save_decisions
from hf_mlcl.study import publishing
from hf_mlcl.study.figures import FIGURES, Drawing
from hf_mlcl.study.publishing import publish
from hf_mlcl.study.rendering import to_html, to_latex, to_markdown
from hf_mlcl.study.results import save_table, select, study_table
from hf_mlcl.study.tables import Cell, ReportTable, Row, cost_tables, report_tables, space_tables
from study.made import finished_study, run

MACRO = {  # the answer is known from test_significance: zlpr and reg win, wo_reg is always a little worse
    "zlpr": [0.80, 0.82, 0.81, 0.83, 0.80],
    "reg": [0.81, 0.80, 0.82, 0.81, 0.81],
    "wo_reg": [0.79, 0.81, 0.80, 0.82, 0.79],
    "reg+zlpr": [0.50, 0.55, 0.52, 0.57, 0.51],
}


@pytest.fixture
def study(tmp_path):
    runs = [
        (
            run("aapd", loss, seed, size, size=size, backbone="roberta-base"),
            {"test_macro_f1": value - shift, "test_hamming_loss": 1 - value},
        )
        for size, shift in (("full", 0.0), ("small", 0.1))
        for loss, values in MACRO.items()
        for seed, value in enumerate(values)
    ]
    return finished_study(tmp_path, runs, metrics=("macro_f1", "hamming_loss"))


def test_means_deviations_and_bold_are_those_of_the_runs(study):
    table = report_tables(study)[0]
    assert table.title == "Macro-F1 (%)"
    cells = {(value["loss"], value["column"]): value for value in table.values()}
    for loss, values in MACRO.items():
        cell = cells[loss, "AAPD full ours"]
        assert float(cell["value"]) == pytest.approx(100 * np.mean(values), abs=0.006)
        assert float(cell["deviation"]) == pytest.approx(100 * np.std(values, ddof=1), abs=0.006)
        assert cell["bold"] == (loss in ("zlpr", "reg"))
    assert [row.loss for row in table.rows] == ["zlpr", "reg", "wo_reg", "reg+zlpr"]
    assert [row.group for row in table.rows] == ["Losses on logits", *["Contrastive losses"] * 2, "Joined losses"]
    assert any("paired t-test over seeds" in note and "5%" in note for note in table.notes)
    assert any("over 5 seeds" in note for note in table.notes)


def test_lower_hamming_loss_is_better(study):
    table = report_tables(study)[1]
    bold = {value["loss"] for value in table.values() if value["bold"] and "full" in value["column"]}
    assert bold == {"zlpr", "reg"}
    assert table.values()[0]["value"] == f"{1 - np.mean(MACRO['zlpr']):.4f}"


def test_full_and_small_stand_side_by_side_each_beside_the_papers_number(study):
    table = report_tables(study)[0]
    assert table.columns == [
        ("AAPD", "full", "ours"), ("AAPD", "full", "paper"), ("AAPD", "small", "ours"), ("AAPD", "small", "paper")
    ]  # fmt: skip
    by_loss = {row.loss: row.cells for row in table.rows}
    assert [by_loss["reg"][1].value, by_loss["reg"][3].value] == ["61.28", "52.30"]
    assert by_loss["reg+zlpr"][1] is None  # the paper has no such loss
    assert any("arXiv:2412.00101" in note and "roberta-base" in note for note in table.notes)


def test_a_table_a_setting_has_the_metrics_side_by_side_as_in_the_paper(study):
    full, small = report_tables(study, per="setting")
    assert (full.title, small.title) == ("full, AAPD", "small, AAPD")
    metrics = ("Macro-F1 (%)", "Hamming loss")
    assert full.columns == [(metric, whose) for metric in metrics for whose in ("ours", "paper")]
    with pytest.raises(ValueError, match="per must be one of metric, setting, study"):
        report_tables(study, per="corpus")


def test_a_table_of_the_study_has_a_row_for_each_loss_and_setting(study):
    (table,) = report_tables(study, per="study", metrics=("macro_f1", "hamming_loss"))
    of_settings = report_tables(study, per="setting", metrics=("macro_f1", "hamming_loss"))
    assert len(of_settings) == 2
    expected = [
        (
            f"{row.loss}, {one.title.split(',')[0]}",
            [cell.value for cell, column in zip(row.cells, one.columns, strict=True) if cell and "paper" not in column],
        )
        for one in of_settings
        for row in one.rows
    ]
    assert [(row.loss, [cell.value for cell in row.cells if cell]) for row in table.rows] == expected
    assert not any(cell.bold for row in table.rows for cell in row.cells if cell)


def test_with_one_seed_the_test_examples_decide(tmp_path):
    rng = np.random.default_rng(0)
    truth = rng.random((400, 5)) < 0.3
    rates = {"bce": 0.05, "zlpr": 0.05, "reg": 0.2}
    runs = [(run("toy_text", loss, 0), {"test_micro_f1": 1 - rate}) for loss, rate in rates.items()]
    study = finished_study(tmp_path, runs, metrics=("micro_f1",))
    for each, rate in zip(study.runs, rates.values(), strict=True):
        work = tmp_path / "runs" / each.id / "work"
        work.mkdir(parents=True)
        save_decisions(work, truth, truth ^ (rng.random(truth.shape) < rate))
    (table,) = report_tables(study)
    assert {value["loss"] for value in table.values() if value["bold"]} == {"bce", "zlpr"}
    assert table.notes[0] == "One seed."
    assert "over test examples" in table.notes[1]
    decisions = tmp_path / "runs" / study.runs[0].id / "work" / "test_decisions.npz"
    for content in (decisions.read_bytes()[:100], b"", None):  # damaged, or not there
        decisions.unlink() if content is None else decisions.write_bytes(content)
        (table,) = report_tables(study)
        assert {value["loss"] for value in table.values() if value["bold"]} == {"bce"}
        assert "nothing could be tested" in table.notes[1]


def test_searched_values_are_chosen_by_the_mean_on_validation_and_not_on_test(tmp_path):
    runs = [
        (
            run("aapd", "reg", seed, choice={"learning_rate": rate}, learning_rate=rate),
            {"validation_micro_f1": validation[seed], "test_macro_f1": test},
        )
        for rate, validation, test in ((1e-3, [0.9, 0.1], 0.7), (1e-4, [0.6, 0.6], 0.5))
        for seed in (0, 1)
    ]
    study = finished_study(tmp_path, runs, metrics=("macro_f1",))
    (table,) = report_tables(study)
    assert [value["value"] for value in table.values() if "ours" in value["column"]] == ["50.00"]
    assert any("learning_rate" in note and "validation_micro_f1" in note for note in table.notes)


def test_of_metrics_that_should_be_low_the_lowest_is_chosen_and_printed_in_bold(tmp_path):
    runs = [
        (
            run("aapd", loss, seed, choice={"learning_rate": rate}, learning_rate=rate),
            {"validation_hamming_loss": wrong, "best_tuned_test_hamming_loss": wrong + 0.001 * seed},
        )
        for loss, rates in (("reg", {1e-3: 0.4, 1e-4: 0.1}), ("bce", {1e-3: 0.2, 1e-4: 0.3}))
        for rate, wrong in rates.items()
        for seed in (0, 1, 2)
    ]
    study = finished_study(
        tmp_path, runs, metrics=("best_tuned_test_hamming_loss",), select_by="validation_hamming_loss"
    )
    (table,) = report_tables(study)
    cells = {value["loss"]: (value["value"], value["bold"]) for value in table.values()}
    assert cells == {"reg": ("0.1010", True), "bce": ("0.2010", False)}


def test_choosing_by_a_metric_that_is_not_there_is_an_error():
    table = pd.DataFrame(
        [{"corpus": "c", "loss": "l", "setting": "g", "choice": c, "validation_accuracy": 1} for c in "ab"]
    )
    with pytest.raises(ValueError, match=r"select_by.*'validation_micro_f1'.*They have validation_accuracy"):
        select(table, "validation_micro_f1")


def test_what_is_not_finished_is_left_out_and_said(tmp_path):
    runs = [
        (run("aapd", "bce", 0), {"test_macro_f1": 0.5}),
        (run("aapd", "reg", 0), {}),
        (run("rcv1", "bce", 0), {}),
    ]
    study = finished_study(tmp_path, runs, metrics=("macro_f1", "mAP"))
    (table,) = report_tables(study)
    assert [row.loss for row in table.rows] == ["bce"]
    assert [column[0] for column in table.columns] == ["AAPD", "AAPD"]
    assert any("2 of 3 runs are not finished" in note for note in table.notes)
    assert report_tables(finished_study(tmp_path / "none", runs[1:])) == []


def test_the_table_of_the_space_has_the_best_bold_and_the_second_underlined(tmp_path):
    values = {"base": (0.48, -1.67), "reg": (0.40, -1.72), "msc": (0.50, -1.66)}
    runs = [
        (run("voc2007", loss, 0), {"alignment": alignment, "uniformity": uniformity})
        for loss, (alignment, uniformity) in values.items()
    ]
    (table,) = space_tables(finished_study(tmp_path, runs))
    assert "Bold: the best of a column; underlined: the second." in table.notes
    assert table.columns[0] == ("Uniformity", "ours")
    rows = {row.loss: row.cells for row in table.rows}
    assert (rows["reg"][0].bold, rows["base"][0].underlined, rows["msc"][0].underlined) == (True, True, False)
    assert rows["reg"][3].value == "0.400"  # the paper's, beside ours


def test_the_space_has_a_table_a_setting(tmp_path):
    runs = [
        (run("aapd", loss, 0, size, size=size), {"alignment": 0.5, "uniformity": -1.0})
        for loss in ("base", "reg")
        for size in ("full", "small")
    ]
    titles = [table.title for table in space_tables(finished_study(tmp_path, runs))]
    assert titles == [f"Uniformity and alignment (lower is better), {size}, AAPD" for size in ("full", "small")]


@pytest.mark.parametrize("reference", ["bce", "cross_entropy", "zlpr"])
def test_the_cost_of_a_loss_is_told_in_seconds_and_relative_to_a_plain_one_on_the_same_corpus(tmp_path, reference):
    seconds = {("aapd", reference): (100, 140), ("aapd", "reg"): (150, 210), ("voc2007", reference): (10, 10)}
    runs = [
        (run(corpus, loss, seed), {"test_macro_f1": 0.5, "seconds.cpu": value, "machine.memory_gb": 1.25})
        for (corpus, loss), values in seconds.items()
        for seed, value in enumerate(values)
    ]
    runs.append((run("aapd", "reg", 2), {"test_macro_f1": 0.5, "machine.memory_gb": 9.0}))  # was interrupted
    (table,) = cost_tables(finished_study(tmp_path, runs))
    cells = {(value["loss"], value["column"]): value["value"] for value in table.values()}
    assert cells["reg", "AAPD CPU seconds"] == "180"
    assert cells["reg", "AAPD Peak memory (GB)"] == "1.25"
    relative = {column: value for column, value in cells.items() if "relative" in column[1]}
    to = f"relative to {reference}"
    expected = {("reg", f"AAPD {to}"): "1.50", (reference, f"AAPD {to}"): "1.00", (reference, f"PASCAL {to}"): "1.00"}
    assert relative == ({} if reference == "zlpr" else expected)  # 180 / 120
    assert "2 seeds" in table.notes[0]


def test_the_cost_is_that_of_the_searched_values_that_are_reported(tmp_path):
    runs = [
        (
            run("aapd", "bce", 0, choice={"num_train_epochs": epochs}, num_train_epochs=epochs),
            {"test_macro_f1": 0.5, "validation_micro_f1": epochs / 100, "seconds.cpu": seconds},
        )
        for epochs, seconds in ((5, 20.0), (40, 160.0))
    ]
    (table,) = cost_tables(finished_study(tmp_path, runs))
    assert [value["value"] for value in table.values()] == ["160", "1.00"]


def test_metrics_of_the_report_that_no_run_has_are_named_with_what_they_need(tmp_path):
    runs = [(run("aapd", "bce", 0), {"test_macro_f1": 0.5})]
    (table,) = report_tables(finished_study(tmp_path, runs, metrics=("macro_f1", "best_test_mAP")))
    assert "No run has best_test_mAP (they need best_heads)." in table.notes


def test_a_variable_that_stood_for_several_encoders_is_noted(tmp_path):
    runs = [
        (run("aapd", loss, seed, backbone="$ENCODER", used_backbone=f"encoder-{seed}"), {"test_macro_f1": 0.5})
        for loss in ("bce", "reg")
        for seed in range(2)
    ]
    runs.append((run("aapd", "zlpr", 0, backbone="$ENCODER"), {"test_macro_f1": 0.5}))  # it was not recorded
    (table,) = report_tables(finished_study(tmp_path, runs, metrics=("macro_f1",)))
    assert "$ENCODER was not the same in all runs: encoder-0, encoder-1." in table.notes
    assert any(note.endswith("Ours: encoder-0, encoder-1.") for note in table.notes)


def test_seconds_of_another_precision_than_most_do_not_count(tmp_path):
    runs = [
        (run("aapd", "bce", seed, bf16=seed > 0), {"test_macro_f1": 0.5, "seconds.cpu": 100.0 if seed else 900.0})
        for seed in range(3)
    ]
    (table,) = cost_tables(finished_study(tmp_path, runs))
    assert [value["value"] for value in table.values()] == ["100", "1.00"]


def test_runs_that_did_not_measure_their_cost_have_no_table_of_it(study, tmp_path):
    assert cost_tables(study) == []
    on_gpu = (run("aapd", "bce", 0), {"test_macro_f1": 0.5, "seconds.cpu": 9.0, "machine.device": "NVIDIA A100"})
    assert cost_tables(finished_study(tmp_path / "gpu", [on_gpu])) == []


@pytest.mark.parametrize(
    ("corpus", "loss", "levels"),
    [("aapd", "reg", {"ours", "paper"}), ("arXiv", "reg", {"arXiv"}), ("aapd", "frozen", {"AAPD"})],
)
def test_a_corpus_or_loss_under_a_name_of_the_files_own_has_no_numbers_of_the_paper(tmp_path, corpus, loss, levels):
    one = run("aapd", "reg", 0)
    one = dataclasses.replace(one, corpus=corpus, loss=loss)
    (table, *_) = report_tables(finished_study(tmp_path, [(one, {"test_macro_f1": 0.5})]))
    assert {column[-1] for column in table.columns} == levels


NASTY = ReportTable(
    "50% of <b> & {x}_y | z",
    [("A&B_1", "ours"), ("A&B_1", "paper"), ("C|D", "ours")],
    [
        Row("Losses on logits", "my_loss|<i>", [Cell("1.0", "0.1", bold=True), Cell("2.0"), None]),
        Row("Contrastive losses", "reg+zlpr", [Cell("-3.0", underlined=True), None, Cell("4.0")]),
    ],
    ["p < 5% # $ ~ ^ \\ end"],
)


class Reader(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)

    def handle_data(self, data):
        self.text.append(data)


def test_html_is_escaped_and_its_rows_are_complete():
    reader = Reader()
    reader.feed(to_html(NASTY))
    assert "b" not in reader.tags
    assert "i" not in reader.tags
    assert {"my_loss|<i>", "A&B_1", NASTY.title, NASTY.notes[0]} <= set(reader.text)
    source = to_html(NASTY)
    assert "<strong>1.0</strong>" in source
    assert "<u>-3.0</u>" in source
    for row in re.findall(r"<tr>(?!<th).*?</tr>", source):
        assert row.count("<td") == 1 + len(NASTY.columns)
    assert 'colspan="2">A&amp;B_1' in source


def test_latex_is_escaped_and_its_rows_are_complete():
    source = to_latex(NASTY)
    assert r"50\% of $<$b$>$ \& \{x\}\_y | z" in source
    assert r"p $<$ 5\% \# \$ \textasciitilde{} \textasciicircum{} \textbackslash{} end" in source
    assert r"\multicolumn{2}{c}{A\&B\_1}" in source
    assert r"\texttt{my\_loss|$<$i$>$} & \textbf{1.0} {\scriptsize $\pm$ 0.1} & 2.0 &  \\" in source
    assert r"$\mathcal{L}_{\text{REG}} + \mathcal{L}_{\text{ZLPR}}$ & \underline{$-$3.0} &  & 4.0 \\" in source
    assert r"\cmidrule(lr){2-3} \cmidrule(lr){4-4}" in source
    assert source.count("{") == source.count("}")
    without_escapes = re.sub(r"\\[&%$#_{}\\]", "", source)
    assert without_escapes.count("$") % 2 == 0
    for line in source.splitlines():
        if line.startswith((r"\texttt", r"$\mathcal")):
            assert len(re.findall(r"(?<!\\)&", line)) == len(NASTY.columns)


def test_markdown_is_escaped_and_its_rows_are_complete():
    lines = to_markdown(NASTY).splitlines()
    assert lines[0] == r"**50% of \<b\> & {x}\_y \| z**"
    rows = [line for line in lines if line.startswith("|")]
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 2 + len(NASTY.columns) for line in rows), rows
    assert "**1.0** ± 0.1" in rows[2]


def test_every_run_is_a_row_of_parquet_and_csv(tmp_path):
    runs = [
        (run("aapd", "bce", 0, learning_rate=1e-5, loss_kwargs={}), {"test_macro_f1": 0.1}),
        (
            run("aapd", "reg", 0, learning_rate=1e-5, loss_kwargs={"alpha": 1}, max_steps="mixed"),
            {"test_macro_f1": 1 / 3},
        ),
        (run("aapd", "msc", 0, max_steps=5), {}),
    ]
    study = finished_study(tmp_path, runs)
    parquet, csv = save_table(study_table(study), tmp_path)
    for table in (pd.read_parquet(parquet), pd.read_csv(csv)):
        assert list(table["loss"]) == ["bce", "reg", "msc"]
        assert list(table["state"]) == ["finished", "finished", "waiting"]
        assert table["test_macro_f1"].tolist()[:2] == [0.1, 1 / 3]
        assert table["argument.loss_kwargs.alpha"].tolist()[1] == 1
        assert table["seconds.total"].tolist()[0] == 60
        assert table["version.torch"].tolist()[0] == "2.15.0"


def test_who_publishes_reads_the_runs_after_those_before_have_written_theirs(study, monkeypatch):
    read = threading.Event()
    monkeypatch.setattr(publishing, "study_table", lambda study: read.set() or study_table(study))
    other = threading.Thread(target=publish, args=[study])
    with publishing.publishing_lock(study):  # another worker is at it
        other.start()
        assert not read.wait(0.5)
        assert not (study.output_dir / "report.md").exists()
    other.join(60)
    assert read.is_set()
    assert (study.output_dir / "report.md").exists()


def test_everything_is_published(study):
    paths, table, tables = publish(study)
    assert tables == [*report_tables(study), *space_tables(study), *cost_tables(study)]
    assert list(table["id"]) == list(study_table(study)["id"])
    names = {path.name for path in paths}
    assert names >= {"runs.parquet", "runs.csv", "report.md", "report.tex", "report.html"}
    assert "A &amp; B." in (study.output_dir / "report.html").read_text()
    assert not list(study.output_dir.glob(".*part*"))


def test_a_figure_that_fails_is_reported_and_costs_no_table_and_no_other_figure(study, monkeypatch, caplog):
    def fail(table, select_by):
        raise RuntimeError("no pen")

    monkeypatch.setitem(FIGURES, "space", Drawing("Space", fail, "a pen"))
    monkeypatch.setitem(FIGURES, "alpha", Drawing("Alpha", lambda table, select_by: Figure(), "nothing"))
    paths = publish(study).paths
    assert {path.name for path in paths} >= {"report.md", "report.tex", "report.html", "alpha.png"}
    assert caplog.messages == ["The figure space could not be drawn: RuntimeError: no pen"]
    assert not (study.output_dir / "figures/space.png").exists()
