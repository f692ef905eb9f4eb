"""After a training whose model was sharded over the ranks (FSDP): the whole model in each process again."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from torch.distributed.tensor import DTensor

from hf_mlcl.models import MLCLModel
from hf_mlcl.models.adapters import has_adapter

if TYPE_CHECKING:
    from hf_mlcl.training.trainer import ContrastiveMultiLabelTrainer


def check_gatherable(trainer: ContrastiveMultiLabelTrainer) -> None:
    """Refuse, before a training, kinds of sharding from which `gather_model` cannot make a whole model again."""
    state, fsdp = trainer.accelerator.state, trainer.is_fsdp_enabled
    wrong = {
        "DeepSpeed ZeRO-3": trainer.is_deepspeed_enabled and state.deepspeed_plugin.zero_stage == 3,
        "FSDP of version 1": fsdp and state.fsdp_plugin.fsdp_version == 1,
        "FSDP and an adapter": fsdp and has_adapter(trainer.model),
    }
    for kind in (kind for kind, holds in wrong.items() if holds):
        raise ValueError(
            f"With {kind}, recipes and `hf-mlcl train` cannot evaluate and save what they have trained. Use FSDP of "
            "version 2 (without adapter), ZeRO-2 or DDP; or ContrastiveMultiLabelTrainer, whose checkpoints another "
            "process loads: docs/scaling.md."
        )


def gather_model(trainer: ContrastiveMultiLabelTrainer) -> None:
    """Give a trainer the whole of its sharded model, to evaluate and save it; all ranks call it."""
    check_gatherable(trainer)
    if not trainer.is_fsdp_enabled:
        return
    parts = trainer.model.state_dict()
    state = {name: part.full_tensor().cpu() if isinstance(part, DTensor) else part for name, part in parts.items()}
    whole = MLCLModel(copy.deepcopy(trainer.model.config))
    whole.load_state_dict(state)
    trainer.model = trainer.model_wrapped = whole.to(trainer.args.device)
    trainer.is_fsdp_enabled = False
