"""The paper's tables from a study's runs: losses x corpora, mean and deviation over seeds, the best in bold."""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from hf_mlcl.files import RUNS_FOLDER
from hf_mlcl.study.execution import PATHS, USED
from hf_mlcl.study.paper import SOURCE, paper_value
from hf_mlcl.study.results import ARGUMENT, finished, select, study_table
from hf_mlcl.study.significance import Comparison, Flags, Scores, compare
from hf_mlcl.study.specification import LOWER_IS_BETTER, Study

logger = logging.getLogger(__name__)

CORPUS_TITLES = {"aapd": "AAPD", "bgc": "BGC", "coco2014": "MS-COCO", "newsgroups20": "20 Newsgroups", "rcv1": "RCV1"}
CORPUS_TITLES |= {"nuswide": "NUS-WIDE", "semeval2018": "SemEval", "voc2007": "PASCAL"}
"""As the paper prints them."""
GROUPS = ("Losses on logits", "Contrastive losses", "Joined losses")
OURS, PAPER = "ours", "paper"
PER = ("metric", "setting", "study")
"""What there may be a table for."""
REFERENCES = ("bce", "cross_entropy")
"""What the cost of the others is compared with, where it is among them."""
TESTS = {
    "seeds": "paired t-test over seeds, two-sided, corrected after Holm",
    "examples": "paired approximate randomisation over test examples, two-sided, corrected after Holm; it says nothing "
    "about other seeds",
}


class Metric(NamedTuple):
    """How a metric is printed."""

    title: str
    factor: float = 100.0
    digits: int = 2
    higher_is_better: bool = True

    def text(self, value: float) -> str:
        """A value in print."""
        return f"{value * self.factor:.{self.digits}f}"


METRICS = {
    "micro_f1": Metric("Micro-F1 (%)"),
    "macro_f1": Metric("Macro-F1 (%)"),
    "hamming_loss": Metric("Hamming loss", 1.0, 4, False),
    "mAP": Metric("mAP (%)"),
    "accuracy": Metric("Accuracy (%)"),
    "alignment": Metric("Alignment", 1.0, 3, False),
    "uniformity": Metric("Uniformity", 1.0, 3, False),
    "prr": Metric("Positive Regularisation Ratio (%)", 100.0, 1),
    "tuned_test_micro_f1": Metric("Micro-F1, tuned thresholds (%)"),
    "tuned_test_macro_f1": Metric("Macro-F1, tuned thresholds (%)"),
    "best_test_mAP": Metric("mAP of labels with test rows, best heads (%)"),
    "best_tuned_test_micro_f1": Metric("Micro-F1, best heads and thresholds (%)"),
    "best_tuned_test_macro_f1": Metric("Macro-F1, best heads and thresholds (%)"),
    "best_test_accuracy": Metric("Accuracy, best heads (%)"),
    "seconds.cpu": Metric("CPU seconds", 1.0, 0, False),
    **{f"relative.{loss}": Metric(f"relative to {loss}", 1.0, 2, False) for loss in REFERENCES},
    "machine.memory_gb": Metric("Peak memory (GB)", 1.0, 2, False),
}


@dataclass(frozen=True)
class Cell:
    """A printed number, perhaps with its deviation."""

    value: str
    deviation: str | None = None
    bold: bool = False
    underlined: bool = False


@dataclass(frozen=True)
class Row:
    """A loss's numbers; None where there are none."""

    group: str
    loss: str
    cells: Sequence[Cell | None]


@dataclass(frozen=True)
class ReportTable:
    """A table ready to be rendered; a column has its headings from the outermost to the innermost level."""

    title: str
    columns: Sequence[tuple[str, ...]]
    rows: Sequence[Row]
    notes: Sequence[str] = ()

    def values(self) -> list[dict[str, Any]]:
        """The cells as records, for those who want the numbers that were printed."""
        return [
            {"loss": row.loss, "column": " ".join(column), **asdict(cell)}
            for row in self.rows
            for column, cell in zip(self.columns, row.cells, strict=True)
            if cell is not None
        ]


