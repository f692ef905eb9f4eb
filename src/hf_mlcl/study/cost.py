"""What a study will cost, from what is known before it starts: runs, rows, epochs, and the network's operations.

The operations of a forward pass are counted on the network itself, built without weights. Training an example is taken
as three forward passes, extracting its features as one. Time follows from a rate that is *assumed*, not measured:
`DEVICE_RATE` for a single data-centre GPU. Texts are taken at their greatest length. Loading data, the linear heads and
saving are left out.
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hf_mlcl.data.facts import SplitSizes
from hf_mlcl.data.registry import corpus_facts
from hf_mlcl.study.specification import Run, Study

DEVICE_RATE = {"text": 1.0e14, "image": 2.5e13}
"""Operations a second that training is assumed to sustain in 16-bit precision on one GPU of the class of an A100, whose
peak is 3.1e14: about a third of it for transformers, a twelfth for convolutions at batches of 64."""

FORWARD_PASSES_OF_TRAINING = 3

ROBERTA_BASE = ("roberta-base", "FacebookAI/roberta-base")
"""What the study's recipes name; its configuration is known without a look at the Hub."""

STAND_INS = {"text": "RoBERTa-base", "image": "ResNet-50"}
"""What a backbone is taken as whose configuration is not available."""


@dataclass(frozen=True)
class Cost:
    """An estimate for some runs.

    Attributes:
        runs: Their number.
        operations: Floating-point operations.
        hours: Time of one GPU at the assumed rate.
    """

    runs: int
    operations: float
    hours: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.runs + other.runs, self.operations + other.operations, self.hours + other.hours)


def study_cost(study: Study, rates: Mapping[str, float] | None = None) -> dict[str, Cost]:
    """The estimate for each corpus and kind of loss, and in total.

    Args:
        study: The study.
        rates: Operations a second for ``"text"`` and ``"image"``; `DEVICE_RATE` if not given.

    Returns:
        Costs by ``"corpus, setting, kind"``, and ``"total"``.
    """
    parts: dict[str, Cost] = {}
    for run in study.runs:
        key = cost_group(run)
        parts[key] = parts.get(key, Cost(0, 0.0, 0.0)) + run_cost(run, rates)
    return {**parts, "total": sum(parts.values(), Cost(0, 0.0, 0.0))}


def cost_group(run: Run) -> str:
    """What runs are summed up by: corpus, setting, kind of loss."""
    kind = "logit" if _on_logits(str(run.arguments["loss"])) else "contrastive"
    return ", ".join([run.corpus, *([] if run.setting == "default" else [run.setting]), kind])


def assumed_backbones(study: Study) -> dict[str, str]:
    """The backbones that an estimate cannot know here, neither from a folder nor from the cache or the Hub.

    Returns:
        For each, what it is taken as.
    """
    used = set()
    for run in study.runs:
        settings = resolved_settings(run)
        used.add((corpus_facts(settings["corpus"]).modality, settings.get("backbone")))
    return {str(name): STAND_INS[kind] for kind, name in sorted(used, key=str) if not _is_known(kind, name)}


def _is_known(kind: str, backbone: str | None) -> bool:
    if kind == "text":
        return _text_config(backbone) is not None
    return _timm_name(backbone) is not None or _saved_config(str(backbone)) is not None


def run_cost(run: Run, rates: Mapping[str, float] | None = None) -> Cost:
    """The estimate for one run."""
    settings = resolved_settings(run)
    labelled_only = bool((settings.get("corpus_options") or {}).get("labelled_only"))
    sizes = split_sizes(settings["corpus"], settings.get("size", "full"), labelled_only)
    return settings_cost(settings, corpus_facts(settings["corpus"]).modality, sizes, rates)


def settings_cost(
    settings: Mapping[str, Any], kind: str, sizes: SplitSizes, rates: Mapping[str, float] | None = None
) -> Cost:
    """The estimate for one training with all of its settings.

    Args:
        settings: Arguments of the experiment and of its training, by name.
        kind: Of its examples: ``"text"`` or ``"image"``.
        sizes: Rows of each split.
        rates: Operations a second for either kind; `DEVICE_RATE` if not given.
    """
    train = min(sizes.train, settings.get("max_train_samples") or sizes.train)
    validation, test = (min(size, settings.get("max_eval_samples") or size) for size in (sizes.validation, sizes.test))
    forward = forward_operations(
        kind,
        settings.get("backbone"),
        settings.get("max_length", 220) if kind == "text" else settings.get("image_size", 224),
    )
    epochs = float(settings.get("num_train_epochs", 3))
    if settings.get("max_steps", -1) > 0:
        batch = settings.get("per_device_train_batch_size") or settings.get("global_batch_size") or 8
        epochs = settings["max_steps"] * batch / train
    evaluations = epochs if settings.get("eval_strategy") == "epoch" else 0
    examples = FORWARD_PASSES_OF_TRAINING * epochs * train + (evaluations + 1) * validation + test
    if not _on_logits(settings["loss"]):
        examples += train * max(1, settings.get("augmented_passes", 0))
    operations = examples * forward
    return Cost(1, operations, operations / (rates or DEVICE_RATE)[kind] / 3600)


