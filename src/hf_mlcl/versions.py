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
    """What the processor is called, where the system tells; its architecture else."""
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        told = ""
    named = re.search(r"^model name[ \t]*:[ \t]*(\S.*?)[ \t]*$", told, re.MULTILINE)
    return named[1] if named else platform.processor() or platform.machine()
