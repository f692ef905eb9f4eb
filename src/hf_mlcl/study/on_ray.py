"""Runs as tasks of a Ray cluster: which node does what, GPUs, retries and dead nodes are Ray's business.

The study's folder must be on a file system that all nodes share, and this package installed on each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hf_mlcl.study.execution import Job, do

MAX_RETRIES = 3
"""Attempts after the first where a node or a process dies; they go on from the run's last checkpoint."""


def on_ray(jobs: Sequence[Job], address: str | bool) -> Iterator[tuple[Job, str | None]]:
    """Do jobs on a cluster, and yield each at its end, with what was wrong where its process died.

    If the address is True it is the cluster of this machine, which is started where there is none.
    """
    try:
        import ray
        from ray.exceptions import RayError
    except ImportError as error:
        raise ImportError("Ray is not installed: pip install 'hf-mlcl[ray]'.") from error

    connected = ray.is_initialized()
    if not connected:
        ray.init(address=address if isinstance(address, str) else None, log_to_driver=False)
    gpus = 1 if ray.cluster_resources().get("GPU") else 0  # type: ignore[no-untyped-call,unused-ignore]
    # Each run has a fresh process, as it has without Ray. It waits for its lock, which a dead node's file system may
    # free only after a while.
    task: Any = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=MAX_RETRIES, max_calls=1)(do)
    waiting = {task.remote(job, wait=True): job for job in jobs}
    try:
        while waiting:
            for reference in ray.wait(list(waiting))[0]:
                job = waiting.pop(reference)
                try:
                    ray.get(reference)
                except RayError as error:
                    yield job, f"{type(error).__name__}: {error}"
                else:
                    yield job, None
    finally:
        for reference in waiting:
            ray.cancel(reference, force=True)
        if not connected:
            ray.shutdown()
