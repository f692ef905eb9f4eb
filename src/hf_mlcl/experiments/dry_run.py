"""What a recipe would do: every setting with its origin, rows, steps and time, before anything is loaded or trained.

`docs/paper_index.md` says what the paper leaves open or contradicts, and why each choice was made.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any, NamedTuple

from transformers import TrainingArguments

from hf_mlcl.data.facts import SplitSizes
from hf_mlcl.data.registry import corpus_facts, list_corpora
from hf_mlcl.experiments.arguments import OF_PROTOCOL, ExperimentArguments
from hf_mlcl.experiments.inputs import training_steps
from hf_mlcl.experiments.parsing import (
    build_experiment,
    cut_for_want_of_a_threshold,
    evaluates_linearly,
    linear_config,
)
from hf_mlcl.experiments.recipe import Recipe, unique
from hf_mlcl.losses import build_loss, hyperparameters, loss_kinds, loss_names
from hf_mlcl.models.configuration import MLCLConfig
from hf_mlcl.study.cost import kept_rows, settings_cost, split_sizes
from hf_mlcl.training import ContrastiveTrainingArguments

PAPER, AUTHORS, OURS = "paper", "authors' code", "ours"
FILE, COMMAND_LINE, LAUNCHER, LIBRARY = "configuration file", "command line", "accelerate launch", "transformers"


class Origin(NamedTuple):
    """Who chose a setting, and what there is to say about it."""

    who: str
    note: str = ""


def _by(who: str, names: str, note: str = "") -> dict[str, Origin]:
    return dict.fromkeys(names.split(), Origin(who, note))


LINEAR = "linear_learning_rates linear_weight_decays linear_batch_size linear_optimizer"
ANY = {
    **_by(PAPER, "corpus size loss num_train_epochs learning_rate global_batch_size alpha"),
    **_by(AUTHORS, "beta", "the paper gives no number"),
    **_by(PAPER, "gamma_pos gamma_neg margin"),
    **_by(OURS, "positive_temperature", "not in the study; 4 in the paper of two_way"),
    **_by(OURS, "weights", "of the parts of a joined loss"),
    **_by(PAPER, "temperature", "0.1; a single 0.01 in its appendix is a slip"),
    **_by(PAPER, "optim lr_scheduler_type warmup_steps max_grad_norm"),
    **_by(AUTHORS, "drop_last_train_batch"),
    **_by(PAPER, "load_best_model_at_end metric_for_best_model"),
    **_by(OURS, "eval_strategy", "the paper does not say how often the best checkpoint is looked for"),
    **_by(PAPER, "backbone pretrained projection_dim"),
    **_by(PAPER, "projection_bias", "as printed; the authors' code has biases"),
    **_by(PAPER, "classifier_dropout", "as printed; the authors' code has 0.1"),
    **_by(PAPER, "evaluation"),
    **_by(AUTHORS, "thresholds", "0.5"),
    **_by(PAPER, f"{LINEAR} linear_heads"),
    **_by(AUTHORS, "linear_epochs"),
    **_by(PAPER, "protocol"),
    **_by(OURS, "labelled_only"),
    **_by(OURS, "draw_seed", "the authors draw again for each seed: draw_seed=seed"),
    **_by(PAPER, "split", "of the layout of SGM; other files stay as they are"),
    **_by(AUTHORS, "difficult", "the challenge ignores difficult objects"),
    **_by(AUTHORS, "halves", "scikit-learn's, seed 42"),
}
"""Settings of the study for texts and images, in the order in which a dry run shows them."""
OF_MODALITY = {
    "text": {**_by(PAPER, "max_length pooling"), **_by(AUTHORS, "clean_text"), **_by(PAPER, "weight_decay")},
    "image": {
        **_by(PAPER, "backbone", "ImageNet weights; torchvision's, as the authors' code"),
        **_by(PAPER, "image_size"),
        **_by(AUTHORS, "optim_args", "the paper: with momentum"),
        **_by(OURS, "weight_decay", "the paper states none"),
        **_by(AUTHORS, "augmented_passes"),
    },
}
CONTRADICTED = _by(PAPER, "optim", "its text, for contrastive losses; its table says AdamW")
BORROWED = _by(
    OURS,
    f"num_train_epochs learning_rate global_batch_size alpha {LINEAR}",
    "the paper states none for this corpus: that of its other texts",
)
OF_CORPUS = {
    "voc2007": CONTRADICTED,
    "nuswide": CONTRADICTED,
    "newsgroups20": BORROWED,
    "semeval2018": {**BORROWED, **_by(PAPER, "labelled_only", "its sizes are those of labelled tweets")},
}


def origins(corpus: str, modality: str) -> dict[str, Origin]:
    """The origin of every setting that the study, or this project in its place, has chosen for a corpus.

    Examples:
        >>> origins("aapd", "text")["weight_decay"].who, origins("voc2007", "image")["weight_decay"].who
        ('paper', 'ours')
    """
    known = dict(ANY)
    for part in modality.split("+"):
        known |= OF_MODALITY[part]
    known |= OF_CORPUS.get(corpus, {})
    of_study = corpus in list_corpora() and corpus_facts(corpus).study is not None
    return known if of_study else dict.fromkeys(known, Origin(OURS))


WIDTH = 118
LOSS_NUMBERS = ("alpha", "beta", "gamma", "gamma_pos", "gamma_neg", "margin", "positive_temperature")


@dataclass(frozen=True)
class Resolved:
    """A setting as it would be used."""

    value: Any
    origin: str
    note: str = ""
    tried: tuple[Any, ...] = ()  # what the study tried, where it tried several


@dataclass(frozen=True)
class DryRun:
    """What would be done; rows, steps and hours are None where the rows are not known.

    So are steps that follow from a time, and hours of data of one's own, which a study's rate says little of.
    """

    title: str
    study: dict[str, Resolved]  # what the study speaks of and matters for this loss and corpus, and what the user said
    others: dict[str, Resolved]
    rows: SplitSizes | None  # those of the official files, less what `max_train_samples` and the like leave out
    steps: int | None
    hours: float | None  # of one GPU at an assumed rate (`hf_mlcl.study.cost`)

    def facts(self) -> dict[str, Any]:
        """For programs: the rows of each split, the steps, and the value of every setting."""
        every = {name: one.value for name, one in (self.study | self.others).items()}
        return {"rows": None if self.rows is None else asdict(self.rows), "steps": self.steps, "settings": every}

    def __str__(self) -> str:
        lines = [("setting", "value", "origin", "tried, notes")]
        for name, one in self.study.items():
            tried = "tried: " + ", ".join(map(_shown, one.tried)) if one.tried else ""
            lines.append((name, _shown(one.value), one.origin, "; ".join(filter(None, (tried, one.note)))))
        widths = [max(len(line[column]) for line in lines) for column in range(3)]
        table = ["  ".join([*map(str.ljust, line[:3], widths), line[3]]).rstrip() for line in lines]
        amounts = ["rows, steps and time are not known before the data are read"]
        if self.rows is not None:
            train, validation, test = astuple(self.rows)
            amounts = [
                f"rows   {train:,} train, {validation:,} validation, {test:,} test",
                f"steps  {'as many as the minutes allow' if self.steps is None else f'{self.steps:,}'}",
            ]
        if self.hours is not None:
            assumed = "of one GPU of the class of an A100, at an assumed rate (see `hf-mlcl study cost --help`)"
            amounts.append(f"time   about {self.hours:,.2g} hours {assumed}")
        others = ["Without a say of the study, or without effect here:"]
        for origin in dict.fromkeys(one.origin for one in self.others.values()):
            named = (f"{name}={_shown(one.value)}" for name, one in self.others.items() if one.origin == origin)
            text = f"{origin}: {', '.join(named)}"
            others += textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
        return "\n".join([self.title, "", *table, "", *amounts, "", *others])


def dry_run(
    recipe: Recipe,
    settings: Mapping[str, Any] | None = None,
    *,
    from_file: Collection[str] = (),
    said_by: str = COMMAND_LINE,
    modality: str | None = None,
    rows: SplitSizes | None = None,
) -> DryRun:
    """Resolve every setting of an experiment, as `build_experiment` does, and say where it comes from.

    Of the user's settings some may come `from_file`, the others are `said_by` another. Data of your own need a
    `modality`; `rows` are those of each split, where they are known better than from the corpus's facts.

    Examples:
        >>> from hf_mlcl.experiments import study_recipe
        >>> plan = dry_run(study_recipe("aapd"), {"seed": 3, "use_cpu": True})
        >>> plan.study["num_train_epochs"]
        Resolved(value=320, origin='paper', note='', tried=(320, 640))
    """
    settings = dict(settings or {})
    experiment, training = build_experiment(recipe, settings)
    corpus = str(experiment.corpus)
    facts = corpus_facts(corpus) if corpus in list_corpora() else None
    modality = modality or (facts.modality if facts else None)
    if modality is None:
        raise ValueError(f"modality is missing: whether {corpus} has texts or images is not known before it is read.")
    study = origins(corpus, modality)
    tried = _tried(recipe.grid(training.loss, experiment.size))
    given = {name: Origin(FILE if name in from_file else said_by) for name in settings}
    stated = recipe.for_loss(training.loss, experiment.size)
    mappings: dict[str, Any] = {"loss_kwargs": training.loss_kwargs, "corpus_options": experiment.corpus_options}
    for name in (name for name in mappings if name in given):  # their parts, by their own names too
        by_recipe = stated.get(name, {})
        given |= {part: given[name] for part, value in mappings[name].items() if value != by_recipe.get(part)}
    for name in (name for name in ("bf16", "fp16") if name in given):
        given["mixed_precision"] = given[name]
    ranks = Origin(OURS, "logits of this loss rank and have no threshold")
    if training.metric_for_best_model == "mAP":
        study["metric_for_best_model"] = ranks
    if experiment.thresholds == "macro_f1":
        wanted = cut_for_want_of_a_threshold({**vars(experiment), "loss": training.loss})
        study["thresholds"] = ranks if wanted else Origin(OURS)
    resolved = {
        name: Resolved(value, *given[name])
        if name in given
        else Resolved(value, *_origin(name, value, study, recipe, settings), tried.get(name, ()))
        for name, value in _values(experiment, training, facts is not None).items()
    }
    without_effect = _without_effect(experiment, training, modality)
    shown = [name for name in ("mixed_precision", *study) if name in resolved and name not in without_effect]
    shown += [name for name in given if name in resolved and name not in shown]
    if rows is None and facts is not None:
        rows = split_sizes(corpus, experiment.size, bool(resolved["labelled_only"].value))
    plain = {name: one.value for name, one in resolved.items()}
    rows = None if rows is None else kept_rows(rows, plain)
    return DryRun(
        title=f"{corpus}, {training.loss}, {experiment.size}: nothing is loaded or trained",
        study={name: resolved[name] for name in shown},
        others={name: resolved[name] for name in sorted(resolved) if name not in shown},
        rows=rows,
        steps=None if rows is None or experiment.minutes is not None else training_steps(rows.train, training),
        hours=None if rows is None or facts is None else settings_cost(plain, modality, rows).hours,
    )


def _values(experiment: ExperimentArguments, training: ContrastiveTrainingArguments, known: bool) -> dict[str, Any]:
    """Every setting by name, mappings by their parts, and what is no argument but stands in the paper."""
    values = {**training.to_dict(), **vars(experiment)}
    values = {name: value for name, value in values.items() if "token" not in name}
    kwargs = dict(values.pop("loss_kwargs") or {})
    options = dict(values.pop("corpus_options") or {})
    for part in loss_names(training.loss):
        names = hyperparameters(part)
        loss = build_loss(part, **{name: kwargs[name] for name in names if name in kwargs})
        values |= {name: getattr(loss, name) for name in names if name in LOSS_NUMBERS}
    if len(parts := loss_names(training.loss)) > 1:
        values["weights"] = kwargs.get("weights") or [1.0] * len(parts)
    if known:
        values |= {**corpus_facts(str(experiment.corpus)).default_options(experiment.size), **options}
    values["backbone"] = experiment.backbone
    values["mixed_precision"] = training.mixed_precision
    values["projection_dim"] = MLCLConfig.projection_dim
    values["linear_heads"] = linear_config(experiment, training).heads
    return values


def _origin(name: str, value: Any, study: Mapping[str, Origin], recipe: Recipe, settings: Mapping[str, Any]) -> Origin:
    if name == "mixed_precision":
        if "ACCELERATE_MIXED_PRECISION" in os.environ and value == os.environ["ACCELERATE_MIXED_PRECISION"]:
            return Origin(LAUNCHER)
        note = {"bf16": "the paper: 16 bits, fp16 in the authors' code", "no": "for want of a GPU; the paper: 16 bits"}
        return Origin(PAPER) if value == "fp16" else Origin(OURS, note.get(str(value), ""))
    if name == "per_device_train_batch_size" and recipe.for_loss(recipe.loss).get("global_batch_size"):
        return Origin(study["global_batch_size"].who, "a device's share of global_batch_size")
    if name == "global_batch_size" and "per_device_train_batch_size" in settings:
        return Origin(study[name].who, "not used: per_device_train_batch_size goes before it")
    if name in ("learning_rate", "head_learning_rate") and settings.get("lora_rank") is not None:
        return Origin(OURS, "of an adapter; the heads keep the backbone's" if name == "learning_rate" else "")
    if name in study:
        return study[name]
    theirs = TrainingArguments.__dataclass_fields__.get(name)
    ours = ContrastiveTrainingArguments.__dataclass_fields__.get(name)
    in_recipe = any(name in part for part in (recipe.settings, recipe.contrastive, recipe.logit))
    is_theirs = theirs is not None and ours is not None and ours.default == theirs.default and not in_recipe
    return Origin(LIBRARY if is_theirs and name not in ("output_dir", "save_strategy", "save_total_limit") else OURS)


def _tried(grid: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Any, ...]]:
    """All values of each setting that the study tried several of."""
    points = [{**point, **point.get("loss_kwargs", {})} for point in grid]
    values = {name: tuple(unique(point[name] for point in points)) for name in points[0] if name != "loss_kwargs"}
    return {name: several for name, several in values.items() if len(several) > 1}


def _without_effect(experiment: ExperimentArguments, training: ContrastiveTrainingArguments, modality: str) -> set[str]:
    """Settings of the study that mean nothing for this kind of data and loss."""
    of_others = {"text": {"image_size", "augmented_passes"}, "image": {"max_length", "pooling", "clean_text"}}
    nothing = of_others.get(modality, set())
    kinds = loss_kinds(training.loss)
    nothing |= set(OF_PROTOCOL["study" if experiment.protocol == "best" else "best"])
    if experiment.protocol == "best" or not evaluates_linearly(experiment.evaluation, training.loss):
        nothing |= {name for name in ANY if name.startswith("linear_")} | {"augmented_passes"}
    if "contrastive" not in kinds:
        nothing |= {"temperature", "projection_dim", "projection_bias"}
    if "logit" not in kinds:
        nothing |= {"classifier_dropout", "eval_strategy", "metric_for_best_model"}
    return nothing


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return str(value)
