"""What an experiment needs to know beside the arguments of its training."""
# ruff: noqa: RUF009  # every default is a field of its own

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from typing import Any, Literal

from hf_mlcl.data.labels import read_descriptions
from hf_mlcl.evaluation.best import check_templates

SMALL_BACKBONE = "small"
"""Name of the backbone that is built here and trained from nothing: no download, and minutes on a CPU."""

OF_PROTOCOL = {
    "best": ("minutes", "prototype_init", "label_templates", "label_descriptions", "normalize_features"),
    "study": (
        *("evaluation", "best_heads", "augmented_passes", "load_best_model_at_end", "metric_for_best_model"),
        *(f"linear_{name}" for name in ("learning_rates", "weight_decays", "batch_size", "optimizer", "epochs")),
    ),
}
"""Settings that only one of the protocols has."""
LEAST = {"max_length": 2, "max_train_length": 2, "augmented_passes": 0, "lora_rank": 1, "image_size": 1}
LEAST |= {"max_train_samples": 1, "max_eval_samples": 1, "global_batch_size": 1, "linear_batch_size": 1}
LEAST |= {"linear_epochs": 1}


def _field(default: Any, help: str) -> Any:
    """A setting with its default and its help on the command line."""
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata={"help": help})
    return dataclasses.field(default=default, metadata={"help": help})