def place_name(corpus: str, *settings: str) -> str:
    """What a corpus is called in print, with its setting, where that has a name."""
    return ", ".join([CORPUS_TITLES.get(corpus, corpus), *(name for name in settings if name != "default")])


def metric_of(name: str) -> Metric:
    """How a metric is printed; one that has no title of its own as it is.

    Examples:
        >>> metric_of("validation_mAP").title
        'Validation mAP (%)'
    """
    known = METRICS.get(name)
    if known is None and (on_test := METRICS.get(name.removeprefix("validation_"))):
        known = on_test._replace(title=f"Validation {on_test.title}")
    return known or Metric(name.replace("_", " "), 1.0, 4, not name.endswith(LOWER_IS_BETTER))


def column_of(table: pd.DataFrame, metric: str) -> str | None:
    """The column of a metric that a report names without ``test_``; None where no run has it."""
    return next((name for name in (f"test_{metric}", metric) if name in table.columns), None)


def report_tables(
    study: Study,
    table: pd.DataFrame | None = None,
    *,
    per: str = "metric",
    metrics: Sequence[str] | None = None,
    underline_second: bool = False,
) -> list[ReportTable]:
    """The tables of a study from its runs, which are read from its folder if not given.

    With ``per="metric"`` there is one for each metric, the settings (full and small) side by side; with ``"setting"``
    one for each setting, the metrics side by side, as the paper prints them; with ``"study"`` these are one below the
    other in a single table, without bold and the paper's numbers, for studies of many settings. `metrics` are those of
    the study's report if not given; `underline_second` underlines the second best mean of a column.
    """
    if per not in PER:
        raise ValueError(f"per must be one of {', '.join(PER)}; got {per!r}.")
    table = study_table(study) if table is None else table
    done = finished(table)
    absent = [] if metrics else [name for name in study.report.metrics if column_of(done, name) is None]
    metrics = [metric for metric in metrics or study.report.metrics if column_of(done, metric) is not None]
    if done.empty or not metrics:
        return []
    builder = _Builder(study, table, select(done, study.report.select_by), underline_second)
    corpora, settings = study.names("corpus"), study.names("setting")
    if per == "metric":
        places = {metric_of(m).title: [(c, s, m) for c in corpora for s in settings] for m in metrics}
    else:
        titles = {setting: study.name if setting == "default" else setting for setting in settings}
        places = {titles[s]: [(c, s, m) for c in corpora for m in metrics] for s in settings}
    tables = [builder.table(title, columns) for title, columns in places.items()]
    note = [f"No run has {', '.join(absent)}{_needed(absent)}."] if absent else []
    tables = [replace(table, notes=[*table.notes, *note]) for table in tables if table.columns]
    return [_stacked(study.name, tables)] if per == "study" and len(tables) > 1 else tables


def _stacked(title: str, tables: Sequence[ReportTable]) -> ReportTable:
    """Tables of settings as one, whose rows are named after loss and setting; none is bold, which holds within one."""
    headings = [[_without_ours(column) for column in table.columns] for table in tables]
    columns = [column for column in dict.fromkeys(itertools.chain(*headings)) if column[-1] != PAPER]
    rows = []
    for table, own in zip(tables, headings, strict=True):
        setting = table.title.split(",")[0]
        for row in table.rows:
            cells = {
                column: cell and replace(cell, bold=False, underlined=False)
                for column, cell in zip(own, row.cells, strict=True)
            }
            rows.append(Row(table.title, f"{row.loss}, {setting}", [cells.get(column) for column in columns]))
    marks = ("Bold: ", f"{PAPER}: ")
    notes = dict.fromkeys(note for table in tables for note in table.notes if not note.startswith(marks))
    return ReportTable(title, columns, rows, [*notes])


