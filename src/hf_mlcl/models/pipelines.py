"""Pipelines that decide: of all labels only those that a model's `DecisionRule` gives.

HF's own ``text-classification`` and ``image-classification`` give probabilities and leave the decision to the user.
``multilabel-text-classification`` and ``multilabel-image-classification`` take it by the rule that is saved in a
model's configuration, and with thresholds of 0.5 where there is none, as in models not ours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor
from transformers import (
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    ImageClassificationPipeline,
    TextClassificationPipeline,
)
from transformers.pipelines import PIPELINE_REGISTRY

from hf_mlcl.metrics.decision import DecisionRule

Labels = list[dict[str, Any]]
"""Of one text or image: ``{"label": ..., "score": ...}`` for each label it is given, most probable first."""


class _Decides:
    model: Any

    def postprocess(self, model_outputs: Any) -> Labels:
        """The labels that a text or an image is given."""
        config = self.model.config
        scores = probabilities_of(model_outputs["logits"][:1], config).numpy()
        if not np.isfinite(scores).all():
            raise ValueError(
                "The scores of the model are not finite: its weights hold NaN or infinite values, or its dtype has too "
                "small a range for them (float16). Load another copy, or pass dtype='float32'."
            )
        given = DecisionRule.of(config).decide(scores)[0]
        order = np.argsort(-scores[0], kind="stable")
        return [{"label": config.id2label[int(i)], "score": scores[0, i].item()} for i in order if given[i]]


class MultiLabelTextClassificationPipeline(_Decides, TextClassificationPipeline):
    """``pipeline("multilabel-text-classification")``: the labels of a text, perhaps none.

    Texts longer than the tokenizer's ``model_max_length`` are cut; the tokenizer's arguments may be passed along.

    Examples:
        >>> from transformers import BertConfig, pipeline
        >>> from hf_mlcl import MLCLConfig, MLCLForSequenceClassification
        >>> from hf_mlcl.data import word_tokenizer
        >>> backbone = BertConfig(vocab_size=9, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
        >>> config = MLCLConfig(backbone_config=backbone, id2label={0: "cat", 1: "dog"}, thresholds=[0.0, 1.0])
        >>> task, tokenizer = "multilabel-text-classification", word_tokenizer(["a cat"])
        >>> classify = pipeline(task, model=MLCLForSequenceClassification(config), tokenizer=tokenizer, device="cpu")
        >>> [found["label"] for found in classify("a cat")]  # a threshold of 0 is always reached
        ['cat']
    """

    def _sanitize_parameters(self, **tokenizer_kwargs: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        return {"truncation": True, **tokenizer_kwargs}, {}, {}

    def __call__(self, inputs: Any, **kwargs: Any) -> Labels | list[Labels]:
        """The labels of a text, or a list of them for a list of texts."""
        found: Any = super().__call__(inputs, **kwargs)
        return found[0] if isinstance(inputs, str) else found  # HF's wraps what it found for a single text


class MultiLabelImageClassificationPipeline(_Decides, ImageClassificationPipeline):
    """``pipeline("multilabel-image-classification")``: the labels of an image, perhaps none.

    Images are loaded and prepared as in HF's pipeline. `hf_mlcl.data.image_processor` prepares them as training did.
    """

    def _sanitize_parameters(self, **loading: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        return loading, {}, {}


def probabilities_of(logits: Tensor, config: Any) -> Tensor:
    """Float32 probabilities of logits (..., labels), by the rule of HF's pipelines for the model's configuration."""
    logits = logits.float()
    if config.problem_type == "regression":
        return logits
    one_by_one = config.problem_type == "multi_label_classification" or config.num_labels == 1
    return logits.sigmoid() if one_by_one else logits.softmax(-1)


for _kind, _pipeline, _model in (
    ("text", MultiLabelTextClassificationPipeline, AutoModelForSequenceClassification),
    ("image", MultiLabelImageClassificationPipeline, AutoModelForImageClassification),
):
    PIPELINE_REGISTRY.register_pipeline(f"multilabel-{_kind}-classification", _pipeline, pt_model=_model, type=_kind)
    # What a pipeline saves would otherwise hold a copy of this module, and ask to be trusted when it is loaded.
    del _pipeline._registered_impl
