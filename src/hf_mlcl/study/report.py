"""The paper's tables from a study's runs: losses x corpora, mean and deviation over seeds, the best in bold."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import pandas as pd

from hf_mlcl.study.paper import SOURCE, paper_value
from hf_mlcl.study.significance import Comparison, Flags, Scores, compare
from hf_mlcl.study.specification import Study
from hf_mlcl.study.table import SETTING, finished, select, study_table
from hf_mlcl.study.worklist import WorkList

logger = logging.getLogger(__name__)

CORPUS_TITLES = {
    "aapd": "AAPD",
    "bgc": "BGC",
    "coco2014": "MS-COCO",
    "newsgroups20": "20 Newsgroups",
    "nuswide": "NUS-WIDE",
    "rcv1": "RCV1",
    "semeval2018": "SemEval",
    "voc2007": "PASCAL",
}
"""As the paper prints them."""

GROUPS = ("Losses on logits", "Contrastive losses", "Joined losses")
MEAN, PAPER = "ours", "paper"


class Metric(NamedTuple):
    """How a metric is printed."""

    title: str
    factor: float = 100.0
    digits: int = 2
    higher_is_better: bool = True


METRICS = {
    "micro_f1": Metric("Micro-F1 (%)"),
    "macro_f1": Metric("Macro-F1 (%)"),
    "hamming_loss": Metric("Hamming loss", 1.0, 4, False),
    "mAP": Metric("mAP (%)"),
    "accuracy": Metric("Accuracy (%)"),
    "alignment": Metric("Alignment", 1.0, 3, False),
    "uniformity": Metric("Uniformity", 1.0, 3, False),
    "prr": Metric("Positive Regularisation Ratio (%)", 100.0, 1),
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
    """A table ready to be rendered.

    Attributes:
        title: What it shows.
        columns: The heading of each column from the outermost to the innermost level.
        rows: A row a loss.
        notes: How to read it.
    """

    title: str
    columns: Sequence[tuple[str, ...]]
    rows: Sequence[Row]
    notes: Sequence[str] = field(default_factory=tuple)


def report_tables(
    study: Study,
    table: pd.DataFrame | None = None,
    *,
    per: str = "metric",
    metrics: Sequence[str] | None = None,
    paper: bool = True,
    underline_second: bool = False,
) -> list[ReportTable]:
    """The tables of a study.

    Args:
        study: The study.
        table: Its runs; read from its folder if not given.
        per: ``"metric"``: a table for each metric, the settings (full and small) side by side; ``"setting"``: a table
            for each setting, the metrics side by side, as the paper prints them.
        metrics: Those of the study's report if not given.
        paper: Whether the paper's numbers stand beside ours, where it has any.
        underline_second: Whether the second best mean of a column is underlined.
    """
    if per not in ("metric", "setting"):
        raise ValueError(f"per must be 'metric' or 'setting'; got {per!r}.")
    table = study_table(study) if table is None else table
    done = finished(table)
    if done.empty:
        return []
    builder = _Builder(study, table, select(done, study.report.select_by), paper, underline_second)
    metrics = [metric for metric in metrics or study.report.metrics if _column_of(done, metric) is not None]
    if not metrics:
        return []
    settings = study.names("setting")
    if per == "metric":
        return [
            builder.table(metric_title(metric), [(c, s, metric) for c in study.names("corpus") for s in settings])
            for metric in metrics
        ]
    return [
        builder.table(
            study.name if setting == "default" else setting,
            [(corpus, setting, metric) for corpus in study.names("corpus") for metric in metrics],
        )
        for setting in settings
    ]


def space_tables(study: Study, table: pd.DataFrame | None = None) -> list[ReportTable]:
    """The paper's table of alignment and uniformity, one a setting: best of a column bold, second underlined."""
    tables = report_tables(
        replace(study, report=replace(study.report, test="none")),
        table,
        per="setting",
        metrics=("uniformity", "alignment"),
        underline_second=True,
    )
    title = "Uniformity and alignment (lower is better)"
    several = len(tables) > 1
    return [replace(each, title=f"{title}, {each.title}" if several else title) for each in tables if each.columns]


def metric_title(metric: str) -> str:
    """How a metric is called in print.

    Examples:
        >>> metric_title("macro_f1")
        'Macro-F1 (%)'
    """
    return METRICS[metric].title if metric in METRICS else metric.replace("_", " ")


def corpus_title(corpus: str) -> str:
    """How a corpus is called in print."""
    return CORPUS_TITLES.get(corpus, corpus)


Place = tuple[str, str, str]
"""Corpus, setting and metric of a column."""


