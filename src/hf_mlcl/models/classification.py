"""Classifiers: a backbone with the linear heads of a linear evaluation, for pipelines and the Hub."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoModelForImageClassification, AutoModelForSequenceClassification
from transformers import initialization as init
from transformers.modeling_outputs import ImageClassifierOutput, SequenceClassifierOutput

from hf_mlcl.losses import CrossEntropyLoss
from hf_mlcl.metrics.decision import DecisionRule
from hf_mlcl.models.configuration import MLCLConfig
from hf_mlcl.models.families import feature_size
from hf_mlcl.models.modeling import TEXT_INPUTS, MLCLModel, SharedModel

Classifier = TypeVar("Classifier", bound="_LinearHeadsClassifier")
LARGEST_LOGIT = 80.0
"""Beyond it a sigmoid does not change, but exp(-logit), as HF's pipelines compute it, overflows in float32."""


class LinearHeads(nn.Module):
    """Several linear layers whose probabilities are averaged, as the study evaluates."""

    def __init__(self, heads: int, labels: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, labels, size))
        self.bias = nn.Parameter(torch.empty(heads, labels))

    def forward(self, features: Tensor) -> Tensor:
        """Logits (rows, labels) whose sigmoid is the mean of the heads' sigmoids, exact at any size."""
        logits = torch.einsum("nf,hlf->hnl", features, self.weight) + self.bias.unsqueeze(1)
        return F.logsigmoid(logits).logsumexp(0) - F.logsigmoid(-logits).logsumexp(0)


class _LinearHeadsClassifier(SharedModel):
    """A backbone and its linear heads; the subclasses differ in their inputs."""

    # Whatever dtype a backbone is loaded in, probabilities are those that its linear evaluation gave.
    _keep_in_fp32_modules_strict = {"heads"}  # noqa: RUF012

    def __init__(self, config: MLCLConfig) -> None:
        super().__init__(config)
        self.heads = LinearHeads(config.num_heads, config.num_labels, feature_size(self.backbone, config.modalities))
        self.cross_entropy = CrossEntropyLoss()
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, LinearHeads):
            init.xavier_uniform_(module.weight)
            init.zeros_(module.bias)

    @classmethod
    def from_encoder(cls: type[Classifier], encoder: MLCLModel, weight: Tensor, bias: Tensor) -> Classifier:
        """A classifier of a trained encoder's features: a copy of its backbone, with heads of a linear evaluation.

        Args:
            encoder: Its projection and prototypes are left behind.
            weight: Of the heads (heads, labels, features).
            bias: (heads, labels).
        """
        encoder = encoder.merged()
        config = copy.deepcopy(encoder.config)
        config.num_heads = len(weight)
        labels, size = config.num_labels, feature_size(encoder.backbone, config.modalities)
        if tuple(weight.shape[1:]) != (labels, size) or tuple(bias.shape) != tuple(weight.shape[:2]):
            raise ValueError(
                f"weight must have shape (heads, {labels}, {size}) and bias (heads, {labels}); "
                f"got {tuple(weight.shape)} and {tuple(bias.shape)}."
            )
        model = cls(config)
        own = model.backbone.to(encoder.dtype).state_dict()
        weights = encoder.backbone.state_dict()  # with a pooler, perhaps, if the backbone was given as an object
        model.backbone.load_state_dict({k: v for k, v in weights.items() if k in own or not k.startswith("pooler.")})
        with torch.no_grad():
            model.heads.weight.copy_(weight)
            model.heads.bias.copy_(bias)
        return model.to(encoder.prototypes.weight.device).eval()

    def calibrate(
        self,
        thresholds: DecisionRule | Mapping[str, float] | Sequence[float] | float | None = None,
        temperature: float = 1.0,
    ) -> None:
        """Put a `DecisionRule` into the configuration, in place of the former one.

        Thresholds speak of the probabilities that the linear evaluation gives, and move along with the temperature, so
        that it changes probabilities and never decisions.

        Args:
            thresholds: A rule, such as `tune_thresholds` finds; or numbers, one for all, one per label, or by the names
                of labels (0.5 for the others). None stands for 0.5.
            temperature: What `fit_temperature` found; 1 leaves probabilities as they are.
        """
        config = self.config
        if isinstance(thresholds, Mapping):
            known = ", ".join(config.label_names)
            for name in thresholds.keys() - set(config.label_names):
                raise ValueError(f"thresholds name {name!r}, which is no label of this model: it has {known}.")
            thresholds = [thresholds.get(name, 0.5) for name in config.label_names]
        rule = thresholds
        if not isinstance(rule, DecisionRule):
            rule = DecisionRule(0.5 if rule is None else rule, config.single_label)
        cuts = DecisionRule(temperature=temperature).scaled([rule.per_label(config.num_labels)])[0].tolist()
        config.thresholds, config.single_label = None if thresholds is None else cuts, rule.single_label
        config.logit_temperature = float(rule.temperature * temperature)

    def logits_of(self, features: Tensor) -> Tensor:
        """Logits (rows, labels) of features, as `features_of` gives them."""
        return self.heads(features.to(self.heads.weight.dtype)) / self.config.logit_temperature

    def _loss_and_logits(self, labels: Tensor | None, **inputs: Tensor | None) -> tuple[Tensor | None, Tensor]:
        given: dict[str, Any] = {name: value for name, value in inputs.items() if value is not None}
        logits = self.logits_of(self.features_of(given))
        if self.config.problem_type == "single_label_classification":
            return None if labels is None else self.cross_entropy(logits, labels), logits
        loss = None if labels is None else F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
        return loss, logits if self.training else logits.clamp(-LARGEST_LOGIT, LARGEST_LOGIT)


