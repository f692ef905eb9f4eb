"""The losses of the study, and a registry for more.

Start at `build_loss`. `engine` holds the computation that all contrastive losses share; each loss states only what is
its own, in a module of its name.
"""

from hf_mlcl.losses.base import BaseLoss
from hf_mlcl.losses.contrastive import ContrastiveLoss, LossParts
from hf_mlcl.losses.joined import JoinedLoss
from hf_mlcl.losses.logit import (
    AsymmetricLoss,
    BCELoss,
    CrossEntropyLoss,
    FocalLoss,
    LogitLoss,
    LSEPLoss,
    ZLPRLoss,
)
from hf_mlcl.losses.loss import Loss
from hf_mlcl.losses.msc import MSCLoss
from hf_mlcl.losses.mulsupcon import MulSupConLoss
from hf_mlcl.losses.proto import ProtoLoss
from hf_mlcl.losses.queue import MomentumQueue
from hf_mlcl.losses.reg import RegLoss, WithoutRegLoss
from hf_mlcl.losses.registry import (
    build_loss,
    hyperparameters,
    list_losses,
    loss_class,
    loss_kinds,
    on_logits_only,
    register_loss,
)
from hf_mlcl.losses.supcon import SupConLoss, SupConRegLoss

__all__ = [
    "AsymmetricLoss",
    "BCELoss",
    "BaseLoss",
    "ContrastiveLoss",
    "CrossEntropyLoss",
    "FocalLoss",
    "JoinedLoss",
    "LSEPLoss",
    "LogitLoss",
    "Loss",
    "LossParts",
    "MSCLoss",
    "MomentumQueue",
    "MulSupConLoss",
    "ProtoLoss",
    "RegLoss",
    "SupConLoss",
    "SupConRegLoss",
    "WithoutRegLoss",
    "ZLPRLoss",
    "build_loss",
    "hyperparameters",
    "list_losses",
    "loss_class",
    "loss_kinds",
    "on_logits_only",
    "register_loss",
]