class _Builder:
    def __init__(self, study: Study, table: pd.DataFrame, chosen: pd.DataFrame, paper: bool, second: bool) -> None:
        self.study = study
        self.all = table
        self.chosen = chosen
        self.paper = paper
        self.second = second
        self.work_list = WorkList(study.output_dir)
        self._decisions: dict[str, tuple[Flags, Flags] | None] = {}
        self._rows: dict[tuple[str, str], pd.DataFrame] = {}

    def table(self, title: str, places: Sequence[Place]) -> ReportTable:
        places = [place for place in places if self.scores(place)]
        losses = [loss for loss in self.study.names("loss") if any(loss in self.scores(place) for place in places)]
        columns: list[tuple[str, ...]] = []
        filled: list[list[Cell | None]] = []
        comparisons = []
        for place in places:
            comparison, cells = self.ours(place)
            comparisons.append((place, comparison))
            columns.append((*self.heading(place), MEAN))
            filled.append([cells.get(loss) for loss in losses])
            printed = [self.paper_cell(place, loss) for loss in losses] if self.paper else []
            if any(printed):
                columns.append((*self.heading(place), PAPER))
                filled.append(printed)
        rows = [Row(_group(self.study, loss), loss, [cells[i] for cells in filled]) for i, loss in enumerate(losses)]
        rows.sort(key=lambda row: GROUPS.index(row.group))
        with_paper = any(column[-1] == PAPER for column in columns)
        return ReportTable(title, _without_idle_levels(columns), rows, self.notes(comparisons, with_paper))

    # A column -----------------------------------------------------------------------------------------------------

    def rows_of(self, place: Place) -> pd.DataFrame:
        corpus, setting, _ = place
        if (corpus, setting) not in self._rows:  # cutting a wide table is slow, and every cell asks for it
            chosen = (self.chosen["corpus"] == corpus) & (self.chosen["group"] == setting)
            self._rows[corpus, setting] = self.chosen[chosen]
        return self._rows[corpus, setting]

    def scores(self, place: Place) -> dict[str, Scores]:
        column = _column_of(self.chosen, place[2])
        rows = self.rows_of(place)
        if column is None or rows.empty:
            return {}
        known = rows[["loss", "seed", column]].dropna(subset=[column])
        return {
            str(loss): Scores(dict(zip(group["seed"].astype(int), group[column].astype(float), strict=True)))
            for loss, group in known.groupby("loss", sort=False)
        }

    def ours(self, place: Place) -> tuple[Comparison, dict[str, Cell]]:
        metric = METRICS.get(place[2], Metric(place[2], 1.0, 4))
        scores, labels = self.with_decisions(place)
        report = self.study.report
        comparison = compare(
            scores,
            place[2],
            labels=labels,
            higher_is_better=metric.higher_is_better,
            test=report.test,
            level=report.level,
        )
        order = sorted(scores, key=lambda loss: scores[loss].mean, reverse=metric.higher_is_better)
        cells = {}
        for loss, values in scores.items():
            deviation = values.deviation
            cells[loss] = Cell(
                _number(values.mean, metric),
                None if deviation is None else _number(deviation, metric),
                bold=loss in comparison.winners,
                underlined=self.second and len(order) > 1 and loss == order[1],
            )
        return comparison, cells

    def with_decisions(self, place: Place) -> tuple[dict[str, Scores], Flags | None]:
        """Scores with what was decided for each test row, where all runs of the column have that for the same rows."""
        plain, rows = self.scores(place), self.rows_of(place)
        if self.study.report.test in ("seeds", "none"):
            return plain, None
        found = {
            (str(loss), int(seed)): self.decisions(run_id)
            for loss, seed, run_id in zip(rows["loss"], rows["seed"], rows["id"], strict=True)
        }
        truths = [each[0] for each in found.values() if each is not None]
        if len(truths) < len(found) or any(
            truth.shape != truths[0].shape or (truth != truths[0]).any() for truth in truths
        ):
            return plain, None
        scores = {
            loss: replace(
                values,
                decisions={seed: each[1] for (name, seed), each in found.items() if name == loss and each is not None},
            )
            for loss, values in plain.items()
        }
        return scores, truths[0]

    def decisions(self, run_id: str) -> tuple[Flags, Flags] | None:
        from hf_mlcl.experiments.results import DECISIONS_FILE, load_decisions

        if run_id not in self._decisions:
            folder = self.work_list.folder / "runs" / run_id / "work"
            try:
                self._decisions[run_id] = load_decisions(folder)
            except FileNotFoundError:
                self._decisions[run_id] = None
            except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
                logger.warning("%s is damaged and not used: %s", folder / DECISIONS_FILE, error)
                self._decisions[run_id] = None
        return self._decisions[run_id]

    def paper_cell(self, place: Place, loss: str) -> Cell | None:
        corpus, setting, metric = place
        if metric not in METRICS or loss not in set(self.rows_of(place)["loss"]):
            return None
        run = next(run for run in self.study.runs if (run.corpus, run.setting, run.loss) == (corpus, setting, loss))
        own = run.arguments
        value = paper_value(own["corpus"], own.get("size", "full"), own["loss"], metric)
        return None if value is None else Cell(_number(value, METRICS[metric]))

    # Words --------------------------------------------------------------------------------------------------------

    def heading(self, place: Place) -> tuple[str, str, str]:
        corpus, setting, metric = place
        return corpus_title(corpus), setting, metric_title(metric)

    def notes(self, comparisons: Sequence[tuple[Place, Comparison]], with_paper: bool) -> list[str]:
        notes = [self._seeds_note()]
        for test in ("seeds", "examples", "none"):
            places = [self.heading(place) for place, comparison in comparisons if comparison.test == test]
            if places:
                where = "" if len(places) == len(comparisons) else f" ({_listed(places)})"
                notes.append(self._test_note(test) + where + ".")
        searched = sorted({name for run in self.study.runs for name in run.choice})
        if searched:
            notes.append(
                f"Of the searched values ({', '.join(searched)}) those with the best mean "
                f"{self.study.report.select_by} over seeds are reported."
            )
        if with_paper:
            backbones = sorted({str(name) for name in self.chosen.get(f"{SETTING}backbone", []) if name == name})
            ours = f" Ours: {', '.join(_short(name) for name in backbones)}." if backbones else ""
            notes.append(f"{PAPER}: {SOURCE}; RoBERTa-base on texts, ResNet-50 on images.{ours}")
        unfinished = len(self.all) - len(finished(self.all))
        if unfinished:
            notes.append(f"{unfinished} of {len(self.all)} runs are not finished; the table shows what there is.")
        versions = self.chosen.get("version.hf-mlcl")
        if versions is not None and versions.nunique() > 1:
            notes.append(f"Runs of several versions of hf-mlcl: {', '.join(sorted(versions.unique()))}.")
        return notes

    def _test_note(self, test: str) -> str:
        if test == "none":
            second = "; underlined: the second" if self.second else ""
            untested = "" if self.study.report.test == "none" else "; nothing could be tested"
            return f"Bold: the best of a column{second}{untested}"
        level = self.study.report.level
        return (
            f"Bold: the best of a column and those not significantly different from it at {level:.0%} ({_TESTS[test]})"
        )

    def _seeds_note(self) -> str:
        counts = self.chosen.groupby(["corpus", "loss", "group"])["seed"].nunique()
        fewest, most = int(counts.min()), int(counts.max())
        if most == 1:
            return "One seed."
        number = str(most) if fewest == most else f"{fewest} to {most}"
        return f"Mean ± standard deviation over {number} seeds."