def _without_ours(column: tuple[str, ...]) -> tuple[str, ...]:
    return column[:-1] if column[-1] == OURS else column


def _needed(metrics: Sequence[str]) -> str:
    """The settings without which there are no such metrics."""
    needs = {"tuned_test_": "thresholds", "best_": "best_heads"}
    settings = sorted({needs[start] for start in needs for name in metrics if name.startswith(start)})
    return f" (they need {' and '.join(settings)})" if settings else ""


def space_tables(study: Study, table: pd.DataFrame | None = None, per: str = "setting") -> list[ReportTable]:
    """The paper's table of alignment and uniformity for each setting: best of a column bold, second underlined."""
    title = "Uniformity and alignment (lower is better)"
    return _untested_tables(study, table, title, ("uniformity", "alignment"), per, underline_second=True)


def cost_tables(study: Study, table: pd.DataFrame | None = None, per: str = "setting") -> list[ReportTable]:
    """The cost per run of each loss, for each setting: CPU seconds, also relative to one of `REFERENCES`, and memory.

    CPU seconds are those of all cores, whatever else the machine did meanwhile; where there is no GPU, energy follows
    them. Runs that were interrupted, or that used a GPU, do not count; nor do those of another processor or precision
    than most, whose seconds do not compare.
    """
    table = finished(study_table(study) if table is None else table)
    if "seconds.cpu" not in table or table["seconds.cpu"].isna().all():
        return []
    table = table[table["machine.device"].str.contains("CPU")].dropna(subset=["seconds.cpu"])
    if table.empty:
        return []
    kind = [name for name in ("machine.device", f"{ARGUMENT}bf16") if name in table]
    every = len(table)
    table = pd.concat(_most_alike(rows, kind) for _, rows in table.groupby(["corpus", "setting"], sort=False))
    note = ["Runs on another processor or in another precision than most are left out."] if len(table) < every else []
    table = select(table, study.report.select_by)
    metrics = ["seconds.cpu"]
    for loss in (name for name in REFERENCES if (table["loss"] == name).any()):
        of_reference = table["seconds.cpu"].where(table["loss"] == loss)
        mean = of_reference.groupby([table["corpus"], table["setting"]]).transform("mean")
        metrics.append(f"relative.{loss}")
        table = table.assign(**{metrics[-1]: table["seconds.cpu"] / mean})
    tables = _untested_tables(study, table, "Cost per run", [*metrics, "machine.memory_gb"], per)
    return [replace(each, notes=[*each.notes, *note]) for each in tables]