class MLCLForSequenceClassification(_LinearHeadsClassifier):
    """Classifies texts.

    ``pipeline("text-classification", top_k=None)`` gives the probability of every label, and
    ``pipeline("multilabel-text-classification")`` the labels that reach their thresholds.

    Examples:
        >>> from transformers import BertConfig
        >>> backbone = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
        >>> encoder = MLCLModel(MLCLConfig(backbone_config=backbone, id2label={0: "sport", 1: "music"}))
        >>> model = MLCLForSequenceClassification.from_encoder(encoder, torch.zeros(3, 2, 16), torch.zeros(3, 2))
        >>> model(input_ids=torch.tensor([[1, 2, 3]])).logits.sigmoid().tolist()
        [[0.5, 0.5]]
        >>> model.calibrate({"music": 0.2}, temperature=2.0)  # 0.2 is a logit of -1.386; 1 / 3 is half of it
        >>> [round(value, 4) for value in model.config.thresholds]
        [0.5, 0.3333]
    """

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        pixel_values: Tensor | None = None,
        modality_mask: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> SequenceClassifierOutput:
        """Logits, and their loss: binary cross-entropy with multi-hot labels.

        With the problem type ``single_label_classification`` it is cross-entropy with class ids or one-hot rows. Texts
        may come with images where the backbone reads both.
        """
        given = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        images = {"pixel_values": pixel_values, "modality_mask": modality_mask}
        loss, logits = self._loss_and_logits(labels, **dict(zip(TEXT_INPUTS, given, strict=True)), **images)
        return SequenceClassifierOutput(loss=loss, logits=logits)


class MLCLForImageClassification(_LinearHeadsClassifier):
    """Classifies images, in the pipelines ``image-classification`` and ``multilabel-image-classification``.

    Examples:
        >>> encoder = MLCLModel.from_backbone("resnet10t", ["cat", "dog"], pretrained=False)
        >>> model = MLCLForImageClassification.from_encoder(encoder, torch.zeros(1, 2, 512), torch.zeros(1, 2))
        >>> model(pixel_values=torch.zeros(1, 3, 32, 32)).logits.shape
        torch.Size([1, 2])
    """

    def forward(self, pixel_values: Tensor | None = None, labels: Tensor | None = None) -> ImageClassifierOutput:
        """Logits, and their loss as of texts."""
        loss, logits = self._loss_and_logits(labels, pixel_values=pixel_values)
        return ImageClassifierOutput(loss=loss, logits=logits)


AutoModelForSequenceClassification.register(MLCLConfig, MLCLForSequenceClassification)
AutoModelForImageClassification.register(MLCLConfig, MLCLForImageClassification)