_TESTS = {
    "seeds": "paired t-test over seeds, two-sided, corrected after Holm",
    "examples": "paired approximate randomisation over test examples, two-sided, corrected after Holm; it says nothing "
    "about other seeds",
}


def _column_of(table: pd.DataFrame, metric: str) -> str | None:
    return next((name for name in (f"test_{metric}", metric) if name in table.columns), None)


def _number(value: float, metric: Metric) -> str:
    return f"{value * metric.factor:.{metric.digits}f}"


def _group(study: Study, name: str) -> str:
    """Where a name of the study file stands in a table, by the loss behind it."""
    run = next(run for run in study.runs if run.loss == name)
    loss = str(run.arguments["loss"])
    if "+" in loss:
        return GROUPS[2]
    kind = run.kind
    if kind is None:  # a run that was made by hand
        from hf_mlcl.losses import on_logits_only

        kind = "logit" if on_logits_only(loss) else "contrastive"
    return GROUPS[0] if kind == "logit" else GROUPS[1]


def _without_idle_levels(columns: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Headings without the levels that say the same everywhere; one level always stays."""
    if not columns:
        return []
    busy = [level for level in range(len(columns[0])) if len({column[level] for column in columns}) > 1] or [0]
    if 0 not in busy and all(columns[0][0] == column[0] for column in columns):
        busy = [0, *busy]  # the corpus is worth its place
    return [tuple(column[level] for level in busy) for column in columns]


def _listed(places: Sequence[tuple[str, ...]]) -> str:
    return "; ".join(" ".join(part for part in place if part != "default") for place in places)


def _short(name: str) -> str:
    """A backbone's name; of a local folder, its last two parts, which is where a Hub id has its own."""
    return "/".join(Path(name).parts[-2:]) if Path(name).is_absolute() else name


def report_values(table: ReportTable) -> list[dict[str, Any]]:
    """The cells of a table as records, for those who want the numbers that were printed.

    Examples:
        >>> report_values(ReportTable("t", [("AAPD",)], [Row("g", "reg", [Cell("61.28", bold=True)])]))
        [{'loss': 'reg', 'column': 'AAPD', 'value': '61.28', 'deviation': None, 'bold': True}]
    """
    return [
        {
            "loss": row.loss,
            "column": " ".join(column),
            "value": cell.value,
            "deviation": cell.deviation,
            "bold": cell.bold,
        }
        for row in table.rows
        for column, cell in zip(table.columns, row.cells, strict=True)
        if cell is not None
    ]
