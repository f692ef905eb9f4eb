"""Versions of the libraries that a result depends on."""

from __future__ import annotations

import platform
import re
from importlib import metadata
from pathlib import Path

NOT_INSTALLED = "not installed"
LIBRARIES = ["torch", "torchvision", "transformers", "datasets", "accelerate", "timm", "numpy", "scikit-learn"]


def library_versions() -> dict[str, str]:
    """Versions of Python, of this package and of those `LIBRARIES` that are installed."""
    own = {"python": platform.python_version(), "hf-mlcl": installed_version("hf-mlcl") or NOT_INSTALLED}
    return own | {name: version for name in LIBRARIES if (version := installed_version(name))}


def installed_version(name: str) -> str | None:
    """The version of an installed package; None where there is none, as for a package that is used from its folder."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def processor_name() -> str:
    """What the processor is called, where the system tells; its architecture else.

    With its generation, where the system numbers it: virtual machines call processors of any generation by one name,
    and their times cannot be compared.
    """
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        told = ""
    name, family, model = (_told(field, told) for field in ("model name", "cpu family", "model"))
    if not name:
        return platform.processor() or platform.machine()
    return f"{name}, family {family} model {model}" if family and model else name


def _told(field: str, told: str) -> str:
    found = re.search(rf"^{field}[ \t]*:[ \t]*(\S.*?)[ \t]*$", told, re.MULTILINE)
    return found[1] if found else ""
