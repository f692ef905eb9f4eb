"""Labels by prototypes: no classifier, and no training for labels that come later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from hf_mlcl.evaluation import label_centroids
from hf_mlcl.inference.encoding import Encoder, Inputs, is_single


class PrototypeClassifier:
    """Scores labels by the cosine similarity of a text or an image to each label's prototype: no probabilities.

    Args:
        encoder: Encodes texts or images.
        prototypes: One vector per label.
        space: Where they live: among the projected ``"embeddings"``, as learned prototypes do, or among the
            ``"features"``, as means of examples do.
        label_names: One name per prototype; those of the encoder if not given.

    Examples:
        >>> from transformers import BertConfig
        >>> from hf_mlcl import MLCLConfig, MLCLModel
        >>> from hf_mlcl.data import word_tokenizer
        >>> tokenizer = word_tokenizer(["a cat", "a dog"])
        >>> backbone = BertConfig(vocab_size=9, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
        >>> model = MLCLModel(MLCLConfig(backbone_config=backbone, id2label={0: "cat", 1: "dog"}))
        >>> classify = PrototypeClassifier.from_model(Encoder(model, tokenizer))
        >>> sorted(found["label"] for found in classify("a cat"))
        ['cat', 'dog']
        >>> examples = PrototypeClassifier.from_examples(classify.encoder, ["a cat", "a dog"], [[1, 0], [0, 1]])
        >>> examples("a dog", top_k=1)[0]["label"]
        'dog'
    """

    def __init__(
        self,
        encoder: Encoder,
        prototypes: Tensor,
        space: Literal["embeddings", "features"] = "embeddings",
        label_names: Sequence[str] | None = None,
    ) -> None:
        if space not in ("embeddings", "features"):
            raise ValueError(f"space must be 'embeddings' or 'features', got {space!r}.")
        names = encoder.model.config.label_names if label_names is None else list(label_names)
        if isinstance(label_names, str) or len(set(names)) != len(names):
            raise ValueError(f"label_names must be a list of different names, one per label; got {label_names!r}.")
        if prototypes.ndim != 2 or len(prototypes) != len(names):
            hint = " Name labels that the encoder does not know: label_names=[...]." if label_names is None else ""
            raise ValueError(
                f"prototypes must have a row for each of the {len(names)} labels, got {tuple(prototypes.shape)}.{hint}"
            )
        self.encoder, self.space, self.label_names = encoder, space, names
        self.prototypes = F.normalize(prototypes.detach().float().cpu(), dim=1)

    @classmethod
    def from_model(cls, encoder: Encoder) -> PrototypeClassifier:
        """With the prototypes that `proto`, `msc`, `wo_reg` or `reg` has trained; other losses leave them random."""
        return cls(encoder, encoder.model.prototypes.weight, "embeddings")

    @classmethod
    def from_examples(
        cls, encoder: Encoder, inputs: Inputs, labels: Any, label_names: Sequence[str] | None = None
    ) -> PrototypeClassifier:
        """With the mean feature of each label's examples: works for any encoder, and a handful of examples is a start.

        The labels are multi-hot (rows, labels); one without an example scores 0. Their names need not be those that the
        encoder was trained for, but are if not given.
        """
        means = torch.from_numpy(label_centroids(encoder.features(inputs), labels))
        return cls(encoder, means, "features", label_names)

    def similarities(self, inputs: Inputs) -> Tensor:
        """Cosine similarities (rows, labels), columns in the order of `label_names`."""
        vectors = self.encoder.features(inputs) if self.space == "features" else self.encoder.embeddings(inputs)
        return F.normalize(vectors, dim=1) @ self.prototypes.T

    def __call__(self, inputs: Inputs, top_k: int | None = None) -> Any:
        """Labels and scores, the `top_k` best first, as pipelines give them: a list of dicts, or one per input."""
        names = self.label_names
        if top_k is not None and not 1 <= top_k <= len(names):
            raise ValueError(f"top_k must lie between 1 and the number of labels, {len(names)}; got {top_k}.")
        scores, order = self.similarities(inputs).sort(dim=1, descending=True, stable=True)
        found = [
            [{"label": names[i], "score": score} for i, score in zip(ids[:top_k], row[:top_k], strict=True)]
            for ids, row in zip(order.tolist(), scores.tolist(), strict=True)
        ]
        return found[0] if is_single(inputs) else found
