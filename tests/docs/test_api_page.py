"""The API page lists every public name, and nothing that is not public."""

import importlib
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
PACKAGES = ["", "losses", "models", "training", "data", "metrics", "evaluation", "inference", "hub", "experiments"]
PACKAGES = [f"hf_mlcl.{name}".rstrip(".") for name in [*PACKAGES, "pages", "study"]]


def entries() -> dict[str, list[str]]:
    """Module to members, as the page's `:::` blocks have them."""
    blocks = re.findall(r"^::: (\S+)\n.*?members: \[(.*?)\]", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S)
    return {module: [name.strip() for name in members.split(",")] for module, members in blocks}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_page_has_an_entry_for_every_public_name_and_for_no_other(package: str) -> None:
    assert sorted(entries()[package]) == sorted(importlib.import_module(package).__all__)


def test_the_page_describes_no_module_that_is_not_public() -> None:
    assert sorted(entries()) == sorted(PACKAGES)
