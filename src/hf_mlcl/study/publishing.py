"""Everything that is printed of a study, written into its folder."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd

from hf_mlcl.study.figures import FIGURES, save_figures
from hf_mlcl.study.rendering import html_page, html_picture, to_html, to_latex, to_markdown
from hf_mlcl.study.report import ReportTable, report_tables, space_tables
from hf_mlcl.study.specification import Study
from hf_mlcl.study.table import save_table, study_table


def publish(study: Study, table: pd.DataFrame | None = None, per: str = "metric") -> list[Path]:
    """Write ``runs.parquet``, ``runs.csv``, ``report.md``, ``report.tex``, ``report.html`` and ``figures/``.

    Args:
        study: The study.
        table: Its runs; read from its folder if not given.
        per: See `report_tables`.

    Returns:
        The files.
    """
    table = study_table(study) if table is None else table
    paths = save_table(table, study.output_dir)
    tables = all_tables(study, table, per)
    pictures, _ = save_figures(study, study.output_dir / "figures", table)
    sections = [to_html(each) for each in tables]
    sections += [html_picture(f"figures/{path.name}", FIGURES[name][0]) for name, path in pictures.items()]
    texts = {
        "report.md": "\n\n".join([f"# {study.name}", study.description, *map(to_markdown, tables)]) + "\n",
        "report.tex": "\n\n".join(map(to_latex, tables)) + "\n",
        "report.html": html_page(study.name, study.description, sections),
    }
    for name, text in texts.items():
        path = study.output_dir / name
        draft = path.with_name(f".{name}.part")
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, path)
        paths.append(path)
    return [*paths, *pictures.values()]


def all_tables(study: Study, table: pd.DataFrame, per: str = "metric") -> list[ReportTable]:
    """The report's tables, and those of alignment and uniformity where the runs have them."""
    return [*report_tables(study, table, per=per), *space_tables(study, table)]
