"""Pipelines that decide: of all labels only those whose probability reaches their threshold.

HF's own ``text-classification`` and ``image-classification`` give probabilities and leave the decision to the user.
``multilabel-text-classification`` and ``multilabel-image-classification`` take it, with the thresholds that are saved
in a model's configuration (see `DecisionRule`), and with 0.5 where there are none, as in models not ours.
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


class MultiLabelTextClassificationPipeline(TextClassificationPipeline):
    """``pipeline("multilabel-text-classification")``: the labels of a text, perhaps none.

    Texts longer than the tokenizer's ``model_max_length`` are cut; the tokenizer's arguments may be passed along, as in
    HF's pipeline.

    Examples:
        >>> import torch
        >>> from transformers import BertConfig, pipeline
        >>> from hf_mlcl import MLCLConfig, MLCLForSequenceClassification, MLCLModel
        >>> from hf_mlcl.data import word_tokenizer
        >>> tokenizer = word_tokenizer(["a cat", "a dog"])
        >>> backbone = BertConfig(vocab_size=9, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
        >>> encoder = MLCLModel(MLCLConfig(backbone_config=backbone, id2label={0: "cat", 1: "dog"}))
        >>> bias = torch.tensor([[1.0, -1.0]])  # probabilities of 0.73 and 0.27, whatever the text
        >>> model = MLCLForSequenceClassification.from_encoder(encoder, torch.zeros(1, 2, 16), bias)
        >>> classify = pipeline("multilabel-text-classification", model=model, tokenizer=tokenizer, device="cpu")
        >>> [[found["label"] for found in labels] for labels in classify(["a cat", "a dog"])]
        [['cat'], ['cat']]
        >>> model.calibrate([0.5, 0.2])
        >>> [found["label"] for found in classify("a dog")]
        ['cat', 'dog']
    """

    def _sanitize_parameters(self, **tokenizer_kwargs: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        return {"truncation": True, **tokenizer_kwargs}, {}, {}

    def __call__(self, inputs: Any, **kwargs: Any) -> Labels | list[Labels]:
        """The labels of a text, or a list of them for a list of texts."""
        found: Any = super().__call__(inputs, **kwargs)
        return found[0] if isinstance(inputs, str) else found  # HF's wraps what it found for a single text

    def postprocess(self, model_outputs: Any) -> Labels:
        """Probabilities, most probable first, and of them those that reach their threshold."""
        return _labels(model_outputs, self.model.config)


class MultiLabelImageClassificationPipeline(ImageClassificationPipeline):
    """``pipeline("multilabel-image-classification")``: the labels of an image, perhaps none.

    Images are loaded and prepared as in HF's pipeline. `hf_mlcl.data.image_processor` prepares them as training did.
    """

    def _sanitize_parameters(
        self, timeout: float | None = None
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        return {} if timeout is None else {"timeout": timeout}, {}, {}

    def postprocess(self, model_outputs: Any) -> Labels:
        """Probabilities, most probable first, and of them those that reach their threshold."""
        return _labels(model_outputs, self.model.config)


def probabilities_of(logits: Tensor, config: Any) -> Tensor:
    """Float32 probabilities of logits, by the same rule as HF's pipelines but without overflow at large logits.

    Args:
        logits: (..., labels).
        config: Of the model that gave them.
    """
    logits = logits.float()
    if config.problem_type == "regression":
        return logits
    if config.problem_type == "multi_label_classification" or config.num_labels == 1:
        return logits.sigmoid()
    return logits.softmax(-1)


def _labels(model_outputs: Any, config: Any) -> Labels:
    """The labels that a row is given, most probable first; scores that are not finite are no answer."""
    scores = probabilities_of(model_outputs["logits"][:1], config).numpy()
    if not np.isfinite(scores).all():
        raise ValueError(
            "The scores of the model are not finite: its weights hold NaN or infinite values, or its dtype has too "
            "small a range for them (float16). Load another copy, or pass dtype='float32'."
        )
    given = DecisionRule.of(config).decide(scores)[0]
    order = np.argsort(-scores[0], kind="stable")
    return [{"label": config.id2label[int(i)], "score": scores[0, i].item()} for i in order if given[i]]


def _register(task: str, pipeline: Any, model: Any, kind: str) -> None:
    PIPELINE_REGISTRY.register_pipeline(task, pipeline, pt_model=model, type=kind)
    # What a pipeline saves would otherwise hold a copy of this module, and ask to be trusted when it is loaded.
    del pipeline._registered_impl


_register(
    "multilabel-text-classification", MultiLabelTextClassificationPipeline, AutoModelForSequenceClassification, "text"
)
_register(
    "multilabel-image-classification", MultiLabelImageClassificationPipeline, AutoModelForImageClassification, "image"
)
