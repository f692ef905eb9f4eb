"""Every Python block of the README and the docs runs as it stands."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page):
    """The Python blocks of a page with the lines they begin at."""
    text = page.read_text()
    for block in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield text[: block.start()].count("\n") + 2, block.group(1)


def write_reviews(path):
    """The file that the pages take for the reader's own: texts, and labels separated by |."""
    topics = ("plot", "music", "actors", "camera")
    rows = []
    for number in range(60):
        chosen = [topic for place, topic in enumerate(topics) if number % (place + 2) == 0] or ["plot"]
        rows.append(f"number {number} has a word on the {' and the '.join(chosen)},{'|'.join(chosen)}")
    path.write_text("\n".join(["text,tags", *rows]))


def what_goes_wrong(code):
    try:
        exec(compile(code, "block", "exec"), {"__name__": "block"})
    except Exception:
        return traceback.format_exc()


@pytest.mark.parametrize("page", [page for page in PAGES if any(blocks(page))], ids=lambda p: str(p.relative_to(ROOT)))
def test_code_blocks_run(page, tmp_path, monkeypatch):
    """One after another in one folder, so that a block may use what an earlier one has saved."""
    monkeypatch.chdir(tmp_path)
    write_reviews(tmp_path / "reviews.csv")
    errors = {line: error for line, code in blocks(page) if (error := what_goes_wrong(code))}
    assert not errors, "\n".join(f"line {line}: {error}" for line, error in errors.items())


def test_from_a_csv_to_a_pipeline_takes_at_most_fifteen_lines():
    _, block = next(blocks(ROOT / "docs" / "own_data.md"))
    assert ".csv" in block
    assert "pipeline(" in block
    assert len(block.splitlines()) <= 15


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_repository_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text())
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing
