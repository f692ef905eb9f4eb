"""hf-mlcl: multi-label contrastive learning for the Hugging Face ecosystem.

Losses and models are there at once, since importing the package is what makes the Auto classes know the models. The
rest is imported when it is first used. The program ``hf-mlcl`` imports everything when a command needs it: its
``--help`` shall not wait for torch.
"""

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any


def _is_program() -> bool:
    """Whether ``hf-mlcl`` or ``python -m hf_mlcl`` was started, and not a program that uses the package."""
    argv = getattr(sys, "argv", None) or [""]  # Python within another program may have none
    if argv[0] != "-m":
        return Path(argv[0]).name in ("hf-mlcl", "hf-mlcl.exe")
    # Python is about to run a module, whose name stands before the arguments, perhaps with other options: -um hf_mlcl.
    module = "".join(sys.orig_argv[: len(sys.orig_argv) - len(argv) + 1][-1:])
    return module == "hf_mlcl" or (module.startswith("-") and module.endswith("mhf_mlcl"))


if TYPE_CHECKING or not _is_program():
    from hf_mlcl.losses import build_loss, list_losses, register_loss
    from hf_mlcl.models import MLCLConfig, MLCLForImageClassification, MLCLForSequenceClassification, MLCLModel

if TYPE_CHECKING:
    from hf_mlcl.data import list_corpora, load_corpus
    from hf_mlcl.training import ContrastiveMultiLabelTrainer, ContrastiveTrainingArguments

_HOME = {
    "ContrastiveMultiLabelTrainer": "training",
    "ContrastiveTrainingArguments": "training",
    "MLCLConfig": "models",
    "MLCLForImageClassification": "models",
    "MLCLForSequenceClassification": "models",
    "MLCLModel": "models",
    "build_loss": "losses",
    "list_corpora": "data",
    "list_losses": "losses",
    "load_corpus": "data",
    "register_loss": "losses",
}

__all__ = [
    "ContrastiveMultiLabelTrainer",
    "ContrastiveTrainingArguments",
    "MLCLConfig",
    "MLCLForImageClassification",
    "MLCLForSequenceClassification",
    "MLCLModel",
    "build_loss",
    "list_corpora",
    "list_losses",
    "load_corpus",
    "register_loss",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"hf_mlcl.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
