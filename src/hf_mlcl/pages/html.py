"""One HTML file with everything in it: styles, scripts, data, charts and pictures."""

from __future__ import annotations

import base64
import functools
import io
import json
from collections.abc import Mapping
from typing import Any

JPEG_QUALITY = 60


def render(template: str, data: Mapping[str, Any], **context: Any) -> str:
    """A template of this folder, filled in with `context`.

    The page's script reads `data`: ``charts`` (Vega-Lite by name), ``datasets`` (lists of records, by the names that
    charts use), and whatever else it needs.
    """
    # Within a script element only "<" can end it or begin a comment.
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return str(environment().get_template(template).render(data=text, vega=vega_scripts(), **context))


@functools.cache
def environment() -> Any:
    """Templates, which escape what is put into them."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    loader = PackageLoader("hf_mlcl.pages", "templates")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters["raw_file"] = lambda name: Markup(loader.get_source(made, name)[0])  # styles and scripts of ours
    made.filters["raw"] = Markup
    made.filters["score"] = lambda value: "" if value is None else f"{value:.3f}"
    return made


@functools.cache
def vega_scripts() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    import vl_convert

    bundle = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # of which its stub knows no default
    return str(bundle).replace("</script", "<\\/script")


def data_uri(content: bytes, kind: str) -> str:
    """A file within a page.

    Examples:
        >>> data_uri(b"a,b", "text/csv")
        'data:text/csv;base64,YSxi'
    """
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def thumbnail(image: Any, side: int) -> str:
    """A PIL image as a small JPEG."""
    small = image.convert("RGB")
    small.thumbnail((side, side))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=JPEG_QUALITY, optimize=True)
    return data_uri(buffer.getvalue(), "image/jpeg")


def svg(figure: Any) -> str:
    """A matplotlib figure as a picture that stays sharp at any size."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return data_uri(buffer.getvalue(), "image/svg+xml")


def excerpt(text: str, length: int) -> str:
    """The beginning of a text, on one line, with what UTF-8 can hold.

    Examples:
        >>> excerpt("One   two three", 8)
        'One two…'
    """
    line = " ".join(text[: 4 * length].split()).encode("utf-8", "replace").decode("utf-8")
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"
