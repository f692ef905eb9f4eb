"""Report tables as Markdown, LaTeX and HTML; every name is escaped for its language."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterator, Sequence

from hf_mlcl.study.report import Cell, ReportTable, Row

FORMATS = ("markdown", "latex", "html")

_LATEX_LOSSES = {
    "bce": "BCE",
    "focal": "Focal",
    "asymmetric": "ASY",
    "lsep": "LSEP",
    "zlpr": "ZLPR",
    "cross_entropy": "CE",
    "base": "Base",
    "proto": "Proto",
    "mulsupcon": "MulSupCon",
    "msc": "MSC",
    "wo_reg": "W/O-REG",
    "reg": "REG",
    "supcon": "SupCon",
    "supcon_reg": "SupConReg",
}

_CSS = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; color: #1c1e21; }
table { border-collapse: collapse; border-top: 2px solid; border-bottom: 2px solid; margin: .6rem 0; }
th, td { padding: .18rem .7rem; text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th { font-weight: 600; text-align: center; }
th.level { border-bottom: 1px solid #999; }
td:first-child { text-align: left; font-family: ui-monospace, monospace; }
th.loss { text-align: left; vertical-align: bottom; }
tr.group th { border-top: 1px solid #999; text-align: left; font: 600 13px system-ui, sans-serif; color: #555; }
td.paper, th.paper { color: #666; }
.deviation { color: #777; font-size: 85%; }
.scroll { overflow-x: auto; }
.notes { font-size: 85%; color: #555; margin: .2rem 0 2rem; padding-left: 1.2rem; }
img { max-width: 100%; }
code { background: #f2f3f5; padding: 0 .2rem; }
"""


def to_markdown(table: ReportTable) -> str:
    """A pipe table with its title and notes.

    Examples:
        >>> table = ReportTable("F1", [("AAPD",)], [Row("Contrastive losses", "reg", [Cell("61.28", "0.10", True)])])
        >>> print(to_markdown(table))
        **F1**
        <BLANKLINE>
        | loss | AAPD |
        |---|---|
        | `reg` | **61.28** ± 0.10 |
        <BLANKLINE>
    """
    lines = [f"**{_markdown(table.title)}**", ""]
    lines.append("| " + " | ".join(["loss", *(_markdown(" ".join(column)) for column in table.columns)]) + " |")
    lines.append("|---" * (1 + len(table.columns)) + "|")
    for row in table.rows:
        loss = row.loss.replace("|", r"\|")  # the only thing that is special within code in a table
        lines.append("| " + " | ".join([f"`{loss}`", *map(_markdown_cell, row.cells)]) + " |")
    return "\n".join([*lines, "", *(f"- {_markdown(note)}" for note in table.notes)])


def to_latex(table: ReportTable) -> str:
    r"""A ``table*`` as the paper's, for the packages booktabs and graphicx.

    Examples:
        >>> table = ReportTable("F_1", [("AAPD",)], [Row("Contrastive losses", "reg", [Cell("61.28", "0.10", True)])])
        >>> print(to_latex(table).splitlines()[8])
        $\mathcal{L}_{\text{REG}}$ & \textbf{61.28} {\scriptsize $\pm$ 0.10} \\
    """
    width = 1 + len(table.columns)
    body = [r"\begin{tabular}{l" + "c" * len(table.columns) + "}", r"\toprule"]
    levels = len(table.columns[0]) if table.columns else 0
    for level in range(levels):
        name = r"\textbf{Loss}" if level == levels - 1 else ""
        cells, rules, position = [name], [], 2
        for heading, span in _spans(table.columns, level):
            cells.append(_latex(heading) if span == 1 else rf"\multicolumn{{{span}}}{{c}}{{{_latex(heading)}}}")
            rules.append(rf"\cmidrule(lr){{{position}-{position + span - 1}}}")
            position += span
        body.append(" & ".join(cells) + r" \\" + (" ".join(["", *rules]) if level < levels - 1 else ""))
    for group, rows in _groups(table.rows):
        body.append(r"\midrule")
        if len({row.group for row in table.rows}) > 1:
            body += [rf"\multicolumn{{{width}}}{{l}}{{\textbf{{{_latex(group)}}}}} \\", r"\midrule"]
        body += [" & ".join([_latex_loss(row.loss), *map(_latex_cell, row.cells)]) + r" \\" for row in rows]
    body += [r"\bottomrule", r"\end{tabular}"]
    if width > 8:
        body = [r"\resizebox{\textwidth}{!}{%", *body, "}"]
    caption = " ".join([f"{_latex(table.title)}.", *map(_latex, table.notes)])
    opening = ["% needs \\usepackage{booktabs,graphicx,amsmath}", r"\begin{table*}[t]", r"\centering"]
    return "\n".join([*opening, rf"\caption{{{caption}}}", *body, r"\end{table*}"])


