"""`MLCLModel`: backbone, projection head, label prototypes, and a linear classifier where logits are wanted.

Longer than other files here, since a `PreTrainedModel` has its saving, loading and forward passes in one class.
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.dynamic_module_utils import custom_object_save
from transformers.utils import ModelOutput

from hf_mlcl.models import adapters, backbones, dual
from hf_mlcl.models.adapter_files import WithAdapter, find_adapter, load_model
from hf_mlcl.models.backbones import FeatureBackbone, backbone_from_config
from hf_mlcl.models.configuration import FeatureBackboneConfig, MLCLConfig
from hf_mlcl.models.exported import exported_encoder
from hf_mlcl.models.families import (
    Modality,
    Pooling,
    decoder_inputs,
    feature_size,
    freeze_unused,
    is_dual,
    represent,
)
from hf_mlcl.models.loading import check_kernels, check_weights, place, trust_backbone, unreadable_weights
from hf_mlcl.models.padding import HEEDS_PADDING, groups_by_length, one_lookup
from hf_mlcl.models.row_dropout import RowDropout, batch_dropout

TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds")
Dropout = Callable[[int, int], RowDropout]
Encoded = tuple[Tensor | None, ...]  # features, embeddings, logits


@dataclass
class MLCLOutput(ModelOutput):
    """What `MLCLModel` returns."""

    features: Tensor | None = None
    """The backbone's representation (batch, hidden): what linear evaluation and users work with."""
    embeddings: Tensor | None = None
    """Projected features (batch, projection_dim), raw: what contrastive losses work with."""
    prototypes: Tensor | None = None
    """One vector per label (num_labels, projection_dim), raw."""
    logits: Tensor | None = None
    """(batch, num_labels), where the model has a classifier."""


class ProjectionHead(nn.Module):
    """W2 relu(W1 x): the study's projection, dropped after training."""

    def __init__(self, hidden: int, dim: int, bias: bool = False) -> None:
        super().__init__()
        self.hidden = nn.Linear(hidden, hidden, bias=bias)
        self.out = nn.Linear(hidden, dim, bias=bias)

    def forward(self, features: Tensor) -> Tensor:
        """Project (batch, hidden) to (batch, dim)."""
        return self.out(torch.relu(self.hidden(features)))


