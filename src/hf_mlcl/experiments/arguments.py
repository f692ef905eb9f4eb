"""What an experiment needs to know beside the arguments of its training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from hf_mlcl.evaluation.label_names import check_templates

SMALL_BACKBONE = "small"
"""Name of the backbone that is built here and trained from nothing: no download, and minutes on a CPU."""


@dataclass
class ExperimentArguments:
    """Data, backbone and evaluation of an experiment; `ContrastiveTrainingArguments` say how it is trained.

    Attributes:
        corpus: A name of `list_corpora()`, or data of one's own: a file, a folder, the id of a dataset on the Hub.
        backbone: A Hub id, a local folder, the name of a timm architecture, or ``"small"``: a small encoder that
            learns from nothing. RoBERTa-base or ResNet-50 if not set.
        backbone_weights: A safetensors file with the weights of a timm architecture.
        pretrained: Whether to load the backbone's weights; without, it starts at random.
        trust_remote_code: Whether to run Python files that come with the backbone; without, none run and nobody is
            asked.
        pooling: ``"first"`` token or ``"mean"`` of a text's tokens; ``"auto"``: what the model's own files say, and the
            mean where they say nothing.
        projection_bias: Whether the projection has biases, as in the authors' code; the paper prints none.
        classifier_dropout: Dropout of the features before the classifier of losses on logits: 0.1 in the authors' code.
        data_dir: Folder with the official files of the corpus.
        size: ``"full"``, or ``"small"`` for the study's version with little training data.
        corpus_options: What the corpus leaves to choose (`load_corpus`), such as ``{"labelled_only": True}``. A
            ``draw_seed`` of ``"seed"`` stands for the training's own: each seed then draws its small training set.
        max_train_samples: Training rows to keep, drawn with a fixed seed: a smaller number gives a part of a larger.
        max_eval_samples: The same for validation and for test.
        max_length: Tokens of a text to keep.
        clean_text: Whether the tokenizer applies the study's cleaning (`hf_mlcl.data.clean_text`).
        image_size: Side of the square that images are resized to.
        augmentation: Of training images: ``"randaugment"``, as the study, or ``"crop"``: a mirrored part, milder.
        global_batch_size: Rows a training step on all devices together; ``per_device_train_batch_size`` goes before it.
        protocol: ``"study"`` trains and evaluates as the study does. ``"best"`` serves a user: a classifier on the
            frozen encoder first, fine-tuning from there, regularised heads, and the best of all on validation is kept.
        minutes: With ``protocol="best"``: how long all of it may take; from the size of the data if not given.
        prototype_init: With ``protocol="best"``: where prototypes start: ``"random"``, at the encoded ``"names"`` of
            the labels, or at the ``"means"`` of their rows.
        label_templates: With ``protocol="best"``: sentences for the labels' names, such as "This text is about {}.",
            of which the training rows choose; an empty list leaves names out.
        evaluation: With ``protocol="study"``: ``"linear"`` evaluation of the frozen features, ``"direct"`` use of the
            trained logits, or ``"auto"``: linear where a contrastive loss takes part, as in the study.
        linear_learning_rates: Grid of the linear evaluation.
        linear_weight_decays: Grid of the linear evaluation.
        linear_batch_size: Rows a step of its heads.
        linear_optimizer: Their optimizer: adamw, adam, rmsprop or sgd.
        linear_epochs: Their epochs.
        augmented_passes: Passes of augmented images that the heads learn from in turn; 0 for the plain images.
        feature_cache_dir: Keeps features for the next evaluation with the same weights and rows: of another protocol,
            grid or seed of the heads.
        thresholds: What the saved classifier decides by: ``"half"``, as the study, or thresholds tuned on validation
            for ``"macro_f1"`` or ``"micro_f1"``. Scores that the study reports are those of 0.5 in any case.
        single_label: Whether every row has exactly one label: the largest score counts, and accuracy is reported.
        export: Whether to write what other people need as well: ``backbone/``, which loads without this package, and
            pictures of the space on the card.
        plugins: Modules or Python files to import first, which register losses of one's own.
        overwrite: Whether to begin anew in a folder with checkpoints of an earlier run, which are then deleted.
        text_column: Own data: the column with texts, where it is not found by itself.
        label_columns: Own data: the column or columns with labels, where they are not found by themselves.
        label_delimiter: Own data: what separates the labels within one column.
        test_file: Own data: a file with the test rows, where the data have no test split.

    Examples:
        >>> ExperimentArguments(corpus="toy_text", backbone="small").evaluation
        'auto'
    """

    corpus: str | None = field(
        default=None, metadata={"help": "A corpus by name, or a file, folder or Hub dataset of your own."}
    )
    backbone: str | None = field(
        default=None, metadata={"help": "Hub id, local folder, timm architecture, or 'small' (learns from nothing)."}
    )
    backbone_weights: str | None = field(
        default=None, metadata={"help": "A safetensors file with the weights of a timm architecture."}
    )
    pretrained: bool = field(default=True, metadata={"help": "Load the backbone's weights."})
    trust_remote_code: bool = field(
        default=False, metadata={"help": "Run Python files that come with the backbone; nobody is asked otherwise."}
    )
    pooling: Literal["auto", "first", "mean"] = field(
        default="first", metadata={"help": "How tokens become one vector; auto: as the model's own files say."}
    )
    projection_bias: bool = field(default=False, metadata={"help": "Biases in the projection, as the authors' code."})
    classifier_dropout: float = field(default=0.0, metadata={"help": "Before the classifier; the authors' code: 0.1."})
    data_dir: str | None = field(default=None, metadata={"help": "Folder with the official files of the corpus."})
    size: Literal["full", "small"] = field(default="full", metadata={"help": "small: little training data."})
    corpus_options: dict | str | None = field(  # type: ignore[type-arg]  # as HF writes it, for its argument parser
        default=None,
        metadata={"help": "What the corpus leaves to choose, as JSON; see load_corpus."},
    )
    max_train_samples: int | None = field(default=None, metadata={"help": "Training rows to keep."})
    max_eval_samples: int | None = field(default=None, metadata={"help": "Rows of validation and of test to keep."})
    max_length: int = field(default=220, metadata={"help": "Tokens of a text to keep."})
    clean_text: bool = field(default=False, metadata={"help": "Apply the study's cleaning to texts."})
    image_size: int = field(default=224, metadata={"help": "Side of the square that images are resized to."})
    augmentation: Literal["randaugment", "crop"] = field(
        default="randaugment", metadata={"help": "What happens to training images."}
    )
    global_batch_size: int | None = field(
        default=None, metadata={"help": "Rows a step on all devices together; see per_device_train_batch_size."}
    )
    protocol: Literal["study", "best"] = field(
        default="study", metadata={"help": "study: as the paper; best: frozen encoder first, then whatever is better."}
    )
    minutes: float | None = field(default=None, metadata={"help": "How long protocol=best may take in all."})
    prototype_init: Literal["random", "names", "means"] = field(
        default="random", metadata={"help": "Where prototypes start, with protocol=best."}
    )
    label_templates: list[str] | None = field(
        default=None, metadata={"help": "Sentences for label names, with protocol=best: 'This text is about {}.'"}
    )
    evaluation: Literal["auto", "linear", "direct"] = field(
        default="auto", metadata={"help": "auto: linear where a contrastive loss takes part, else direct."}
    )
    linear_learning_rates: list[float] = field(
        default_factory=lambda: [1.0, 0.1], metadata={"help": "Grid of the linear evaluation."}
    )
    linear_weight_decays: list[float] = field(
        default_factory=lambda: [1e-1, 1e-2, 1e-4], metadata={"help": "Grid of the linear evaluation."}
    )
    linear_batch_size: int = field(default=256, metadata={"help": "Rows a step of the linear evaluation."})
    linear_optimizer: Literal["adamw", "adam", "rmsprop", "sgd"] = field(
        default="adamw", metadata={"help": "Optimizer of the linear evaluation."}
    )
    linear_epochs: int = field(default=40, metadata={"help": "Epochs of the linear evaluation."})
    augmented_passes: int = field(
        default=0, metadata={"help": "Passes of augmented images for the linear evaluation; 0: plain images."}
    )
    feature_cache_dir: str | None = field(
        default=None, metadata={"help": "Keeps features for the next evaluation with the same weights and rows."}
    )
    thresholds: Literal["half", "macro_f1", "micro_f1"] = field(
        default="half", metadata={"help": "What the classifier decides by: 0.5, or tuned on validation for a metric."}
    )
    single_label: bool = field(default=False, metadata={"help": "Every row has exactly one label."})
    export: bool = field(default=True, metadata={"help": "Write the plain backbone, and pictures on the card."})
    plugins: list[str] | None = field(
        default=None, metadata={"help": "Modules or Python files that register losses of your own."}
    )
    overwrite: bool = field(
        default=False, metadata={"help": "Begin anew in a folder with checkpoints, which are deleted."}
    )
    text_column: str | None = field(default=None, metadata={"help": "Own data: the column with texts."})
    label_columns: list[str] | None = field(default=None, metadata={"help": "Own data: columns with labels."})
    label_delimiter: str | None = field(default=None, metadata={"help": "Own data: separates labels in a column."})
    test_file: str | None = field(default=None, metadata={"help": "Own data: a file with the test rows."})

    def __post_init__(self) -> None:
        for name, least in (
            ("max_train_samples", 1),
            ("max_eval_samples", 1),
            ("max_length", 2),
            ("image_size", 1),
            ("global_batch_size", 1),
            ("linear_batch_size", 1),
            ("linear_epochs", 1),
            ("augmented_passes", 0),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}; got {value}.")
        for name, unused in (("minutes", None), ("prototype_init", "random"), ("label_templates", None)):
            if self.protocol == "study" and getattr(self, name) != unused:
                raise ValueError(f"{name} belongs to protocol='best'; the study's protocol has no such setting.")
        if self.minutes is not None and not self.minutes > 0:
            raise ValueError(f"minutes must be above 0; got {self.minutes}.")
        check_templates(self.label_templates or ())
        if not 0 <= self.classifier_dropout < 1:
            raise ValueError(f"classifier_dropout must be from 0 to below 1; got {self.classifier_dropout}.")
        for name, known in (
            ("size", ("full", "small")),
            ("pooling", ("auto", "first", "mean")),
            ("protocol", ("study", "best")),
            ("augmentation", ("randaugment", "crop")),
            ("prototype_init", ("random", "names", "means")),
            ("evaluation", ("auto", "linear", "direct")),
            ("thresholds", ("half", "macro_f1", "micro_f1")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}; got {getattr(self, name)!r}.")
