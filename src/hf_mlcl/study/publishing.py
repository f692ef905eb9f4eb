"""Everything that is printed of a study, written into its folder."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pandas as pd
from filelock import FileLock

from hf_mlcl.files import whole_file
from hf_mlcl.study.figures import FIGURES, save_figures
from hf_mlcl.study.rendering import to_latex, to_markdown
from hf_mlcl.study.report_page import report_page
from hf_mlcl.study.results import save_table, study_table
from hf_mlcl.study.specification import Study
from hf_mlcl.study.tables import ReportTable, cost_tables, report_tables, space_tables


class Published(NamedTuple):
    """What was written of a study: the files, the runs that they show, each a row, and the tables in them."""

    paths: list[Path]
    runs: pd.DataFrame
    tables: list[ReportTable]


def publish(study: Study, per: str = "metric") -> Published:
    """Write ``runs.parquet``, ``runs.csv``, ``report.md``, ``report.tex``, ``report.html`` and ``figures/``.

    The HTML page has everything in it, pictures too: it may be moved or sent alone. For `per` see `report_tables`.
    """
    folder = study.output_dir
    with publishing_lock(study):
        table = study_table(study)  # read here: who publishes last knows of all runs that others published before
        tables = [*report_tables(study, table, per=per), *space_tables(study, table), *cost_tables(study, table)]
        paths = save_table(table, folder)
        embedded: dict[str, str] = {}
        drawn, _ = save_figures(study, folder / "figures", table, embedded=embedded)
        pictures = [(embedded[name], FIGURES[name].title) for name in drawn]
        texts = {
            "report.md": "\n\n".join([f"# {study.name}", study.description, *map(to_markdown, tables)]) + "\n",
            "report.tex": "\n\n".join(map(to_latex, tables)) + "\n",
            "report.html": report_page(study, table, tables, pictures),
        }
        for name, text in texts.items():
            with whole_file(folder / name) as draft:
                draft.write_text(text, encoding="utf-8")
            paths.append(folder / name)
        return Published([*paths, *drawn.values()], table, tables)


def publishing_lock(study: Study) -> FileLock:
    """Keeps commands that end at the same time from writing into one another's files."""
    study.output_dir.mkdir(parents=True, exist_ok=True)
    return FileLock(study.output_dir / ".publishing.lock")