def resolved_settings(run: Run) -> dict[str, Any]:
    """A run's settings over those of its corpus's recipe."""
    from hf_mlcl.experiments import study_recipe

    loss, size = str(run.arguments["loss"]), str(run.arguments.get("size", "full"))
    return {**study_recipe(str(run.arguments["corpus"])).for_loss(loss, size), **run.arguments}


def split_sizes(corpus: str, size: str = "full", labelled_only: bool = False) -> SplitSizes:
    """Rows a split: counted where that was possible, else as the paper rounds them.

    Args:
        corpus: Its name.
        size: ``"full"`` or ``"small"``.
        labelled_only: Whether rows without a label are left out, where those were counted.

    Examples:
        >>> split_sizes("aapd").train, split_sizes("semeval2018", labelled_only=True).train
        (37820, 6634)
    """
    facts = corpus_facts(corpus)
    counted = facts.small_sizes if size == "small" else facts.sizes
    if labelled_only and size == "full":
        counted = facts.labelled_sizes or counted
    if counted is not None:
        return counted
    printed = facts.study and (facts.study.small_sizes if size == "small" else facts.study.sizes)
    if not printed:
        raise ValueError(f"The number of rows of {corpus} ({size}) is not known.")
    numbers = re.findall(r"([\d.]+)k", printed)
    if len(numbers) != 3:
        raise ValueError(f"The number of rows of {corpus} ({size}) cannot be read from {printed!r}.")
    return SplitSizes(*(round(1000 * float(number)) for number in numbers))


@functools.cache
def forward_operations(kind: str, backbone: str | None, size: int) -> float:
    """Floating-point operations of one example's way through a backbone.

    Args:
        kind: ``"text"`` or ``"image"``.
        backbone: As `ExperimentArguments.backbone`. One that is not available is taken as RoBERTa-base or ResNet-50;
            `assumed_backbones` names them.
        size: Tokens, or the side of the image.

    Examples:
        >>> f"{forward_operations('image', 'resnet50', 224):.1e}"  # twice the 4.1e9 multiply-adds of the literature
        '8.2e+09'
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"), FlopCounterMode(display=False) as counter, torch.no_grad():
        network = _text_network(backbone, size) if kind == "text" else _image_network(backbone)
        if kind == "text":
            network(input_ids=torch.zeros(1, size, dtype=torch.long))
        else:
            network(torch.zeros(1, 3, size, size))
    return float(counter.get_total_flops())


def _text_network(backbone: str | None, length: int) -> Any:
    from transformers import AutoModel, RobertaConfig

    config = _text_config(backbone)
    if config is None:
        config = RobertaConfig(vocab_size=50_265)
    config = copy.deepcopy(config)
    config.max_position_embeddings = max(getattr(config, "max_position_embeddings", 0), length + 2)
    return AutoModel.from_config(config, trust_remote_code=False).eval()


def _text_config(backbone: str | None) -> Any:
    """The configuration that a backbone's network is built from; None where it is not available."""
    from transformers import BertConfig, RobertaConfig

    if backbone == "small":
        return BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256)
    if backbone in (None, *ROBERTA_BASE):
        return RobertaConfig(vocab_size=50_265)
    return _saved_config(str(backbone))


@functools.cache
def _saved_config(backbone: str) -> Any:
    """A backbone's configuration from its folder, the cache or the Hub, if any of them has it."""
    from transformers import AutoConfig

    from hf_mlcl.experiments.inputs import without_vain_attempts
    from hf_mlcl.models.loading import load

    try:
        with without_vain_attempts(backbone):
            return load(AutoConfig, backbone)
    except (OSError, ValueError):
        return None


def _image_network(backbone: str | None) -> Any:
    import timm
    from transformers import AutoModel

    name = _timm_name(backbone)
    if name is not None:
        return timm.create_model(name, num_classes=0).eval()
    config = _saved_config(str(backbone))
    if config is None:
        return timm.create_model("resnet50", num_classes=0).eval()
    return AutoModel.from_config(config, trust_remote_code=False).eval()


def _timm_name(backbone: str | None) -> str | None:
    import timm

    name = {None: "resnet50", "small": "resnet10t"}.get(backbone, str(backbone).rpartition("/")[2])
    return name if timm.is_model(name) else None


def _on_logits(loss: str) -> bool:
    from hf_mlcl.losses import on_logits_only

    return on_logits_only(loss)
