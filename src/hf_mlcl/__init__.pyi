from . import evaluation as evaluation, metrics as metrics
from .data import list_corpora as list_corpora, load_corpus as load_corpus
from .losses import build_loss as build_loss, list_losses as list_losses, register_loss as register_loss
from .models import (
    MLCLConfig as MLCLConfig,
    MLCLForImageClassification as MLCLForImageClassification,
    MLCLForSequenceClassification as MLCLForSequenceClassification,
    MLCLModel as MLCLModel,
)
from .training import (
    ContrastiveMultiLabelTrainer as ContrastiveMultiLabelTrainer,
    ContrastiveTrainingArguments as ContrastiveTrainingArguments,
)