@dataclass
class ExperimentArguments:
    """Data, backbone and evaluation of an experiment; `ContrastiveTrainingArguments` say how it is trained.

    Every field is an option of the recipes and of `hf-mlcl train`, whose ``--help`` says what it does.

    Examples:
        >>> ExperimentArguments(corpus="toy_text", backbone="small").evaluation
        'auto'
    """

    corpus: str | None = _field(None, "A corpus by name, or a file, folder or Hub dataset of your own.")
    backbone: str | None = _field(
        None,
        "Hub id, local folder, timm architecture, or 'small', which learns from nothing; RoBERTa-base or ResNet-50 if "
        "not set.",
    )
    backbone_weights: str | None = _field(None, "A safetensors file with the weights of a timm architecture.")
    pretrained: bool = _field(True, "Load the backbone's weights; without, it starts at random.")
    trust_remote_code: bool = _field(False, "Run Python files that come with the backbone; nobody is asked otherwise.")
    pooling: Literal["auto", "first", "mean", "last", "pooled"] = _field(
        "auto", "How tokens or patches become one vector; auto: as the model's own files say, or its architecture."
    )
    normalize_features: Literal["auto", "yes", "no"] = _field(
        "no", "Scale the vectors of texts or images to length 1; auto: unless pooling is first or last."
    )
    prompt: str | None = _field(
        None, "What texts begin with, or the name of one of the model's prompts; as its own files say if not set."
    )
    lora_rank: int | None = _field(
        None, "Train a LoRA adapter of this rank in place of the whole backbone, such as 16; needs hf-mlcl[peft]."
    )
    projection_bias: bool = _field(False, "Biases in the projection, as in the authors' code; the paper prints none.")
    classifier_dropout: float = _field(0.0, "Of features before the classifier of losses on logits; the authors: 0.1.")
    data_dir: str | None = _field(None, "Folder with the official files of the corpus.")
    size: Literal["full", "small"] = _field("full", "small: the study's version with little training data.")
    corpus_options: dict | str | None = _field(  # type: ignore[type-arg]  # as HF writes it, for its argument parser
        None,
        "What the corpus leaves to choose (see load_corpus), as JSON. A draw_seed of 'seed' stands for the training's "
        "own, so that each seed draws its small training set.",
    )
    max_train_samples: int | None = _field(
        None, "Training rows to keep, drawn with a fixed seed: fewer are a part of more."
    )
    max_eval_samples: int | None = _field(None, "Rows of validation and of test to keep.")
    max_length: int = _field(220, "Tokens of a text to keep.")
    max_train_length: int | None = _field(None, "Tokens that training reads of a text, if fewer; evaluation reads all.")
    clean_text: bool = _field(False, "Let the tokenizer apply the study's cleaning (hf_mlcl.data.clean_text).")
    image_size: int | None = _field(
        None, "Side of the square that images are resized to; the model's own, or 224, if not set."
    )
    augmentation: Literal["randaugment", "crop"] = _field(
        "randaugment", "Of training images: as the study; crop: a mirrored part, milder."
    )
    global_batch_size: int | None = _field(
        None, "Rows per step on all devices together; per_device_train_batch_size goes before it."
    )
    protocol: Literal["study", "best"] = _field(
        "study",
        "study: train and evaluate as the paper. best: a classifier on the frozen encoder first, fine-tuning from "
        "there, and what is best on validation is kept.",
    )
    minutes: float | None = _field(None, "With protocol=best: how long all of it may take; from the data if not set.")
    prototype_init: Literal["random", "names", "means"] = _field(
        "random", "With protocol=best: where prototypes start: at the labels' encoded names, or the mean of their rows."
    )
    label_templates: list[str] | None = _field(
        None,
        "With protocol=best: sentences for label names, such as 'This text is about {}.', of which training rows "
        "choose; an empty list leaves names out.",
    )
    label_descriptions: dict | str | None = _field(  # type: ignore[type-arg]  # as above
        None,
        "With protocol=best: what labels mean, where their names do not say it: a CSV file with the columns label and "
        "description, or a JSON file.",
    )
    evaluation: Literal["auto", "linear", "direct"] = _field(
        "auto", "linear: of the frozen features; direct: the trained logits; auto: linear for contrastive losses."
    )
    best_heads: bool = _field(
        False,
        "With protocol=study: score the heads and thresholds of protocol=best as well, on the same features; their "
        "metrics begin with best_.",
    )
    linear_learning_rates: list[float] = _field([1.0, 0.1], "Grid of the linear evaluation.")
    linear_weight_decays: list[float] = _field([1e-1, 1e-2, 1e-4], "Grid of the linear evaluation.")
    linear_batch_size: int = _field(256, "Rows per step of the linear evaluation.")
    linear_optimizer: Literal["adamw", "adam", "rmsprop", "sgd"] = _field("adamw", "Of the linear evaluation.")
    linear_epochs: int = _field(40, "Epochs of the linear evaluation.")
    augmented_passes: int = _field(
        0, "Passes of augmented images that the heads of the linear evaluation learn from; 0: plain images."
    )
    feature_cache_dir: str | None = _field(
        None, "Keeps features for the next evaluation with the same weights and rows."
    )
    thresholds: Literal["half", "macro_f1", "micro_f1"] = _field(
        "half",
        "What the saved classifier decides by: 0.5, or tuned on validation for a metric (so for data of your own, and "
        "where logits of lsep or two_way decide). Scores that the study reports are those of 0.5 in any case.",
    )
    single_label: bool = _field(False, "Every row has exactly one label: the largest score counts; adds accuracy.")
    export: bool = _field(True, "Write backbone/, which loads without this package, and pictures on the card.")
    page: bool = _field(
        False,
        "Write explain.html, which shows what the classifier has learned and where it errs; `hf-mlcl train` does.",
    )
    plugins: list[str] | None = _field(None, "Modules or Python files that register losses of your own.")
    overwrite: bool = _field(False, "Start again in a folder with checkpoints of an earlier run, which are deleted.")
    text_column: str | None = _field(None, "Own data: the column with texts, where it is not recognised.")
    label_columns: list[str] | None = _field(None, "Own data: columns with labels, where they are not recognised.")
    label_delimiter: str | None = _field(None, "Own data: what separates the labels within one column.")
    test_file: str | None = _field(None, "Own data: a file with the test rows, where the data have no test split.")

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):
            value, least = getattr(self, field.name), LEAST.get(field.name)
            if least is not None and value is not None and value < least:
                raise ValueError(f"{field.name} must be at least {least}; got {value}.")
            known = typing.get_args(hints[field.name])
            if typing.get_origin(hints[field.name]) is Literal and value not in known:
                raise ValueError(f"{field.name} must be one of {', '.join(known)}; got {value!r}.")
            if self.protocol == "study" and field.name in OF_PROTOCOL["best"] and value != field.default:
                raise ValueError(f"{field.name} means nothing with protocol='study'. Leave it out, or choose 'best'.")
        if self.minutes is not None and not self.minutes > 0:
            raise ValueError(f"minutes must be above 0; got {self.minutes}.")
        check_templates(self.label_templates or ())
        if self.label_descriptions is not None:
            self.label_descriptions = read_descriptions(self.label_descriptions)
        if not 0 <= self.classifier_dropout < 1:
            raise ValueError(f"classifier_dropout must be from 0 to below 1; got {self.classifier_dropout}.")
