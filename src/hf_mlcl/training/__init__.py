"""Training: HF's Trainer with contrastive, logit and joined losses, exact on any number of devices."""

from hf_mlcl.training.arguments import ContrastiveTrainingArguments
from hf_mlcl.training.batches import LabelAwareSampler
from hf_mlcl.training.card_facts import training_report
from hf_mlcl.training.trainer import ContrastiveMultiLabelTrainer

__all__ = ["ContrastiveMultiLabelTrainer", "ContrastiveTrainingArguments", "LabelAwareSampler", "training_report"]