class LabelPrototypes(nn.Module):
    """One learned vector per label."""

    def __init__(self, num_labels: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_labels, dim))

    def forward(self) -> Tensor:
        """The vectors; a copy, since DDP cannot follow a parameter that a forward pass returns itself."""
        return self.weight.clone()


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
    dropout_by_row = False

    def __init__(self, config: MLCLConfig, backbone: PreTrainedModel | None = None) -> None:
        super().__init__(config)
        if backbone is None:
            backbone = backbone_from_config(config.backbone_config, pooling=config.pooling)  # type: ignore[arg-type]
        self.backbone = backbone
        images_only = config.modalities == ["image"]
        self.main_input_name = "pixel_values" if images_only else self.backbone.main_input_name
        self._convolves = any(isinstance(part, nn.BatchNorm2d) for part in backbone.modules())

    def features_of(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """What the backbone makes of a batch: one vector per row, as `MLCLConfig` says."""
        if self.config.modalities is not None:
            return dual.joined_features(self.backbone, inputs, self.config.modalities)
        whole = self.backbone.config.model_type in HEEDS_PADDING or (self.training and self.dropout_by_row)
        groups = None if whole else groups_by_length(inputs)
        if groups is not None:
            parts, places = groups
            with one_lookup(self.get_input_embeddings(), parts):
                return torch.cat([self._features_of(part) for part in parts])[places]
        return self._features_of(inputs)

    def _features_of(self, inputs: Mapping[str, Tensor]) -> Tensor:
        pixels = inputs.get("pixel_values")
        if self._convolves and pixels is not None and pixels.device.type == "cpu" and not torch.compiler.is_compiling():
            # Convolutional networks are faster so on CPUs; a vision transformer, which has but one convolution, is not.
            inputs = {**inputs, "pixel_values": pixels.contiguous(memory_format=torch.channels_last)}
        outputs = self.backbone(**decoder_inputs(self.config.backbone_config, inputs))
        return represent(outputs, inputs.get("attention_mask"), self.config.pooling, self.config.normalize_features)

    def name_features(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Where tokenised names of labels lie among the features; of images, too, if there is a tower for texts."""
        if self.config.modalities is not None:
            return dual.name_features(self.backbone, inputs, self.config.modalities)
        return self.features_of(inputs)

    def _set_gradient_checkpointing(self, enable: bool = True, *args: Any, **kwargs: Any) -> None:
        """Pass it on to the backbone, which knows how; precomputed features have too little to gain."""
        if not isinstance(self.backbone, FeatureBackbone):
            self.backbone._set_gradient_checkpointing(enable, *args, **kwargs)

    @classmethod
    def from_pretrained(
        cls, name: str | os.PathLike[str] | None, *args: Any, trust_remote_code: bool | None = False, **kwargs: Any
    ) -> Any:
        """As for any model, but no code runs and no weight is drawn at random unless one asks for it.

        The code of a backbone that transformers does not know needs ``trust_remote_code=True``. Weights that are
        missing, of another size or not of this model are an error that names them, unless
        ``ignore_mismatched_sizes=True`` draws those of another size at random, as for another set of labels, or
        ``classifier=True`` adds a new classifier to an encoder that has none.
        """
        if trust_remote_code and name is not None:
            trust_backbone(name, **place(kwargs))
        elif name is not None and not isinstance(kwargs.get("config"), PreTrainedConfig):  # as it was checked
            check_kernels(name, **place(kwargs))
        wants_info, new_sizes = (kwargs.pop(key, False) for key in ("output_loading_info", "ignore_mismatched_sizes"))
        try:
            model, found = super().from_pretrained(
                name, *args, output_loading_info=True, ignore_mismatched_sizes=True, **kwargs
            )
        except SafetensorError as error:
            raise unreadable_weights(name or "", error) from error
        wrong = {**found, "mismatched_keys": [] if new_sizes else found["mismatched_keys"]}
        if kwargs.get("classifier"):
            wrong["missing_keys"] = {key for key in found["missing_keys"] if not key.startswith("classifier.")}
        check_weights(name, wrong)
        return (model, found) if wants_info else model

    def save_pretrained(self, save_directory: str | os.PathLike[str], *args: Any, **kwargs: Any) -> Any:
        """As for any model; a backbone's own code goes along."""
        if self.backbone.is_remote_code() and (args[0] if args else kwargs.get("is_main_process", True)):
            os.makedirs(save_directory, exist_ok=True)
            for part in (self.backbone, self.backbone.config):
                custom_object_save(part, save_directory, config=self.backbone.config)
        # transformers would write the names that weights had in earlier versions, under which no trainer resumes.
        kwargs.setdefault("save_original_format", False)
        return super().save_pretrained(save_directory, *args, **kwargs)

    def get_input_embeddings(self) -> nn.Module:
        """Those of the backbone, or of its text tower."""
        return self._reader.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Those of the backbone, or of its text tower."""
        self._reader.set_input_embeddings(value)

    @property
    def _reader(self) -> Any:
        return self.backbone if self.config.modalities is None else self.backbone.text_model

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


class MLCLModel(WithAdapter, SharedModel):
    """An encoder for multi-label contrastive learning.

    Make one with `from_backbone`; `save_pretrained`, `from_pretrained` and the Auto classes work as for any model.
    One with an adapter (`hf_mlcl.models.adapters`) is saved without its backbone.

    Attributes:
        embedding_chunk_size: Rows that the encoder computes at a time while training, with exact gradients for the
            whole batch; None for all at once. Activations take the memory of one chunk, and a forward pass more time.
        dropout_by_row: Whether neither chunks nor ranks change dropout masks (`hf_mlcl.models.row_dropout`).
        freeze_batch_norm: Whether batch normalisation normalises by the statistics that it has while training too.

    Examples:
        >>> from transformers import BertConfig
        >>> backbone = BertConfig(vocab_size=100, hidden_size=32, num_hidden_layers=1, num_attention_heads=2)
        >>> model = MLCLModel(MLCLConfig(backbone_config=backbone, num_labels=5, projection_dim=8))
        >>> output = model(input_ids=torch.tensor([[1, 2, 3], [4, 5, 6]]))
        >>> output.features.shape, output.embeddings.shape, output.prototypes.shape
        (torch.Size([2, 32]), torch.Size([2, 8]), torch.Size([5, 8]))
    """

    def __init__(self, config: MLCLConfig, backbone: PreTrainedModel | None = None) -> None:
        super().__init__(config, backbone)
        hidden = feature_size(self.backbone, config.modalities)
        self.projection = ProjectionHead(hidden, config.projection_dim, config.projection_bias)
        self.prototypes = LabelPrototypes(config.num_labels, config.projection_dim)
        self.classifier = nn.Linear(hidden, config.num_labels) if config.classifier else None
        for name, part in self.named_children():
            if name != "backbone":
                part.to(self.device, self.dtype)  # the backbone's
        self.embedding_chunk_size: int | None = None
        self.dropout_by_row = self.freeze_batch_norm = False
        freeze_unused(self.backbone, config.modalities)
        self.post_init()

    @classmethod
    def from_pretrained(
        cls,
        name: str | os.PathLike[str] | None,
        *args: Any,
        backbone: str | os.PathLike[str] | PreTrainedModel | None = None,
        **kwargs: Any,
    ) -> Any:
        """As for any model, without code and random weights; also from what `export_encoder` wrote for others.

        One with an adapter loads its base model first: from `backbone`, where it is no longer where it was.
        """
        if name is not None and not isinstance(kwargs.get("config"), PreTrainedConfig):
            exported = exported_encoder(name, kwargs)
            if exported is not None:
                return exported
        if name is not None and find_adapter(name, **place(kwargs)):
            wants_info, new_sizes = (kwargs.pop(k, False) for k in ("output_loading_info", "ignore_mismatched_sizes"))
            model = load_model(cls, name, backbone=backbone, new_sizes=new_sizes, **kwargs)
            return (model, {"missing_keys": set(), "unexpected_keys": set()}) if wants_info else model
        if backbone is not None:
            raise ValueError(f"backbone is for a model with an adapter, which {name} is not: it brings its own.")
        found = super().from_pretrained(name, *args, **kwargs)
        if name is not None:
            model = found[0] if isinstance(found, tuple) else found
            model.origin = adapters.Origin.of(model.backbone, os.fspath(name), kwargs.get("revision"), mlcl=True)
        return found

    @classmethod
    def from_backbone(
        cls,
        name: str | os.PathLike[str] | PreTrainedModel,
        label_names: Sequence[str],
        *,
        projection_dim: int = 256,
        projection_bias: bool = False,
        pooling: Pooling | Literal["auto"] = "auto",
        normalize_features: bool | Literal["auto"] = False,
        modalities: Sequence[Modality] | None = None,
        classifier: bool = False,
        classifier_dropout: float = 0.0,
        peft_config: Any = None,
        **kwargs: Any,
    ) -> MLCLModel:
        """Wrap a backbone.

        Args:
            name: A text encoder that AutoModel loads (Hub id or local folder), ``"timm/..."`` on the Hub, or the name
                of a timm architecture; or a model of transformers, which becomes part of the new one as it is.
            label_names: The labels, in the order of their ids.
            projection_dim: As in `MLCLConfig`, where the other settings of the heads are explained too.
            projection_bias: Whether the projection has biases.
            pooling: How tokens or patches become one vector: ``"first"``, ``"last"`` (padding does not count),
                ``"mean"``, or ``"pooled"``, as the backbone's own class does it. ``"auto"`` takes what the model's own
                sentence-transformers files say, and goes by the architecture where there are none: `MLCLConfig`.
            normalize_features: Whether features have length 1, as in `MLCLConfig`; ``"auto"``: unless the pooling takes
                the first or last token, whose last layer mostly gives it one length.
            modalities: Of CLIP, SigLIP and the like: ``["text"]`` or ``["image"]`` asks one tower only; both if not
                given, and a row may then have a text, an image or both.
            classifier: Whether to add a linear classifier; the trainer adds it by itself where the loss needs logits.
            classifier_dropout: Dropout of the features before it.
            peft_config: Of an adapter of PEFT, such as ``LoraConfig(r=16)``, which learns in place of the backbone.
            **kwargs: ``pretrained=False`` for random weights, ``weights=`` for a safetensors file of a timm
                architecture, ``trust_remote_code=True`` to run Python files that come with the backbone (it is refused
                otherwise), and what ``from_pretrained`` of the backbone takes, such as ``attn_implementation`` or
                ``revision``. Weights are float32 unless ``dtype`` says otherwise; the new parts have the same.

        Examples:
            >>> model = MLCLModel.from_backbone("resnet18", ["cat", "dog"], pretrained=False)
            >>> model(pixel_values=torch.randn(2, 3, 64, 64)).features.shape
            torch.Size([2, 512])
        """
        names = list(label_names)
        if isinstance(label_names, str) or len(names) != len(set(names)) or not names:
            raise ValueError(f"label_names must be a list of different names, one per label; got {label_names!r}.")
        backbone, pooling = backbones.load_backbone(name, pooling=pooling, **kwargs)
        one_length = pooling in ("mean", "pooled") and not is_dual(backbone.config)
        config = MLCLConfig(
            backbone_config=copy.deepcopy(backbone.config),  # replaced by the original, whose attention it would unset
            id2label=dict(enumerate(names)),
            label2id={name: i for i, name in enumerate(names)},
            projection_dim=projection_dim,
            projection_bias=projection_bias,
            pooling=pooling,
            normalize_features=one_length if normalize_features == "auto" else normalize_features,
            modalities=None if modalities is None else list(modalities),
            classifier=classifier,
            classifier_dropout=classifier_dropout,
        )
        model = cls.around(config, backbone)
        loaded = kwargs.get("pretrained", True) and kwargs.get("weights") is None
        place_of_it = backbone.name_or_path if isinstance(name, PreTrainedModel) else os.fspath(name)
        model.origin = adapters.Origin.of(backbone, place_of_it if loaded else "", kwargs.get("revision"))
        if peft_config is not None:
            model.add_adapter(peft_config)
        return model

    @classmethod
    def around(cls, config: MLCLConfig, backbone: PreTrainedModel) -> MLCLModel:
        """A model with this backbone, whose weights stay as they are, and new heads."""
        attention = backbone.config._attn_implementation
        config.backbone_config = backbone.config
        for parameter in backbone.parameters():
            parameter._is_hf_initialized = True  # loaded: only what is new gets drawn
        model = cls(config, backbone)
        backbone.config._attn_implementation = attention  # becoming part of another configuration has unset it
        return model

    @classmethod
    def from_features(
        cls, feature_dim: int, label_names: Sequence[str], *, num_layers: int = 1, dropout: float = 0.1, **kwargs: Any
    ) -> MLCLModel:
        """An encoder over precomputed vectors: trains in seconds on frozen embeddings of any origin.

        Args:
            feature_dim: Length of the vectors, given to the model as ``feature_values``.
            label_names: As for `from_backbone`, also what is given by keyword.
            num_layers: Residual blocks.
            dropout: Dropout in them.
            **kwargs: ``projection_dim`` and other settings of the heads.

        Examples:
            >>> model = MLCLModel.from_features(16, ["a", "b", "c"])
            >>> model(feature_values=torch.randn(2, 16)).embeddings.shape
            torch.Size([2, 256])
        """
        config = FeatureBackboneConfig(feature_dim=feature_dim, num_layers=num_layers, dropout=dropout)
        return cls.from_backbone(backbone_from_config(config), label_names, **kwargs)

    def _init_weights(self, module: nn.Module) -> None:
        # The backbone draws its own weights: what comes here belongs to projection, prototypes or classifier.
        if isinstance(module, nn.Linear | LabelPrototypes):
            init.xavier_uniform_(module.weight)
            if getattr(module, "bias", None) is not None:
                init.zeros_(module.bias)

    def train(self, mode: bool = True) -> MLCLModel:
        """As of any module; statistics of batch normalisation stay as they are where `freeze_batch_norm` says so.

        They do where the backbone has an adapter, too: nothing of the backbone is saved then.
        """
        super().train(mode)
        if mode and adapters.is_quantised(self.backbone):
            adapters.unpack(self.backbone)
        if mode and (self.freeze_batch_norm or adapters.has_adapter(self)):
            for module in self.backbone.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        return self

    def add_classifier(self) -> None:
        """Add a linear classifier on the features, if there is none."""
        if self.classifier is None:
            device = self.prototypes.weight.device
            size = feature_size(self.backbone, self.config.modalities)
            self.classifier = nn.Linear(size, self.config.num_labels).to(device, self.dtype)
            self._init_weights(self.classifier)
            self.config.classifier = True

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        pixel_values: Tensor | None = None,
        feature_values: Tensor | None = None,
        modality_mask: Tensor | None = None,
    ) -> MLCLOutput:
        """Encode a batch. Which inputs there are depends on the backbone."""
        names = (*TEXT_INPUTS, "pixel_values", "feature_values", "modality_mask")
        texts = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        given = (*texts, pixel_values, feature_values, modality_mask)
        inputs = {name: value for name, value in zip(names, given, strict=True) if value is not None}
        if self.config.modalities is None and not {self.main_input_name, "inputs_embeds"} & inputs.keys():
            kind = type(self.backbone).__name__
            raise ValueError(f"{self.main_input_name} is missing: this model's backbone is {kind}.")
        batch, chunk = len(next(iter(inputs.values()))), self.embedding_chunk_size
        dropout = batch_dropout(batch, self.device) if self.dropout_by_row and self.training else None
        if chunk is None or chunk >= batch or not (self.training and torch.is_grad_enabled()):
            encoded = self._encode(inputs, dropout)
        else:
            chunks = ((i, {k: v[i : i + chunk] for k, v in inputs.items()}) for i in range(0, batch, chunk))
            parts = [self._encode_later(part, dropout, i) for i, part in chunks]
            encoded = tuple(torch.cat(part) if part[0] is not None else None for part in zip(*parts, strict=True))
        features, embeddings, logits = encoded
        return MLCLOutput(features=features, embeddings=embeddings, prototypes=self.prototypes(), logits=logits)

    def _encode(self, inputs: dict[str, Tensor], dropout: Dropout | None = None, start: int = 0) -> Encoded:
        rows = len(next(iter(inputs.values())))
        with nullcontext() if dropout is None else dropout(start, rows):
            features, logits = self.features_of(inputs), None
            if self.classifier is not None:
                logits = self.classifier(F.dropout(features, self.config.classifier_dropout, self.training))
        return features, self.projection(features), logits

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # dynamo does not know checkpoints with a context of their own
    def _encode_later(self, inputs: dict[str, Tensor], dropout: Dropout | None, start: int) -> Encoded:
        """Encode without keeping activations; the backward pass computes them again, with the same dropout."""
        contexts = lambda: (nullcontext(), self._frozen_statistics())  # noqa: E731
        return checkpoint(self._encode, inputs, dropout, start, use_reentrant=False, context_fn=contexts)

    @contextmanager
    def _frozen_statistics(self) -> Iterator[None]:
        """Keeps batch normalisation from counting a chunk a second time when it is computed again."""
        norms = [m for m in self.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
        before = [(norm.momentum, norm.num_batches_tracked.clone()) for norm in norms]  # type: ignore[union-attr]
        for norm in norms:
            norm.momentum = 0.0
        try:
            yield
        finally:
            for norm, (momentum, count) in zip(norms, before, strict=True):
                norm.momentum = momentum
                norm.num_batches_tracked.copy_(count)  # type: ignore[union-attr]

    def save_backbone(self, folder: str | Path) -> None:
        """Save the bare backbone as itself: AutoModel loads it, with no trace of this package."""
        self.merged().backbone.save_pretrained(folder)


AutoConfig.register("mlcl", MLCLConfig)
AutoModel.register(MLCLConfig, MLCLModel)
