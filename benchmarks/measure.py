"""How the benchmarks measure: interleaved, since machines are noisy, and memory in a process of its own."""

from __future__ import annotations

import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from hf_mlcl.study.execution import peak_memory
from hf_mlcl.versions import processor_name


def interleaved(functions: dict[str, Callable[[], Any]], rounds: int = 10, repeats: int = 5) -> dict[str, float]:
    """Median seconds of each function over rounds in which every one in turn runs `repeats` times, warmed up.

    In turn, so that a noisy spell of the machine falls on all of them alike; several times in a row, so that none pays
    for what the one before it left in the caches.
    """
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            function()
            for _ in range(repeats):
                start = time.perf_counter()
                function()
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def reset_peak() -> None:
    """Forget the memory peak so far (Linux; elsewhere `peak_megabytes` counts from the start of the process)."""
    if Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_text("5")


def peak_megabytes() -> float:
    """The most memory this process has had since `reset_peak`."""
    return peak_memory() / 1e6


def in_own_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns when a fresh process calls it, so that its memory peak is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def matmul_rate(size: int = 4096, rounds: int = 5) -> float:
    """Floating-point operations a second of a large float32 matrix product here: what the machine can do at best."""
    a = torch.randn(size, size)
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        torch.mm(a, a)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a Markdown table."""
    print(f"\n### {title}\n")
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |", flush=True)


def hardware() -> str:
    """One line about the machine."""
    threads, python = torch.get_num_threads(), platform.python_version()
    return f"{processor_name()}, {threads} threads, Python {python}, torch {torch.__version__}"
