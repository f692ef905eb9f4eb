"""What encoders and classifiers share: the way to the Hub, and token embeddings that are their backbone's."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Any

from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.dynamic_module_utils import custom_object_save

from hf_mlcl.models.backbones import FeatureBackbone, backbone_from_config, represent
from hf_mlcl.models.configuration import MLCLConfig
from hf_mlcl.models.loading import check_kernels, check_weights, place, trust_backbone, unreadable_weights


class SharedModel(PreTrainedModel):
    """A model around a backbone, whose ``push_to_hub`` is private at first and writes card and processor too."""

    config_class = MLCLConfig
    base_model_prefix = "mlcl"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = False
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    # A backbone that was given as an object may have a pooler, which we do not use and do not build again.
    _keys_to_ignore_on_load_unexpected = [r"^backbone\.pooler\."]  # noqa: RUF012

    report: Any = None
    """Facts for its card (`hf_mlcl.hub.ModelReport`), as far as whoever made the model knew them."""
    processor: Any = None
    """Its tokenizer or image processor, where whoever made the model had it."""

    def __init__(self, config: MLCLConfig, backbone: PreTrainedModel | None = None) -> None:
        super().__init__(config)
        self.backbone = backbone_from_config(config.backbone_config) if backbone is None else backbone
        self.main_input_name = self.backbone.main_input_name

    def features_of(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """What the backbone makes of a batch: one vector per row, as `MLCLConfig.pooling` says."""
        return represent(self.backbone(**inputs), inputs.get("attention_mask"), self.config.pooling)

    def _set_gradient_checkpointing(self, enable: bool = True, *args: Any, **kwargs: Any) -> None:
        """Pass it on to the backbone, which knows how; precomputed features have too little to gain."""
        if not isinstance(self.backbone, FeatureBackbone):
            self.backbone._set_gradient_checkpointing(enable, *args, **kwargs)

    @classmethod
    def from_pretrained(
        cls,
        name: str | os.PathLike[str] | None,
        *args: Any,
        trust_remote_code: bool | None = False,
        output_loading_info: bool = False,
        ignore_mismatched_sizes: bool = False,
        **kwargs: Any,
    ) -> Any:
        """As for any model, but no code runs and no weight is drawn at random unless one asks for it.

        The code of a backbone that transformers does not know needs ``trust_remote_code=True``. Weights that are
        missing, of another size or not of this model are an error that names them, unless
        ``ignore_mismatched_sizes=True`` draws those of another size anew, as for another set of labels, or
        ``classifier=True`` adds a new classifier to an encoder that has none.
        """
        where = place(kwargs)
        if trust_remote_code and name is not None:
            trust_backbone(name, **where)
        elif name is not None and not isinstance(kwargs.get("config"), PreTrainedConfig):  # as it was checked
            check_kernels(name, **where)
        try:
            model, found = super().from_pretrained(
                name, *args, output_loading_info=True, ignore_mismatched_sizes=True, **kwargs
            )
        except SafetensorError as error:
            raise unreadable_weights(name or "", error) from error
        wrong = {**found, "mismatched_keys": [] if ignore_mismatched_sizes else found["mismatched_keys"]}
        if kwargs.get("classifier"):
            wrong["missing_keys"] = {key for key in found["missing_keys"] if not key.startswith("classifier.")}
        check_weights(name, wrong)
        return (model, found) if output_loading_info else model

    def save_pretrained(self, save_directory: str | os.PathLike[str], *args: Any, **kwargs: Any) -> Any:
        """As for any model; a backbone's own code goes along."""
        if self.backbone.is_remote_code() and (args[0] if args else kwargs.get("is_main_process", True)):
            os.makedirs(save_directory, exist_ok=True)
            for part in (self.backbone, self.backbone.config):
                custom_object_save(part, save_directory, config=self.backbone.config)
        return super().save_pretrained(save_directory, *args, **kwargs)

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

        A card that is on the Hub already stays as it is, unless the model knows facts for a new one.

        Args:
            repo_id: ``"name"`` or ``"owner/name"``.
            processor: Tokenizer or image processor, without which pipelines cannot run; the model's own if not given.
            private: Visibility of a new repository, private if not given. One that exists keeps its own.
            token: Of the user; the one of ``hf auth login`` if not given.
            **push: Further arguments of `hf_mlcl.hub.push_folder`: ``revision``, ``commit_message``, ...
        """
        from huggingface_hub import HfApi

        from hf_mlcl.hub.model_card import calibrated, report_of_model, write_model_card
        from hf_mlcl.hub.push import push_folder

        api, private = HfApi(token=token), True if private is None else private
        repository = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        with tempfile.TemporaryDirectory() as folder:
            for part in (self, processor or self.processor):
                if part is not None:
                    part.save_pretrained(folder)
            if self.report is not None or not api.file_exists(repository, "README.md"):
                report = calibrated(self.report or report_of_model(self), self.config)
                write_model_card(folder, report, repo_id=repository)
            return push_folder(folder, repository, private, token, **push)
