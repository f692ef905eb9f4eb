"""Trains with FSDP2 on every rank, resumes, and gathers the model. Called by tests.

accelerate shards on accelerators only. Its state is told otherwise here: everything from there on (its preparation of
model and optimizer, HF's trainer, its checkpoints) is what runs on GPUs, with gloo in place of NCCL.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
from accelerate import FullyShardedDataParallelPlugin, PartialState
from accelerate.utils import DistributedType
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback

from hf_mlcl import ContrastiveMultiLabelTrainer, ContrastiveTrainingArguments, MLCLModel
from hf_mlcl.training.sharding import gather_model
from training.tiny import text_model, text_rows

GLOBAL_BATCH, STEPS = 12, 4


class Gradients(TrainerCallback):
    def __init__(self) -> None:
        self.of_steps: list[dict] = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.of_steps.append(
            {name: whole(p.grad).clone() for name, p in model.named_parameters() if p.grad is not None}
        )


def with_classifier(seed: int = 0) -> MLCLModel:
    return text_model(seed=seed, classifier=True)


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


ZERO_3 = {
    "train_micro_batch_size_per_gpu": GLOBAL_BATCH,
    "train_batch_size": GLOBAL_BATCH,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 0.0,
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "zero_optimization": {
        "stage": 3,
        "stage3_gather_16bit_weights_on_model_save": True,
        "stage3_param_persistence_threshold": 0,
    },
}


def trainer(folder: str, ranks: int, callbacks: list, model=None, **settings) -> ContrastiveMultiLabelTrainer:
    args = ContrastiveTrainingArguments(
        folder,
        loss="reg+zlpr",
        per_device_train_batch_size=GLOBAL_BATCH // ranks,
        max_steps=STEPS,
        save_steps=STEPS // 2,
        learning_rate=0.01,
        optim="sgd",
        max_grad_norm=0.0,
        train_sampling_strategy="sequential",
        report_to="none",
        disable_tqdm=True,
        **{"use_cpu": True, **settings},
    )
    made = ContrastiveMultiLabelTrainer(
        MLCLModel.from_pretrained(model) if isinstance(model, str) else model or with_classifier(),
        args,
        train_dataset=text_rows(GLOBAL_BATCH * STEPS),
        callbacks=callbacks,
    )
    if ranks > 1:
        state = made.accelerator.state
        state.distributed_type = DistributedType.FSDP
        state.fsdp_plugin = FullyShardedDataParallelPlugin(
            fsdp_version=2,
            auto_wrap_policy="transformer_based_wrap",
            state_dict_type="SHARDED_STATE_DICT",
            cpu_ram_efficient_loading=False,
            reshard_after_forward=True,
        )
        made.is_fsdp_enabled = True
    return made


def main(output: str) -> None:
    ranks = int(os.environ["WORLD_SIZE"])
    folder, recorded = str(Path(output).with_suffix("")), Gradients()
    one = trainer(folder, ranks, [recorded])
    one.train()
    is_sharded = isinstance(next(one.model.parameters()), DTensor)
    features = torch.from_numpy(one.extract_features(text_rows(10)))
    gather_model(one)
    again = trainer(folder, ranks, [], with_classifier(seed=5))
    again.train(resume_from_checkpoint=f"{folder}/checkpoint-{STEPS // 2}")
    resumed = {name: whole(value) for name, value in again.model.state_dict().items()}
    if PartialState().is_main_process:
        one.model.save_pretrained(f"{folder}/whole")
        gathered = dict(one.model.state_dict())
        found = {"gradients": recorded.of_steps, "features": features, "gathered": gathered, "resumed": resumed}
        torch.save({**found, "is_sharded": is_sharded}, output)
    PartialState().destroy_process_group()


def zero_3(output: str) -> None:
    """As `main` in one process, with DeepSpeed, which on CPUs accelerate gives no more than one."""
    folder, deepspeed = str(Path(output).with_suffix("")), {"deepspeed": ZERO_3, "use_cpu": False}
    for seed in (0, 5):  # saved before DeepSpeed is there, which draws weights in another order
        with_classifier(seed).save_pretrained(f"{folder}/start-{seed}")
    one = trainer(folder, 1, [], f"{folder}/start-0", **deepspeed)
    one.train()
    features = torch.from_numpy(one.extract_features(text_rows(10)))
    one.save_model(f"{folder}/whole")
    again = trainer(folder, 1, [], f"{folder}/start-5", **deepspeed)
    again.train(resume_from_checkpoint=f"{folder}/checkpoint-{STEPS // 2}")
    resumed = torch.from_numpy(again.extract_features(text_rows(10)))
    torch.save({"features": features, "resumed": resumed, "enabled": one.is_deepspeed_enabled}, output)
    PartialState().destroy_process_group()
