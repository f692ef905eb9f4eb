"""Report tables as Markdown, LaTeX and HTML; every name is escaped for its language."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hf_mlcl.study.tables import Cell, ReportTable, Row

_LATEX_LOSSES = {"bce": "BCE", "focal": "Focal", "asymmetric": "ASY", "lsep": "LSEP", "zlpr": "ZLPR", "base": "Base"}
_LATEX_LOSSES |= {"cross_entropy": "CE", "proto": "Proto", "mulsupcon": "MulSupCon", "msc": "MSC", "reg": "REG"}
_LATEX_LOSSES |= {"wo_reg": "W/O-REG", "supcon": "SupCon", "supcon_reg": "SupConReg"}
_LATEX_SPECIAL = {character: f"\\{character}" for character in "&%$#_{}"}
_LATEX_SPECIAL |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX_SPECIAL |= {"±": r"$\pm$", "<": r"$<$", ">": r"$>$"}


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


STARRED = CellStyle("{}*", "{}", " ± {}")
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

    def escaped(text: str) -> str:
        return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", text)

    lines = [f"**{escaped(table.title)}**", ""]
    lines.append("| " + " | ".join(["loss", *(escaped(" ".join(column)) for column in table.columns)]) + " |")
    lines.append("|---" * (1 + len(table.columns)) + "|")
    for row in table.rows:
        loss = row.loss.replace("|", r"\|")  # the only thing that is special within code in a table
        lines.append("| " + " | ".join([f"`{loss}`", *map(MARKDOWN.text, row.cells)]) + " |")
    return "\n".join([*lines, "", *(f"- {escaped(note)}" for note in table.notes)])


def to_latex(table: ReportTable) -> str:
    r"""A ``table*`` as the paper's, for the packages booktabs, graphicx and amsmath."""
    width = 1 + len(table.columns)
    body = [r"\begin{tabular}{l" + "c" * len(table.columns) + "}", r"\toprule"]
    *upper, lowest = _levels(table)
    for headings in upper:
        cells, rules, position = [""], [], 2
        for heading, span in headings:
            cells.append(_latex(heading) if span == 1 else rf"\multicolumn{{{span}}}{{c}}{{{_latex(heading)}}}")
            rules.append(rf" \cmidrule(lr){{{position}-{position + span - 1}}}")
            position += span
        body.append(" & ".join(cells) + r" \\" + "".join(rules))
    body.append(" & ".join([r"\textbf{Loss}", *(_latex(heading) for heading, _ in lowest)]) + r" \\")
    groups = _groups(table.rows)
    for group, rows in groups:
        body.append(r"\midrule")
        if len(groups) > 1:
            body += [rf"\multicolumn{{{width}}}{{l}}{{\textbf{{{_latex(group)}}}}} \\", r"\midrule"]
        for row in rows:
            cells = [re.sub("-(?=[0-9])", "$-$", LATEX.text(cell)) for cell in row.cells]
            body.append(" & ".join([_latex_loss(row.loss), *cells]) + r" \\")
    body += [r"\bottomrule", r"\end{tabular}"]
    if width > 8:
        body = [r"\resizebox{\textwidth}{!}{%", *body, "}"]
    caption = " ".join([f"{_latex(table.title)}.", *map(_latex, table.notes)])
    opening = ["% needs \\usepackage{booktabs,graphicx,amsmath}", r"\begin{table*}[t]", r"\centering"]
    return "\n".join([*opening, rf"\caption{{{caption}}}", *body, r"\end{table*}"])


def _latex(text: str) -> str:
    return text.translate(str.maketrans(_LATEX_SPECIAL))


def _latex_loss(loss: str) -> str:
    parts = [part.strip() for part in loss.split("+")]
    if all(part in _LATEX_LOSSES for part in parts):
        return "$" + " + ".join(rf"\mathcal{{L}}_{{\text{{{_LATEX_LOSSES[part]}}}}}" for part in parts) + "$"
    return rf"\texttt{{{_latex(loss)}}}"


def to_html(table: ReportTable) -> str:
    """A section with the table and its notes."""
    return str(_template().module.section(table))


def html_page(
    title: str, description: str, tables: Sequence[ReportTable], pictures: Sequence[tuple[str, str]] = ()
) -> str:
    """A whole page that needs no other file but its pictures (paths with captions)."""
    page: str = _template().render(title=title, description=description, tables=tables, pictures=pictures)
    return page


@functools.cache
def _template() -> Any:
    from jinja2 import Environment, PackageLoader
    from markupsafe import Markup

    environment = Environment(loader=PackageLoader("hf_mlcl.study", ""), autoescape=True)
    environment.filters |= {"levels": _levels, "groups": _groups, "cell": lambda cell: Markup(HTML.text(cell))}
    return environment.get_template("report.html.jinja")


def _levels(table: ReportTable) -> list[list[tuple[str, int]]]:
    """Headings of each level with the number of columns below; equal neighbours are one if all above is equal."""

    def spans(level: int) -> Iterator[tuple[str, int]]:
        for key, columns in itertools.groupby(table.columns, key=lambda column: column[: level + 1]):
            yield key[-1], len(list(columns))

    return [list(spans(level)) for level in range(len(table.columns[0]))]


def _groups(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    return [(group, list(members)) for group, members in itertools.groupby(rows, key=lambda row: row.group)]
