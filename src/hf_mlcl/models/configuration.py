"""Configurations of the encoder and of the backbone for precomputed features."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Literal, get_args

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from hf_mlcl.metrics.decision import DecisionRule
from hf_mlcl.models.loading import check_timm

Pooling = Literal["first", "mean", "pooled"]


@strict
class FeatureBackboneConfig(PreTrainedConfig):
    """Configuration of a residual MLP over precomputed feature vectors.

    Attributes:
        feature_dim: Length of the vectors that come in, and of the features that go out.
        num_layers: Residual blocks; 0 passes the vectors on as they are.
        dropout: Dropout within a block.
    """

    model_type = "mlcl_features"

    feature_dim: int = 768
    num_layers: int = 1
    dropout: float = 0.1

    @property
    def hidden_size(self) -> int:
        """Length of the features."""
        return self.feature_dim

    def validate_fields(self) -> None:
        """Types and ranges; called whenever a configuration is made or saved."""
        _check_whole(self, feature_dim=1, num_layers=0)
        if not _is_number(self.dropout) or not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be a number from 0 to below 1, but is {self.dropout!r}.")


@strict
class MLCLConfig(PreTrainedConfig):
    """Configuration of `MLCLModel`: a backbone, a projection head, a prototype per label, perhaps a linear classifier.

    Attributes:
        backbone_config: Configuration of the backbone: of any text encoder, a `TimmWrapperConfig`, or a
            `FeatureBackboneConfig`. RoBERTa's by default.
        projection_dim: Length d of embeddings and prototypes.
        projection_bias: Whether the layers of the projection have biases: the authors' have, the paper prints none.
        pooling: How a text becomes one vector: its ``first`` token or the ``mean`` of all; ``pooled`` where the
            backbone gives one vector by itself (images, features).
        classifier: Whether there is a linear layer from features to logits, as losses on logits need it.
        classifier_dropout: Dropout of the features before it in training: the authors' code has 0.1, the paper none.
        num_heads: Linear layers whose probabilities a classifier made by linear evaluation averages.
        thresholds: Probabilities from which on the multi-label pipelines give a label, one per label; None stands for
            0.5. A classifier's `calibrate` sets them.
        single_label: Whether a row has exactly one label, the most probable one, though probabilities are sigmoids.
        logit_temperature: What a classifier made by linear evaluation divides its logits by, so that probabilities are
            honest; 1 leaves them as they are.

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
    pooling: Pooling = "first"
    classifier: bool = False
    classifier_dropout: float = 0.0
    num_heads: int = 3
    thresholds: list[float] | None = None
    single_label: bool = False
    logit_temperature: float = 1.0

    @property
    def label_names(self) -> list[str]:
        """The labels, in the order of their ids."""
        return [self.id2label[number] for number in range(self.num_labels)]

    def __post_init__(self, **kwargs: Any) -> None:
        """Make a configuration of the backbone from its dictionary."""
        if self.backbone_config is None:
            self.backbone_config = AutoConfig.for_model("roberta")
        elif isinstance(self.backbone_config, dict):
            self.backbone_config = _backbone_config(dict(self.backbone_config))
        if not isinstance(self.backbone_config, PreTrainedConfig):
            raise ValueError(
                f"backbone_config must be a configuration or its dictionary, but is {self.backbone_config!r}."
            )
        if self.pooling not in get_args(Pooling):
            raise ValueError(f"pooling must be one of {', '.join(get_args(Pooling))}, but is {self.pooling!r}.")
        if getattr(self.backbone_config, "model_type", None) in ("timm_wrapper", "mlcl_features"):
            self.pooling = "pooled"
        if getattr(self, "problem_type", None) is None:
            self.problem_type = "multi_label_classification"
        super().__post_init__(**kwargs)

    def validate_fields(self) -> None:
        """Types and ranges; called whenever a configuration is made or saved."""
        check_timm(self.backbone_config)
        _check_whole(self, projection_dim=1, num_heads=1)
        if self.pooling not in get_args(Pooling):
            raise ValueError(f"pooling must be one of {', '.join(get_args(Pooling))}, but is {self.pooling!r}.")
        for name in ("classifier", "projection_bias"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, but is {getattr(self, name)!r}.")
        if not _is_number(self.classifier_dropout) or not 0 <= self.classifier_dropout < 1:
            raise ValueError(
                f"classifier_dropout must be a number from 0 to below 1, but is {self.classifier_dropout!r}."
            )

    def validate_labels(self) -> None:
        """A name for each of the ids from 0 on; called whenever a configuration is made or saved."""
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
        advice = "Install a newer transformers if it is a new one."
        if "auto_map" in settings:
            advice = "It comes with code of its own: if you trust it, load the model with trust_remote_code=True."
        raise ValueError(f"backbone_config names the model type {kind!r}, which transformers does not know. {advice}")
    if kind == MLCLConfig.model_type:
        raise ValueError("backbone_config is that of an MLCLModel; give that of the backbone within it.")
    return AutoConfig.for_model(kind, **settings)


def _check_whole(config: PreTrainedConfig, **least: int) -> None:
    for name, lowest in least.items():
        value = getattr(config, name)
        if not isinstance(value, Integral) or isinstance(value, bool) or value < lowest:
            raise ValueError(f"{name} must be a whole number of at least {lowest}, but is {value!r}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
