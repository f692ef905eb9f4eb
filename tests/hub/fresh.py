"""Code in a fresh interpreter, with this package or as if it were not installed."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import textwrap
import venv
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
WITHOUT_PACKAGE = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "hf_mlcl":
            raise ModuleNotFoundError("hf_mlcl is not installed here")

sys.meta_path.insert(0, Blocked())
try:
    import hf_mlcl
except ModuleNotFoundError:
    pass
else:
    raise AssertionError("hf_mlcl can be imported")
"""


def run(
    code: str,
    *arguments: object,
    package: bool = True,
    check: bool = True,
    cwd: object = None,
    python: object = sys.executable,
    **env: str,
) -> subprocess.CompletedProcess[str]:
    """Run code; without the package, importing it fails."""
    code = textwrap.dedent(code) if package else WITHOUT_PACKAGE + textwrap.dedent(code)
    variables = {**os.environ, "PYTHONPATH": str(SOURCE) if package else "", **env}
    done = subprocess.run(
        [str(python), "-c", code, *map(str, arguments)], env=variables, capture_output=True, text=True, cwd=cwd
    )
    assert not check or done.returncode == 0, done.stderr[-9000:]
    return done


def environment_without_package(folder: Path) -> Path:
    """The interpreter of a virtual environment with every library that is installed here, but not this package.

    A path in a ``.pth`` file is searched for modules, while ``.pth`` files there, those of editable installs, are not
    read.
    """
    venv.create(folder, symlinks=os.name == "posix")
    inner = {"base": str(folder), "platbase": str(folder)}
    libraries = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    (Path(sysconfig.get_path("purelib", vars=inner)) / "libraries.pth").write_text("\n".join(sorted(libraries)) + "\n")
    return Path(sysconfig.get_path("scripts", vars=inner)) / ("python.exe" if os.name == "nt" else "python")
