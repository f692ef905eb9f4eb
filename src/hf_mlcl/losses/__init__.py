"""The losses of the study, and a registry for more.

Start at `build_loss`. `engine` holds the computation that all contrastive losses share; each loss states only what is
its own.
"""

from hf_mlcl.losses.balanced import MSCLoss, RegLoss, WithoutRegLoss
from hf_mlcl.losses.contrastive import ContrastiveLoss, LossParts
from hf_mlcl.losses.gathering import gather_rows
from hf_mlcl.losses.logit import (
    AsymmetricLoss,
    BCELoss,
    CrossEntropyLoss,
    FocalLoss,
    LogitLoss,
    LSEPLoss,
    TwoWayLoss,
    ZLPRLoss,
)
from hf_mlcl.losses.loss import JoinedLoss, Loss, loss_terms
from hf_mlcl.losses.queue import MomentumQueue
from hf_mlcl.losses.registry import (
    as_loss,
    build_loss,
    hyperparameters,
    list_losses,
    loss_class,
    loss_kinds,
    loss_name,
    loss_names,
    on_logits_only,
    ranks_only,
    register_loss,
)
from hf_mlcl.losses.simple import BaseLoss, MulSupConLoss, ProtoLoss, SupConLoss, SupConRegLoss

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
    "TwoWayLoss",
    "WithoutRegLoss",
    "ZLPRLoss",
    "as_loss",
    "build_loss",
    "gather_rows",
    "hyperparameters",
    "list_losses",
    "loss_class",
    "loss_kinds",
    "loss_name",
    "loss_names",
    "loss_terms",
    "on_logits_only",
    "ranks_only",
    "register_loss",
]
