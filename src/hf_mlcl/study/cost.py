"""What a study will cost, from what is known before it starts: runs, rows, epochs, and the network's operations.

The operations of a forward pass are counted on the network itself, built without weights. Training an example is taken
as three forward passes, extracting its features as one. Time follows from a rate that is *assumed*, not measured.
Texts are taken at their greatest length. Loading data, the linear heads and saving are left out.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

from hf_mlcl.data.facts import SplitSizes
from hf_mlcl.data.registry import corpus_facts
from hf_mlcl.study.specification import Run, Study

DEVICE_RATE = {"text": 1.0e14, "image": 2.5e13}
"""Operations per second that training is assumed to sustain in 16-bit precision on one GPU of the class of an A100,
whose peak is 3.1e14: about a third of it for transformers, a twelfth for convolutions at batches of 64."""
FORWARD_PASSES_OF_TRAINING = 3
STAND_INS = {"text": "RoBERTa-base", "image": "ResNet-50"}
"""What a backbone is taken as whose configuration is not available."""


@dataclass(frozen=True)
class Cost:
    """An estimate for some runs: their number, floating-point operations, hours of one GPU at the assumed rate."""

    runs: int = 0
    operations: float = 0.0
    hours: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.runs + other.runs, self.operations + other.operations, self.hours + other.hours)


def study_cost(study: Study, rates: Mapping[str, float] = DEVICE_RATE) -> dict[str, Cost]:
    """The estimate for each `cost_group`, and in ``"total"``, at these operations per second on texts and images."""
    parts: dict[str, Cost] = {}
    for run in study.runs:
        key = cost_group(run)
        parts[key] = parts.get(key, Cost()) + run_cost(run, rates)
    return {**parts, "total": sum(parts.values(), Cost())}


def cost_group(run: Run) -> str:
    """What runs are summed up by: corpus, setting, kind of loss."""
    return ", ".join([run.corpus, *([] if run.setting == "default" else [run.setting]), run.kind])


def assumed_backbones(study: Study) -> dict[str, str]:
    """The backbones that are not available here, neither in a folder nor on the Hub; and what each is taken as."""
    assumed = {}
    for run in study.runs:
        settings = _resolved(run)
        modality = _modality_and_sizes(settings)[0]
        if not _forward(modality, settings.get("backbone"), _size(settings, modality))[1]:
            assumed[str(settings["backbone"])] = STAND_INS[modality]
    return assumed


def run_cost(run: Run, rates: Mapping[str, float] = DEVICE_RATE) -> Cost:
    """The estimate for one run."""
    settings = _resolved(run)
    modality, sizes = _modality_and_sizes(settings)
    return settings_cost(settings, modality, kept_rows(sizes, settings), rates)


def _modality_and_sizes(settings: Mapping[str, Any]) -> tuple[str, SplitSizes]:
    """Of data of your own, of texts with images the dearer ones; of a corpus what is known of it."""
    from hf_mlcl.study.execution import own_data_of

    if own := own_data_of(settings):
        return own.modality.removeprefix("text+"), own.sizes
    labelled_only = bool((settings.get("corpus_options") or {}).get("labelled_only"))
    sizes = split_sizes(settings["corpus"], settings.get("size", "full"), labelled_only)
    return corpus_facts(settings["corpus"]).modality, sizes


def kept_rows(sizes: SplitSizes, settings: Mapping[str, Any]) -> SplitSizes:
    """Rows of each split less what ``max_train_samples`` and ``max_eval_samples`` leave out."""
    most = [settings.get(f"max_{split}_samples") for split in ("train", "eval", "eval")]
    return SplitSizes(*(min(rows, kept or rows) for rows, kept in zip(astuple(sizes), most, strict=True)))


def settings_cost(
    settings: Mapping[str, Any], modality: str, sizes: SplitSizes, rates: Mapping[str, float] = DEVICE_RATE
) -> Cost:
    """The estimate for one training with all of its settings on so many ``"text"`` or ``"image"`` examples."""
    from hf_mlcl.losses import on_logits_only

    train, validation, test = astuple(sizes)
    epochs = float(settings.get("num_train_epochs", 3))
    if settings.get("max_steps", -1) > 0:
        batch = settings.get("per_device_train_batch_size") or settings.get("global_batch_size") or 8
        epochs = settings["max_steps"] * batch / train
    evaluations = epochs if settings.get("eval_strategy") == "epoch" else 0
    examples = FORWARD_PASSES_OF_TRAINING * epochs * train + (evaluations + 1) * validation + test
    if not on_logits_only(settings["loss"]):
        examples += train * max(1, settings.get("augmented_passes", 0))
    operations = examples * forward_operations(modality, settings.get("backbone"), _size(settings, modality))
    return Cost(1, operations, operations / rates[modality] / 3600)


def _size(settings: Mapping[str, Any], modality: str) -> int:
    return int(settings.get("max_length", 220) if modality == "text" else settings.get("image_size") or 224)


def _resolved(run: Run) -> dict[str, Any]:
    """A run's settings over those of its corpus's recipe."""
    from hf_mlcl.study.execution import recipe_of

    loss, size = str(run.arguments["loss"]), str(run.arguments.get("size", "full"))
    return {**recipe_of(run.arguments).for_loss(loss, size), **run.arguments}


def split_sizes(corpus: str, size: str = "full", labelled_only: bool = False) -> SplitSizes:
    """Rows of each split: counted where that was possible, else as the paper rounds them.

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
    numbers = re.findall(r"([\d.]+)k", printed or "")
    if len(numbers) != 3:
        raise ValueError(f"The number of rows of {corpus} ({size}) is not known.")
    return SplitSizes(*(round(1000 * float(number)) for number in numbers))


