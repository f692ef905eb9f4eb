"""hf-mlcl: multi-label contrastive learning for the Hugging Face ecosystem.

Everything is imported when it is first used; transformers' Auto classes know the models all the same.
"""

from typing import TYPE_CHECKING

from hf_mlcl._auto import make_models_known
from hf_mlcl._lazy import attach

if TYPE_CHECKING:
    from hf_mlcl.data import list_corpora as list_corpora
    from hf_mlcl.data import load_corpus as load_corpus
    from hf_mlcl.losses import build_loss as build_loss
    from hf_mlcl.losses import list_losses as list_losses
    from hf_mlcl.losses import register_loss as register_loss
    from hf_mlcl.models import MLCLConfig as MLCLConfig
    from hf_mlcl.models import MLCLForImageClassification as MLCLForImageClassification
    from hf_mlcl.models import MLCLForSequenceClassification as MLCLForSequenceClassification
    from hf_mlcl.models import MLCLModel as MLCLModel
    from hf_mlcl.training import ContrastiveMultiLabelTrainer as ContrastiveMultiLabelTrainer
    from hf_mlcl.training import ContrastiveTrainingArguments as ContrastiveTrainingArguments

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "data": ["list_corpora", "load_corpus"],
        "evaluation": [],
        "losses": ["build_loss", "list_losses", "register_loss"],
        "metrics": [],
        "models": ["MLCLConfig", "MLCLForImageClassification", "MLCLForSequenceClassification", "MLCLModel"],
        "training": ["ContrastiveMultiLabelTrainer", "ContrastiveTrainingArguments"],
    },
)
make_models_known()
