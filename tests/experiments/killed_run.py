"""A toy experiment that is killed when a stage has begun; at a random one of its calls, where there are many.

Usage: python -m experiments.killed_run FOLDER STAGE
"""

from __future__ import annotations

import os
import random
import signal
import sys

from experiments.test_output_folder import STAGES
from experiments.toy import run


def main(folder: str, stage: str) -> None:
    where, name = STAGES[stage]
    act, calls = getattr(where, name), []
    fatal = random.randint(1, {"training": 4, "checkpoint": 2, "putting in place": 3}.get(stage, 1))

    def die(*args, **kwargs):
        calls.append(1)
        if len(calls) == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return act(*args, **kwargs)

    setattr(where, name, die)
    run(folder)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
