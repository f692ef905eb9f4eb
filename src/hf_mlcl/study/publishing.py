"""Everything that is printed of a study, written into its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from filelock import FileLock

from hf_mlcl.files import whole_file
from hf_mlcl.study.figures import FIGURES, save_figures
from hf_mlcl.study.rendering import html_page, html_picture, to_html, to_latex, to_markdown
from hf_mlcl.study.report import ReportTable, report_tables, space_tables
from hf_mlcl.study.specification import Study
from hf_mlcl.study.table import save_table, study_table

LOCK_FILE = ".publishing.lock"


class Published(NamedTuple):
    """What was written of a study.

    Attributes:
        paths: The files.
        runs: The runs that they show, each a row.
        tables: The tables in them.
    """

    paths: list[Path]
    runs: pd.DataFrame
    tables: list[ReportTable]


def publish(study: Study, per: str = "metric") -> Published:
    """Write ``runs.parquet``, ``runs.csv``, ``report.md``, ``report.tex``, ``report.html`` and ``figures/``.

    Args:
        study: The study.
        per: See `report_tables`.
    """
    with publishing_lock(study):
        table = study_table(study)  # read here: who publishes last knows of all runs that others published before
        tables = [*report_tables(study, table, per=per), *space_tables(study, table)]
        return Published(_write(study, table, tables), table, tables)


def publishing_lock(study: Study) -> FileLock:
    """Keeps workers that end at the same time from writing into one another's files."""
    study.output_dir.mkdir(parents=True, exist_ok=True)
    return FileLock(study.output_dir / LOCK_FILE)


def _write(study: Study, table: pd.DataFrame, tables: Sequence[ReportTable]) -> list[Path]:
    paths = save_table(table, study.output_dir)
    texts = {
        "report.md": "\n\n".join([f"# {study.name}", study.description, *map(to_markdown, tables)]) + "\n",
        "report.tex": "\n\n".join(map(to_latex, tables)) + "\n",
    }
    paths += [_write_text(study.output_dir / name, text) for name, text in texts.items()]
    pictures, _ = save_figures(study, study.output_dir / "figures", table)
    sections = [to_html(each) for each in tables]
    sections += [html_picture(f"figures/{path.name}", FIGURES[name][0]) for name, path in pictures.items()]
    page = html_page(study.name, study.description, sections)
    return [*paths, _write_text(study.output_dir / "report.html", page), *pictures.values()]


def _write_text(path: Path, text: str) -> Path:
    with whole_file(path) as draft:
        draft.write_text(text, encoding="utf-8")
    return path
