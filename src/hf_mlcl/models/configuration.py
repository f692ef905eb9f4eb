"""Configurations of the encoder and of the backbone for precomputed features."""

from __future__ import annotations

import math
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig

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


@strict
class MLCLConfig(PreTrainedConfig):
    """Configuration of `MLCLModel`: a backbone, a projection head, a prototype per label, perhaps a linear classifier.

    Attributes:
        backbone_config: Configuration of the backbone: of any text encoder, a `TimmWrapperConfig`, or a
            `FeatureBackboneConfig`. RoBERTa's by default.
        projection_dim: Length d of embeddings and prototypes.
        pooling: How a text becomes one vector: its ``first`` token or the ``mean`` of all; ``pooled`` where the
            backbone gives one vector by itself (images, features).
        classifier: Whether there is a linear layer from features to logits, as losses on logits need it.
        num_heads: Linear layers whose probabilities a classifier made by linear evaluation averages.
        thresholds: Probabilities from which on the multi-label pipelines give a label, one a label; None stands for
            0.5. A classifier's `calibrate` sets them.
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
    pooling: Pooling = "first"
    classifier: bool = False
    num_heads: int = 3
    thresholds: list[float] | None = None
    logit_temperature: float = 1.0

    def __post_init__(self, **kwargs: Any) -> None:
        """Make a configuration of the backbone from its dictionary."""
        if self.backbone_config is None:
            self.backbone_config = AutoConfig.for_model("roberta")
        elif isinstance(self.backbone_config, dict):
            settings = dict(self.backbone_config)
            self.backbone_config = AutoConfig.for_model(settings.pop("model_type", "roberta"), **settings)
        if getattr(self.backbone_config, "model_type", None) in ("timm_wrapper", "mlcl_features"):
            self.pooling = "pooled"
        if getattr(self, "problem_type", None) is None:
            self.problem_type = "multi_label_classification"
        super().__post_init__(**kwargs)

    def validate_thresholds(self) -> None:
        """One threshold a label, each a probability; called whenever a configuration is made or saved."""
        if self.thresholds is None:
            return
        if len(self.thresholds) != self.num_labels:
            raise ValueError(
                f"thresholds must have one number for each of the {self.num_labels} labels, but has "
                f"{len(self.thresholds)}. None stands for 0.5 everywhere."
            )
        wrong = [value for value in self.thresholds if not 0 <= value <= 1]
        if wrong:
            raise ValueError(f"thresholds must be probabilities between 0 and 1, but one is {wrong[0]}.")

    def validate_logit_temperature(self) -> None:
        """A temperature is positive; called whenever a configuration is made or saved."""
        if not 0 < self.logit_temperature < math.inf:
            raise ValueError(
                f"logit_temperature must be a positive number, but is {self.logit_temperature}. 1 changes nothing."
            )
