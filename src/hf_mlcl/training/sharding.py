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


def name_layers(trainer: ContrastiveMultiLabelTrainer) -> None:
    """Tell FSDP2 which layers to shard one by one, unless the user has.

    By itself accelerate takes those that the architecture says must not be split, and then the input embeddings. Of
    BERT, RoBERTa, ViT and others the former hold the latter, and nothing can be sharded twice.
    """
    plugin, model = trainer.accelerator.state.fsdp_plugin, trainer.model
    if plugin.fsdp_version != 2 or plugin.transformer_cls_names_to_wrap is not None:
        return
    embeddings = model.get_input_embeddings()
    # Private, but what authors of models state for this purpose; of parts that this model may lack, too.
    layers = [part for part in model.modules() if type(part).__name__ in model._no_split_modules]
    plugin.transformer_cls_names_to_wrap = sorted(
        {type(part).__name__ for part in layers if all(inner is not embeddings for inner in part.modules())}
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