def _most_alike(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The rows with the most frequent values of some columns together."""
    values = table[list(columns)].astype(str).agg(" ".join, axis=1)
    return table[values == values.mode()[0]]


def _untested_tables(
    study: Study, table: pd.DataFrame | None, title: str, metrics: Sequence[str], per: str, **options: Any
) -> list[ReportTable]:
    untested = replace(study, report=replace(study.report, test="none"))
    tables = report_tables(untested, table, per="study" if per == "study" else "setting", metrics=metrics, **options)
    several = len(tables) > 1
    return [replace(each, title=f"{title}, {each.title}" if several else title) for each in tables]


Place = tuple[str, str, str]
"""Corpus, setting and metric of a column."""


def pair_comparison(study: Study, chosen: pd.DataFrame) -> Callable[[Place, str, str], Comparison]:
    """Compares two losses at a place, by the test of the study's report; `chosen` are runs as `select` gives them."""
    builder = _Builder(study, chosen, chosen, second=False)

    def compared(place: Place, first: str, second: str) -> Comparison:
        scores = builder.scores(place)
        return builder.compared(place, {name: scores[name] for name in (first, second)})

    return compared


class _Builder:
    def __init__(self, study: Study, table: pd.DataFrame, chosen: pd.DataFrame, second: bool) -> None:
        self.study, self.all, self.chosen, self.second = study, table, chosen, second
        self.rows = dict(list(chosen.groupby(["corpus", "setting"], sort=False)))
        self.decisions = functools.cache(self._decisions)

    def table(self, title: str, places: Sequence[Place]) -> ReportTable:
        found = {place: scores for place in places if (scores := self.scores(place))}
        losses = [loss for loss in self.study.names("loss") if any(loss in scores for scores in found.values())]
        columns: list[tuple[str, ...]] = []
        filled: list[list[Cell | None]] = []
        tests: dict[Place, str] = {}
        for place, scores in found.items():
            comparison = self.compared(place, scores)
            cells, tests[place] = self.ours(place, scores, comparison.winners), comparison.test
            columns.append((*_heading(place), OURS))
            filled.append([cells.get(loss) for loss in losses])
            printed = [self.paper_cell(place, loss) if loss in scores else None for loss in losses]
            if any(printed):
                columns.append((*_heading(place), PAPER))
                filled.append(printed)
        rows = [Row(self.group(loss), loss, [cells[i] for cells in filled]) for i, loss in enumerate(losses)]
        rows.sort(key=lambda row: GROUPS.index(row.group))
        with_paper = any(column[-1] == PAPER for column in columns)
        # Levels that say the same everywhere are left out: the corpus too, where metrics tell the columns apart.
        levels = [i for i in range(4) if len({column[i] for column in columns}) > 1]
        if 2 in levels and 0 not in levels:
            title = f"{title}, {columns[0][0]}"
        else:
            levels = sorted({0, *levels})
        headings = [tuple(column[level] for level in levels) for column in columns]
        return ReportTable(title, headings, rows, self.notes(tests, with_paper))

    def scores(self, place: Place) -> dict[str, Scores]:
        column = column_of(self.chosen, place[2])
        if column is None or place[:2] not in self.rows:
            return {}
        known = self.rows[place[:2]].dropna(subset=[column])
        return {
            str(loss): Scores(dict(zip(rows["seed"].astype(int), rows[column].astype(float), strict=True)))
            for loss, rows in known.groupby("loss", sort=False)
        }

    def ours(self, place: Place, scores: dict[str, Scores], winners: set[str]) -> dict[str, Cell]:
        metric = metric_of(place[2])
        order = sorted(scores, key=lambda loss: scores[loss].mean, reverse=metric.higher_is_better)
        return {
            loss: Cell(
                metric.text(values.mean),
                None if values.deviation is None else metric.text(values.deviation),
                bold=loss in winners,
                underlined=self.second and order[1:2] == [loss],
            )
            for loss, values in scores.items()
        }

    def compared(self, place: Place, scores: dict[str, Scores]) -> Comparison:
        """Of scores, with what was decided for each test row, where all runs of the column have that for the same."""
        report, labels = self.study.report, None
        if report.test not in ("seeds", "none"):
            runs = self.rows[place[:2]].to_dict("records")
            found = [(run["loss"], run["seed"], *each) for run in runs if (each := self.decisions(run["id"]))]
            if len(found) == len(runs) and all(np.array_equal(truth, found[0][2]) for _, _, truth, _ in found):
                labels = found[0][2]
                made = {loss: {seed: made for name, seed, _, made in found if name == loss} for loss in scores}
                scores = {loss: replace(values, decisions=made[loss]) for loss, values in scores.items()}
        higher = metric_of(place[2]).higher_is_better
        return compare(scores, place[2], labels, higher, test=report.test, level=report.level)

    def _decisions(self, run_id: str) -> tuple[Flags, Flags] | None:
        from hf_mlcl.experiments.results import DECISIONS_FILE, load_decisions

        folder = self.study.output_dir / RUNS_FOLDER / run_id / "work"
        try:
            return load_decisions(folder)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            logger.warning("%s is damaged and not used: %s", folder / DECISIONS_FILE, error)
            return None

    def paper_cell(self, place: Place, loss: str) -> Cell | None:
        corpus, setting, metric = place
        own = next(r for r in self.study.runs if (r.corpus, r.setting, r.loss) == (corpus, setting, loss)).arguments
        # A corpus or a loss under a name of the file's own is not what the paper speaks of.
        known = (corpus, loss) == (own["corpus"], own["loss"])
        value = paper_value(corpus, own.get("size", "full"), loss, metric) if known else None
        return None if value is None else Cell(metric_of(metric).text(value))

    def group(self, name: str) -> str:
        """Where a loss of the study file stands in a table."""
        run = next(run for run in self.study.runs if run.loss == name)
        return GROUPS[2] if "+" in str(run.arguments["loss"]) else GROUPS[0] if run.kind == "logit" else GROUPS[1]

    def notes(self, tests: dict[Place, str], with_paper: bool) -> list[str]:
        report = self.study.report
        counts = self.chosen.groupby(["corpus", "loss", "setting"])["seed"].nunique()
        several = f"{counts.max()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
        notes = ["One seed." if counts.max() == 1 else f"Mean ± standard deviation over {several} seeds."]
        if (data := f"{ARGUMENT}data_fingerprint") in self.chosen:
            versions = self.chosen.groupby("corpus")[data].nunique()
            notes += [
                f"Runs of {name} have different rows: its data were changed." for name in versions[versions > 1].index
            ]
        for name in (f"{USED}{path}" for path in PATHS):
            if (used := f"{ARGUMENT}{name}") in self.chosen:
                known = self.chosen.dropna(subset=[used])
                found = known.groupby(f"{ARGUMENT}{name.removeprefix(USED)}")[used].unique()
                notes += [
                    f"{stated} was not the same in all runs: {', '.join(map(str, known))}."
                    for stated, known in found.items()
                    if len(known) > 1
                ]
        for test in ("seeds", "examples", "none"):
            places = [" ".join(_heading(p)).replace(" default ", " ") for p, chosen in tests.items() if chosen == test]
            note = "Bold: the best of a column"
            if test in TESTS:
                note += f" and those not significantly different from it at {report.level:.0%} ({TESTS[test]})"
            else:
                note += "; underlined: the second" if self.second else ""
                note += "" if report.test == "none" else "; nothing could be tested"
            if places:
                notes.append(note + ("." if len(places) == len(tests) else f" ({'; '.join(places)})."))
        searched = sorted({name for run in self.study.runs for name in run.choice})
        if searched:
            best = f"those with the best mean {report.select_by} over seeds are reported"
            notes.append(f"Of the searched values ({', '.join(searched)}) {best}.")
        if with_paper:
            names = {str(name) for name in self.chosen.get(f"{ARGUMENT}backbone", []) if name == name}
            real = {str(name) for name in self.chosen.get(f"{ARGUMENT}{USED}backbone", []) if name == name}
            # Of a local folder the last two parts, which is where a Hub id has its own; a variable tells nothing.
            plain = {"/".join(Path(name).parts[-2:]) for name in names if "$" not in name}
            ours = f" Ours: {', '.join(sorted(plain | real))}." if plain | real else ""
            notes.append(f"{PAPER}: {SOURCE}; RoBERTa-base on texts, ResNet-50 on images.{ours}")
        unfinished = len(self.all) - len(finished(self.all))
        if unfinished:
            notes.append(f"{unfinished} of {len(self.all)} runs are not finished; the table shows what there is.")
        versions = sorted(set(self.chosen.get("version.hf-mlcl", [])))
        if len(versions) > 1:
            notes.append(f"Runs of several versions of hf-mlcl: {', '.join(versions)}.")
        return notes


def _heading(place: Place) -> tuple[str, str, str]:
    return CORPUS_TITLES.get(place[0], place[0]), place[1], metric_of(place[2]).title
