"""Code in a fresh interpreter, with this package or as if it were not installed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
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
    code: str, *arguments: object, package: bool = True, check: bool = True, cwd: object = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run code; without the package, importing it fails."""
    code = textwrap.dedent(code) if package else WITHOUT_PACKAGE + textwrap.dedent(code)
    variables = {**os.environ, "PYTHONPATH": str(SOURCE) if package else "", **env}
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], env=variables, capture_output=True, text=True, cwd=cwd
    )
    assert not check or done.returncode == 0, done.stderr[-9000:]
    return done
