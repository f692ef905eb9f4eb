"""Runs a recipe on CPUs as `accelerate launch --config_file docs/accelerate/fsdp2.yaml` does on GPUs. Called by tests.

accelerate shards on accelerators only. Its state is told otherwise here: everything else is what runs on GPUs, with
gloo in place of NCCL.
"""

from __future__ import annotations

import runpy
import sys
from typing import Any

from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType
from torch.distributed.tensor import DTensor

from hf_mlcl import ContrastiveTrainingArguments
from hf_mlcl.training import sharding

_begin, _gather = AcceleratorState.__init__, sharding.check_gatherable


def begin(self: Any, *arguments: Any, fsdp_plugin: Any = None, **settings: Any) -> None:
    _begin(self, *arguments, fsdp_plugin=fsdp_plugin, **settings)
    if fsdp_plugin is not None and self.distributed_type != DistributedType.FSDP:
        self.distributed_type, self.fsdp_plugin = DistributedType.FSDP, fsdp_plugin
        fsdp_plugin.set_mixed_precision(self.mixed_precision)


def tell(trainer: Any) -> None:
    """Before a training, and again once it is over."""
    parts = [parameter for parameter in trainer.model.parameters() if isinstance(parameter, DTensor)]
    print(f"sharded: {len(parts)} of {len(list(trainer.model.parameters()))}", flush=True)
    _gather(trainer)


if __name__ == "__main__":
    AcceleratorState.__init__ = begin
    ContrastiveTrainingArguments._check_launch = lambda self: None  # which refuses this on CPUs
    sharding.check_gatherable = tell
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
