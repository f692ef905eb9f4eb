"""A hook of MkDocs: formulas become MathML, which browsers draw by themselves, without a script or a font."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(page_html: str, **_: Any) -> str:
    """Replace what the extension `arithmatex` has marked."""

    def drawn(found: re.Match[str]) -> str:
        kind = "block" if found[2] == "[" else "inline"
        return f'<{found[1]} class="formula">{convert(html.unescape(found[3]).strip(), display=kind)}</{found[1]}>'

    return FORMULA.sub(drawn, page_html)
