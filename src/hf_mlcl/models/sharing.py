"""What encoders and classifiers share on the way to the Hub."""

from __future__ import annotations

from typing import Any


class SharedModel:
    """A model whose ``push_to_hub`` is private at first, writes a real card and takes the processor along.

    Attributes:
        report: Facts for its card (`hf_mlcl.hub.ModelReport`), as far as whoever made the model knew them.
        processor: Its tokenizer or image processor, where whoever made the model had it.
    """

    report: Any = None
    processor: Any = None

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
