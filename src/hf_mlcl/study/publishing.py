"""Everything that is printed of a study, written into its folder, or into a page of somebody's documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from filelock import FileLock

from hf_mlcl.files import whole_file
from hf_mlcl.study.claims import verdicts
from hf_mlcl.study.figures import FIGURES, save_figures
from hf_mlcl.study.rendering import to_latex, to_markdown
from hf_mlcl.study.report_page import report_page
from hf_mlcl.study.results import finished, save_table, study_table
from hf_mlcl.study.specification import Study, StudyError
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
        tables = _tables(study, table, per)
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


def publish_into(study: Study, page: Path, per: str = "metric") -> list[Path]:
    """Write what the finished runs show into a Markdown page, and their figures into ``images/`` beside it.

    It stands between two comments that bear the study's name, and takes the place of what stood there; at the end of a
    page that has none. Everything around them stays. Returns the files that were written.
    """
    if page.is_dir():
        raise StudyError(f"{page} is a folder. Name a Markdown file, such as {page / 'results.md'}.")
    begin, end = (f"<!-- study {study.name}: {mark} -->" for mark in ("begin", "end"))
    with publishing_lock(study):
        before, after = _around(page, begin, end) if page.exists() else (f"# {study.name}\n\n", "\n")  # refused at once
        table = study_table(study)
        prefix = re.sub(r"[^\w-]+", "_", f"{study.name}_")
        drawn, _ = save_figures(study, page.parent / "images", table, prefix=prefix)
        pictures = [f"![{FIGURES[name].title}](images/{path.name})" for name, path in drawn.items()]
        claims = [f"- *{one.claim}.* {one.sentence}{one.sure and f' ({one.sure})'}" for one in verdicts(study, table)]
        parts = [_made(study, table), *map(to_markdown, _tables(study, table, per)), *pictures, "\n".join(claims)]
        section = "\n\n".join([begin, *(part.strip() for part in parts if part), end])
        if page.exists():  # as it is now: another study may have come into it
            before, after = _around(page, begin, end)
        if "\r\n" in before + after:
            section = section.replace("\n", "\r\n")
        with whole_file(page) as draft:
            draft.write_text(before + section + after, encoding="utf-8", newline="")
        return [page, *drawn.values()]


def _around(page: Path, begin: str, end: str) -> tuple[str, str]:
    """What stands before and after a study's section of a page."""
    try:
        with page.open(encoding="utf-8", newline="") as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise StudyError(f"{page} is not a text in UTF-8: {error}.") from error
    found = re.findall(f"{re.escape(begin)}|{re.escape(end)}", text)
    if not found:
        end_of_line = "\r\n" if "\r\n" in text else "\n"
        return text.rstrip() + 2 * end_of_line, end_of_line
    if found != [begin, end]:
        raise StudyError(f"{page} must have {begin} and {end} once each, in this order, or neither of them.")
    return text[: text.index(begin)], text[text.index(end) + len(end) :]


def _tables(study: Study, table: pd.DataFrame, per: str) -> list[ReportTable]:
    return [*report_tables(study, table, per=per), *space_tables(study, table, per), *cost_tables(study, table, per)]


def _made(study: Study, table: pd.DataFrame) -> str:
    """By which runs, when and on what the numbers were made."""
    done = finished(table)
    days = sorted({str(moment)[:10] for moment in done["finished"]})
    hours = done.get("seconds.cpu", done["seconds.total"]).fillna(done["seconds.total"]).sum() / 3600
    used = [" and ".join(sorted(set(done[column]))) for column in ("machine.device", "version.torch")]
    when = " to ".join(dict.fromkeys((days[0], days[-1])))
    runs = f"{len(done)} of {len(table)}" if len(done) < len(table) else f"{len(table)}"
    return f"{runs} runs of `{study.name}`, {when}, {hours:.1f} hours in all; {used[0]}, torch {used[1]}."


def publishing_lock(study: Study) -> FileLock:
    """Keeps commands that end at the same time from writing into one another's files."""
    study.output_dir.mkdir(parents=True, exist_ok=True)
    return FileLock(study.output_dir / ".publishing.lock")
