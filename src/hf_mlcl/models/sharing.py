"""What encoders and classifiers share: the way to the Hub, and token embeddings that are their backbone's."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import PreTrainedModel


class SharedModel:
    """A model around a backbone, whose ``push_to_hub`` is private at first, writes a real card and takes the processor.

    Attributes:
        backbone: What encodes texts or images.
        report: Facts for its card (`hf_mlcl.hub.ModelReport`), as far as whoever made the model knew them.
        processor: Its tokenizer or image processor, where whoever made the model had it.
    """

    backbone: PreTrainedModel
    report: Any = None
    processor: Any = None

    def get_input_embeddings(self) -> nn.Module:
        """Those of the backbone."""
        return self.backbone.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Those of the backbone."""
        self.backbone.set_input_embeddings(value)

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        """As for any model; the size of the vocabulary is noted where loading looks for it, with the backbone."""
        return self.backbone.resize_token_embeddings(*args, **kwargs)

    def push_to_hub(
        self, repo_id: str, *, processor: Any = None, private: bool | None = None, token: Any = None, **push: Any
    ) -> Any:
        """Upload the model, its card, and its tokenizer or image processor.

        Args:
            repo_id: ``"name"`` or ``"owner/name"``.
            processor: Tokenizer or image processor, without which pipelines cannot run; the model's own if not given.
            private: Visibility of a new repository, private if not given. One that exists keeps its own.
            token: Of the user; the one of ``hf auth login`` if not given.
            **push: Further arguments of `hf_mlcl.hub.push_folder`: ``revision``, ``commit_message``, ...
        """
        from hf_mlcl.hub import push_model

        settings = {"private": True if private is None else private, "token": token, **push}
        return push_model(self, repo_id, processor=processor or self.processor, report=self.report, **settings)