def to_html(table: ReportTable) -> str:
    """A section with the table and its notes."""
    levels = len(table.columns[0]) if table.columns else 0
    heads = []
    for level in range(levels):
        first = f'<th class="loss" rowspan="{levels}">loss</th>' if level == 0 else ""
        cells = []
        for heading, span in _spans(table.columns, level):
            kind = "level" if level < levels - 1 else _kind(heading)
            cells.append(f'<th class="{kind}" colspan="{span}">{html.escape(heading)}</th>')
        heads.append(f"<tr>{first}{''.join(cells)}</tr>")
    rows = []
    for group, members in _groups(table.rows):
        if len({row.group for row in table.rows}) > 1:
            rows.append(f'<tr class="group"><th colspan="{1 + len(table.columns)}">{html.escape(group)}</th></tr>')
        for row in members:
            cells = [
                f'<td class="{_kind(column[-1])}">{_html_cell(cell)}</td>'
                for column, cell in zip(table.columns, row.cells, strict=True)
            ]
            rows.append(f"<tr><td>{html.escape(row.loss)}</td>{''.join(cells)}</tr>")
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in table.notes)
    return (
        f'<section><h2>{html.escape(table.title)}</h2><div class="scroll"><table><thead>{"".join(heads)}</thead>'
        f'<tbody>{"".join(rows)}</tbody></table></div><ul class="notes">{notes}</ul></section>'
    )


def html_page(title: str, description: str, sections: Sequence[str]) -> str:
    """A whole page that needs no other file but its pictures.

    Args:
        title: Its heading.
        description: A line under it.
        sections: Pieces of HTML.
    """
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_CSS}</style></head>\n'
        f"<body><h1>{html.escape(title)}</h1><p>{html.escape(description)}</p>\n"
        + "\n".join(sections)
        + "</body></html>\n"
    )


def html_picture(source: str, caption: str) -> str:
    """A section with a picture."""
    text = html.escape(caption)
    return f'<section><h2>{text}</h2><img src="{html.escape(source)}" alt="{text}"></section>'


def _spans(columns: Sequence[tuple[str, ...]], level: int) -> Iterator[tuple[str, int]]:
    """Headings of a level with the number of columns below each; equal neighbours are one if all above is equal."""
    for key, group in itertools.groupby(columns, key=lambda column: column[: level + 1]):
        yield key[-1], len(list(group))


def _groups(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    for group, members in itertools.groupby(rows, key=lambda row: row.group):
        yield group, list(members)


def _kind(heading: str) -> str:
    return "paper" if heading == "paper" else "ours"


# Markdown -------------------------------------------------------------------------------------------------------------


def _markdown(text: str) -> str:
    r"""Text as it is, whatever is special in a table's cell.

    Examples:
        >>> print(_markdown("a_b|c*"))
        a\_b\|c\*
    """
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", text)


def _markdown_cell(cell: Cell | None) -> str:
    if cell is None:
        return ""
    value = f"**{cell.value}**" if cell.bold else f"<u>{cell.value}</u>" if cell.underlined else cell.value
    return value if cell.deviation is None else f"{value} ± {cell.deviation}"


# LaTeX ----------------------------------------------------------------------------------------------------------------

_LATEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": r"$<$",
    ">": r"$>$",
}


def _latex(text: str) -> str:
    r"""Text as it is, whatever is special in LaTeX.

    Examples:
        >>> print(_latex("5% of a_b & {c}"))
        5\% of a\_b \& \{c\}
    """
    return "".join(_LATEX_SPECIAL.get(character, character) for character in text)


def _latex_loss(loss: str) -> str:
    parts = [part.strip() for part in loss.split("+")]
    if all(part in _LATEX_LOSSES for part in parts):
        return "$" + " + ".join(rf"\mathcal{{L}}_{{\text{{{_LATEX_LOSSES[part]}}}}}" for part in parts) + "$"
    return rf"\texttt{{{_latex(loss)}}}"


def _latex_cell(cell: Cell | None) -> str:
    if cell is None:
        return ""
    value = cell.value.replace("-", "$-$") if cell.value.startswith("-") else cell.value
    value = rf"\textbf{{{value}}}" if cell.bold else rf"\underline{{{value}}}" if cell.underlined else value
    return value if cell.deviation is None else rf"{value} {{\scriptsize $\pm$ {cell.deviation}}}"


# HTML -----------------------------------------------------------------------------------------------------------------


def _html_cell(cell: Cell | None) -> str:
    if cell is None:
        return ""
    value = html.escape(cell.value)
    value = f"<strong>{value}</strong>" if cell.bold else f"<u>{value}</u>" if cell.underlined else value
    return (
        value if cell.deviation is None else f'{value} <span class="deviation">± {html.escape(cell.deviation)}</span>'
    )
