"""Processes for tests that kill a process or need several ranks: copies of one that has the imports behind it.

Importing torch and transformers takes seconds: a process that is started the usual way spends most of its time there.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import os
import sys
import traceback
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from accelerate.utils import patch_environment
from torch.distributed import TCPStore

PRELOAD = ["hf_mlcl.experiments.running", "hf_mlcl.study", "training.tiny"]
HANGS = 1800
"""Seconds after which a process that should end has certainly been forgotten by somebody."""


class Copy:
    """A process that calls `function`, with what it prints in a file."""

    def __init__(self, function: Any, *arguments: Any, output: Path, **variables: str) -> None:
        _ensure_server()
        self.output = output
        context = multiprocessing.get_context("forkserver")
        self.process = context.Process(
            target=_call, args=(function, arguments, str(output), {**os.environ, **variables}), daemon=False
        )
        self.process.start()

    def end(self) -> int:
        """Its exit code, minus the signal that killed it."""
        self.process.join(HANGS)
        assert self.process.exitcode is not None, f"It hangs: {self.printed()}"
        return self.process.exitcode

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def printed(self) -> str:
        return self.output.read_text(errors="replace")[-9000:] if self.output.exists() else ""


_server: int | None = None


def _ensure_server() -> None:
    global _server
    server = multiprocessing.forkserver._forkserver  # type: ignore[attr-defined]
    if _server is None or server._forkserver_pid != _server:
        server._stop()  # a study of this process may have started one, which lacks the imports
        server.set_forkserver_preload(PRELOAD)
        with patch_environment(PYTHONPATH=os.pathsep.join(map(os.path.abspath, sys.path))):
            server.ensure_running()
        _server = server._forkserver_pid


def _call(function: Any, arguments: tuple, output: str, variables: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(file, stream)
    try:
        function(*arguments)
    except BaseException:
        traceback.print_exc()
        raise


def run_ranks(function: Any, *arguments: Any, ranks: int, folder: Path) -> list[Copy]:
    """Call the function on every rank of a process group, as torchrun would; once one fails, the others are killed."""
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    variables = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    variables |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    copies = [
        Copy(function, *arguments, output=folder / f"{rank} of {ranks}.txt", **variables, RANK=rank, LOCAL_RANK=rank)
        for rank in map(str, range(ranks))
    ]
    left = {copy.process.sentinel: copy for copy in copies}
    while left:
        codes = [left.pop(sentinel).end() for sentinel in wait(left, timeout=HANGS)]
        if any(codes) or not codes:
            for copy in left.values():
                copy.kill()
    return copies


def all_went_well(copies: list[Copy]) -> bool:
    failed = [copy for copy in copies if copy.end() != 0]
    print(*(f"exit code {copy.end()}: {copy.printed()}" for copy in failed), sep="\n")
    return not failed