def forward_operations(modality: str, backbone: str | None, size: int) -> float:
    """Floating-point operations of one example, of so many tokens or pixels of a side, on its way through a backbone.

    One that is not available is taken as RoBERTa-base or ResNet-50; `assumed_backbones` names them.

    Examples:
        >>> f"{forward_operations('image', 'resnet50', 224):.1e}"  # twice the 4.1e9 multiply-adds of the literature
        '8.2e+09'
    """
    return _forward(modality, backbone, size)[0]


@functools.cache
def _forward(modality: str, backbone: str | None, size: int) -> tuple[float, bool]:
    """Operations, and whether they are of the backbone itself and not of a stand-in."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"), FlopCounterMode(display=False) as counter, torch.no_grad():
        network, known = _network(modality, backbone, size)
        if modality == "text":
            network.eval()(input_ids=torch.zeros(1, size, dtype=torch.long))
        else:
            network.eval()(torch.zeros(1, 3, size, size))
    return float(counter.get_total_flops()), known


def _network(modality: str, backbone: str | None, size: int) -> tuple[Any, bool]:
    import timm
    from transformers import BertConfig, RobertaConfig

    from hf_mlcl.experiments.inputs import SMALL_BERT, without_vain_attempts
    from hf_mlcl.models.backbones import backbone_from_config, load_backbone

    long_enough = {"max_position_embeddings": max(514, size + 2)}
    if modality == "image":
        name = {None: "resnet50", "small": "resnet10t"}.get(backbone, str(backbone).rpartition("/")[2])
        if timm.is_model(name):
            return timm.create_model(name, num_classes=0), True
    elif backbone == "small":
        return backbone_from_config(BertConfig(**SMALL_BERT, **long_enough)), True
    elif backbone in (None, "roberta-base", "FacebookAI/roberta-base"):  # known without a look at the Hub
        return backbone_from_config(RobertaConfig(vocab_size=50_265, **long_enough)), True
    try:
        with without_vain_attempts(str(backbone)):
            return load_backbone(str(backbone), pretrained=False)[0], True
    except (OSError, ValueError):
        return _network(modality, None, size)[0], False
