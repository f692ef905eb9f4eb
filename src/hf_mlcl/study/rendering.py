"""Report tables as Markdown, LaTeX and HTML, by templates; every name is escaped for its language."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from hf_mlcl.pages.html import environment
from hf_mlcl.study.tables import Cell, ReportTable, Row

LATEX_LOSSES = {"bce": "BCE", "focal": "Focal", "asymmetric": "ASY", "lsep": "LSEP", "zlpr": "ZLPR", "base": "Base"}
LATEX_LOSSES |= {"cross_entropy": "CE", "proto": "Proto", "mulsupcon": "MulSupCon", "msc": "MSC", "reg": "REG"}
LATEX_LOSSES |= {"wo_reg": "W/O-REG", "supcon": "SupCon", "supcon_reg": "SupConReg", "two_way": "Two-way"}
LATEX_SPECIAL = {character: f"\\{character}" for character in "&%$#_{}"}
LATEX_SPECIAL |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
LATEX_SPECIAL |= {"±": r"$\pm$", "<": r"$<$", ">": r"$>$"}


class CellStyle(NamedTuple):
    """How a language writes a cell's parts."""

    bold: str
    underlined: str
    deviation: str

    def text(self, cell: Cell | None) -> str:
        """A cell in this language; numbers need no escaping."""
        if cell is None:
            return ""
        style = self.bold if cell.bold else self.underlined if cell.underlined else "{}"
        return style.format(cell.value) + ("" if cell.deviation is None else self.deviation.format(cell.deviation))


STARRED = CellStyle("{}*", "_{}_", " ± {}")
"""There is no bold in a log: a star says the same."""
MARKDOWN = CellStyle("**{}**", "<u>{}</u>", " ± {}")
LATEX = CellStyle(r"\textbf{{{}}}", r"\underline{{{}}}", r" {{\scriptsize $\pm$ {}}}")
HTML = CellStyle("<strong>{}</strong>", "<u>{}</u>", ' <span class="deviation">± {}</span>')


def to_markdown(table: ReportTable) -> str:
    """A pipe table with its title and notes.

    Examples:
        >>> table = ReportTable("F1", [("AAPD",)], [Row("Contrastive losses", "reg", [Cell("61.28", "0.10", True)])])
        >>> print(to_markdown(table).splitlines()[4])
        | `reg` | **61.28** ± 0.10 |
    """
    return str(_template("table.md.jinja").render(table=table))


def to_latex(table: ReportTable) -> str:
    """A ``table*`` as the paper's, for the packages booktabs, graphicx and amsmath."""
    return str(_template("table.tex.jinja").render(table=table, levels=_levels(table), groups=_groups(table.rows)))


def to_html(table: ReportTable) -> str:
    """A section with the table and its notes."""
    html_filters()
    return str(environment().get_template("table.html.jinja").module.section(table))


def html_filters() -> None:
    """Let the templates of pages have what tables of a report need."""
    from markupsafe import Markup, escape

    environment().filters |= {
        "levels": _levels,
        "groups": _groups,
        "html": lambda cell: Markup(HTML.text(cell)),
        "code": lambda text: Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))),
    }


@functools.cache
def _template(name: str) -> Any:
    from jinja2 import Environment, PackageLoader

    marks: dict[str, Any] = {}
    if name.endswith(".tex.jinja"):  # braces are LaTeX's own
        marks = {"block_start_string": "<%", "block_end_string": "%>", "variable_start_string": "<<"}
        marks |= {"variable_end_string": ">>", "trim_blocks": True}
    made = Environment(loader=PackageLoader("hf_mlcl.study", "."), **marks)
    made.filters |= {
        "markdown": MARKDOWN.text,
        "latex": lambda cell: re.sub("-(?=[0-9])", "$-$", LATEX.text(cell)),
        "markdown_text": lambda text: re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", text),
        "latex_text": lambda text: text.translate(str.maketrans(LATEX_SPECIAL)),
        "latex_losses": lambda loss: [LATEX_LOSSES.get(part.strip()) for part in loss.split("+")],
    }
    return made.get_template(name)


def _levels(table: ReportTable) -> list[list[tuple[str, int]]]:
    """Headings of each level with the number of columns below; equal neighbours are one if all above is equal."""
    levels = []
    for level in range(len(table.columns[0])):
        spans = itertools.groupby(table.columns, key=lambda column: column[: level + 1])
        levels.append([(key[-1], len(list(columns))) for key, columns in spans])
    return levels


def _groups(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    return [(group, list(members)) for group, members in itertools.groupby(rows, key=lambda row: row.group)]
