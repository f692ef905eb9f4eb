"""A multi-label classifier: an encoder and linear heads. It needs torch and transformers, and nothing else.

This file comes with models that hf-mlcl has trained and that no class of transformers computes by itself, such as
linear heads on the mean of a text's tokens. With ``trust_remote_code=True``, pipelines and Auto classes use it.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import ImageClassifierOutput, SequenceClassifierOutput
from transformers.models.auto.modeling_auto import MODEL_MAPPING

LARGEST_LOGIT = 80.0  # beyond it a sigmoid does not change, but exp(-logit) overflows in float32


class MLCLConfig(PretrainedConfig):
    """The encoder's configuration, how tokens become one vector (of length 1?), and the rule by which labels are given.

    A label is given where its probability reaches its entry in `thresholds` (0.5 where that is None). With
    `single_label`, a row has one label: the most probable one. `count_positions`: from the first token that counts.
    """

    model_type = "mlcl"

    def __init__(
        self,
        backbone_config: Any = None,
        pooling: str = "first",
        normalize_features: bool = False,
        feature_size: int = 1,
        count_positions: bool = False,
        num_heads: int = 1,
        thresholds: list[float] | None = None,
        single_label: bool = False,
        logit_temperature: float = 1.0,
        **kwargs: Any,
    ) -> None:
        if isinstance(backbone_config, dict):
            settings = dict(backbone_config)
            backbone_config = AutoConfig.for_model(settings.pop("model_type"), **settings)
        self.backbone_config, self.pooling, self.feature_size = backbone_config, pooling, feature_size
        self.num_heads, self.logit_temperature, self.count_positions = num_heads, logit_temperature, count_positions
        self.thresholds, self.single_label, self.normalize_features = thresholds, single_label, normalize_features
        super().__init__(**{"problem_type": "multi_label_classification", **kwargs})


class LinearHeads(nn.Module):
    """Several linear layers whose probabilities are averaged."""

    def __init__(self, heads: int, labels: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(heads, labels, size))
        self.bias = nn.Parameter(torch.zeros(heads, labels))

    def forward(self, features: Tensor) -> Tensor:
        """Logits (rows, labels) whose sigmoid is the mean of the heads' sigmoids."""
        logits = torch.einsum("nf,hlf->hnl", features.to(self.weight.dtype), self.weight) + self.bias.unsqueeze(1)
        return F.logsigmoid(logits).logsumexp(0) - F.logsigmoid(-logits).logsumexp(0)


class _Classifier(PreTrainedModel):
    config_class = MLCLConfig
    base_model_prefix = "mlcl"
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = _supports_attention_backend = True
    _keys_to_ignore_on_load_unexpected = [r"^backbone\.pooler\."]  # noqa: RUF012
    _keep_in_fp32_modules_strict = {"heads"}  # noqa: RUF012

    def __init__(self, config: MLCLConfig) -> None:
        super().__init__(config)
        kind = MODEL_MAPPING[type(config.backbone_config)]
        takes_pooler = "add_pooling_layer" in inspect.signature(kind.__init__).parameters
        without = {"add_pooling_layer": False} if takes_pooler and config.pooling != "pooled" else {}
        self.backbone = AutoModel.from_config(config.backbone_config, trust_remote_code=False, **without)
        self.heads = LinearHeads(config.num_heads, config.num_labels, config.feature_size)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Nothing: all weights come with the model."""

    def get_input_embeddings(self) -> nn.Module:
        return self.backbone.get_input_embeddings()

    def _represent(self, outputs: Any, attention_mask: Tensor | None) -> Tensor:
        """One vector per row."""
        pooling = self.config.pooling
        if pooling == "pooled":
            return outputs.pooler_output.flatten(1)
        hidden: Tensor = outputs.last_hidden_state
        if hidden.ndim == 4:  # channels, height, width
            hidden = hidden.flatten(2).transpose(1, 2)
        if pooling == "first":
            return hidden[:, 0]
        mask = torch.ones(hidden.shape[:2], device=hidden.device) if attention_mask is None else attention_mask
        if pooling == "last":  # padding may be on either side
            places = torch.arange(hidden.shape[1], device=hidden.device)
            return hidden[torch.arange(len(hidden), device=hidden.device), (places * (mask > 0)).argmax(1)]
        shares = mask.unsqueeze(-1).to(hidden.dtype)
        return (hidden * shares).sum(1) / shares.sum(1).clamp(min=1.0)

    def _loss_and_logits(self, labels: Tensor | None, **inputs: Tensor | None) -> tuple[Tensor | None, Tensor]:
        given = {name: value for name, value in inputs.items() if value is not None}
        if self.config.count_positions and "attention_mask" in given:
            given.setdefault("position_ids", (given["attention_mask"].long().cumsum(1) - 1).clamp(min=0))
        vectors = self._represent(self.backbone(**given), given.get("attention_mask"))
        vectors = F.normalize(vectors.float(), dim=1).to(vectors.dtype) if self.config.normalize_features else vectors
        logits = self.heads(vectors) / self.config.logit_temperature
        if self.config.problem_type == "single_label_classification":
            return None if labels is None else F.cross_entropy(logits, labels), logits
        loss = None if labels is None else F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
        return loss, logits if self.training else logits.clamp(-LARGEST_LOGIT, LARGEST_LOGIT)


class MLCLForSequenceClassification(_Classifier):
    """Classifies texts."""

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> SequenceClassifierOutput:
        """Logits, and their loss where there are labels."""
        loss, logits = self._loss_and_logits(
            labels,
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
        )
        return SequenceClassifierOutput(loss=loss, logits=logits)


class MLCLForImageClassification(_Classifier):
    """Classifies images."""

    main_input_name = "pixel_values"

    def forward(self, pixel_values: Tensor, labels: Tensor | None = None) -> ImageClassifierOutput:
        """Logits, and their loss where there are labels."""
        return ImageClassifierOutput(*self._loss_and_logits(labels, pixel_values=pixel_values))
