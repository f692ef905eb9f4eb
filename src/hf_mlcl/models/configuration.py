"""Configurations of the encoder and of the backbone for precomputed features."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, Literal, get_args

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from hf_mlcl.metrics.decision import DecisionRule
from hf_mlcl.models.families import ALWAYS_POOLED, Modality, Pooling, auto_pooling, check_first_token, is_dual
from hf_mlcl.models.loading import check_timm

Rule = tuple[str, Callable[[Any], bool]]  # what the value of a field must be, in words and as a check
POOLING: Rule = (f"one of {', '.join(get_args(Pooling))}", lambda value: value in get_args(Pooling))
SHARE: Rule = (
    "a number from 0 to below 1",
    lambda value: _is_number(value) and 0 <= value < 1,
)
FLAG: Rule = ("True or False", lambda value: isinstance(value, bool))


@strict
class FeatureBackboneConfig(PreTrainedConfig):
    """A residual MLP over vectors of length `feature_dim`; with 0 layers it passes them on as they are."""

    model_type = "mlcl_features"
    attribute_map = {"hidden_size": "feature_dim"}  # noqa: RUF012

    feature_dim: int = 768
    num_layers: int = 1
    dropout: float = 0.1

    def validate_fields(self) -> None:
        """Types and ranges; called, as all ``validate_*``, whenever a configuration is made or saved."""
        _check(self, feature_dim=_whole(1), num_layers=_whole(0), dropout=SHARE)


@strict
class MLCLConfig(PreTrainedConfig):
    """Configuration of `MLCLModel`: a backbone, a projection head, a prototype per label, perhaps a linear classifier.

    Attributes:
        backbone_config: Of any text encoder, a `TimmWrapperConfig`, or a `FeatureBackboneConfig`; RoBERTa's by default.
        projection_dim: Length of embeddings and prototypes.
        projection_bias: Whether the layers of the projection have biases: the authors' have, the paper prints none.
        pooling: How tokens or patches become one vector: the ``first``, the ``last`` that is no padding, the ``mean``
            of all, or ``pooled``, what the backbone's own class makes of them. ``auto`` becomes one of these at once,
            by the architecture (`hf_mlcl.models.families`).
        normalize_features: Whether these vectors are scaled to length 1, as those of sentence encoders mostly are. The
            length of a mean says how alike its tokens or patches are, and little of what they are about.
        modalities: Of a backbone with a tower for texts and one for images (CLIP, SigLIP): which of them are asked,
            both if not given (`hf_mlcl.models.dual`). None for all other backbones.
        classifier: Whether there is a linear layer from features to logits, as losses on logits need it.
        classifier_dropout: Dropout of the features before it in training: the authors' code has 0.1, the paper none.
        num_heads: Linear layers whose probabilities a classifier made by linear evaluation averages.
        thresholds: Probabilities from which on a label is given, one per label; None for 0.5. `calibrate` sets them.
        single_label: Whether a row has exactly one label, the most probable one, though probabilities are sigmoids.
        logit_temperature: What a classifier divides its logits by, so that probabilities are honest; 1 for nothing.

    Examples:
        >>> from transformers import BertConfig
        >>> config = MLCLConfig(backbone_config=BertConfig(hidden_size=32), num_labels=5)
        >>> config.num_labels, config.projection_dim, config.pooling
        (5, 256, 'first')
    """

    model_type = "mlcl"
    sub_configs = {"backbone_config": AutoConfig}  # noqa: RUF012
    keys_to_ignore_at_inference = ["features", "embeddings", "prototypes"]  # noqa: RUF012

    backbone_config: PreTrainedConfig | dict[str, Any] | None = None
    projection_dim: int = 256
    projection_bias: bool = False
    pooling: Pooling | Literal["auto"] = "auto"
    normalize_features: bool = False
    modalities: list[Modality] | None = None
    classifier: bool = False
    classifier_dropout: float = 0.0
    num_heads: int = 3
    thresholds: list[float] | None = None
    single_label: bool = False
    logit_temperature: float = 1.0

    @property
    def label_names(self) -> list[str]:
        """In the order of their ids."""
        return [self.id2label[number] for number in range(self.num_labels)]

    def __post_init__(self, **kwargs: Any) -> None:
        """Make a configuration of the backbone from its dictionary."""
        if self.backbone_config is None:
            self.backbone_config = AutoConfig.for_model("roberta")
        elif isinstance(self.backbone_config, dict):
            self.backbone_config = _backbone_config(dict(self.backbone_config))
        given = self.backbone_config
        if not isinstance(given, PreTrainedConfig):
            raise ValueError(f"backbone_config must be a configuration or its dictionary, but is {given!r}.")
        if self.pooling == "auto" or (given.model_type in ALWAYS_POOLED and POOLING[1](self.pooling)):
            self.pooling = auto_pooling(given)
        if self.modalities is None and is_dual(given):
            self.modalities = list(get_args(Modality))
        if self.problem_type is None:  # type: ignore[has-type]
            self.problem_type = "multi_label_classification"
        super().__post_init__(**kwargs)

    def validate_fields(self) -> None:
        """Types and ranges."""
        check_timm(self.backbone_config)
        _check(self, projection_dim=_whole(1), num_heads=_whole(1), pooling=POOLING)
        if self.pooling == "first":
            check_first_token(self.backbone_config)
        known = get_args(Modality) if is_dual(self.backbone_config) else ()
        wrong = [name for name in self.modalities or () if name not in known]
        if wrong or self.modalities == [] or len(set(self.modalities or ())) != len(self.modalities or ()):
            expected = "'text', 'image' or both" if known else "None: this backbone has no towers to choose from"
            raise ValueError(f"modalities must be {expected}, but is {self.modalities!r}.")
        _check(self, classifier=FLAG, projection_bias=FLAG, normalize_features=FLAG, classifier_dropout=SHARE)
        if self.normalize_features and self.modalities is not None:
            raise ValueError("normalize_features is not for a pair of towers, whose vectors have a length already.")

    def validate_labels(self) -> None:
        """A name for each of the ids from 0 on."""
        names = self.id2label
        if not names or sorted(names) != list(range(len(names))):
            raise ValueError(f"id2label must have the ids from 0 on, one per label, but has {list(names or ())[:10]}.")
        wrong = [repr(name) for name in names.values() if not isinstance(name, str)]
        if wrong or len(set(names.values())) != len(names):
            shown = (wrong or ["two labels of one name"])[0]
            raise ValueError(f"id2label must hold different names of labels, but has {shown}.")

    def validate_decision_rule(self) -> None:
        """Thresholds, single label and temperature make a rule; called whenever a configuration is made or saved."""
        if not isinstance(self.thresholds, list | tuple | None):
            raise ValueError(f"thresholds must be a list of one number per label, or None; got {self.thresholds!r}.")
        DecisionRule.of(self)


def _backbone_config(settings: dict[str, Any]) -> PreTrainedConfig:
    """The configuration that a dictionary stands for."""
    kind = settings.pop("model_type", "roberta")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        trust = "It comes with code of its own: if you trust it, load the model with trust_remote_code=True."
        advice = trust if "auto_map" in settings else "Install a newer transformers if it is a new one."
        raise ValueError(f"backbone_config names the model type {kind!r}, which transformers does not know. {advice}")
    if kind == MLCLConfig.model_type:
        raise ValueError("backbone_config is that of an MLCLModel; give that of the backbone within it.")
    return AutoConfig.for_model(kind, **settings)


def _check(config: PreTrainedConfig, **rules: Rule) -> None:
    for name, (expected, is_valid) in rules.items():
        if not is_valid(value := getattr(config, name)):
            raise ValueError(f"{name} must be {expected}, but is {value!r}.")


def _whole(least: int) -> Rule:
    expected = f"a whole number of at least {least}"
    return expected, lambda value: isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
