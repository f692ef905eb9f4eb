"""From a recipe, a file and the command line to the arguments of an experiment, in this order; and their checks."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib
import json
import logging
import os
import runpy
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import torch
from transformers import HfArgumentParser, TrainingArguments
from transformers.hf_argparser import string_to_bool
from transformers.trainer_utils import HubStrategy
from transformers.utils import is_torch_xla_available

from hf_mlcl.data.own_files import folder_name
from hf_mlcl.data.registry import corpus_facts, list_corpora
from hf_mlcl.errors import unknown_name
from hf_mlcl.evaluation.config import LinearEvaluationConfig
from hf_mlcl.experiments.arguments import OF_PROTOCOL, SMALL_BACKBONE, ExperimentArguments
from hf_mlcl.experiments.inputs import OWN_DATA, corpus_options
from hf_mlcl.experiments.recipe import Recipe
from hf_mlcl.experiments.settings_file import accepts, hint_name, known_arguments, read_settings
from hf_mlcl.losses import loss_kinds, on_logits_only, ranks_only
from hf_mlcl.training import ContrastiveTrainingArguments

logger = logging.getLogger(__name__)

ADAPTER_RATE = 10
"""How many times larger the learning rate of an adapter is than that of a whole backbone."""
MAPPINGS = {"loss_kwargs": '{"alpha": 1.0}', "corpus_options": '{"labelled_only": true}'}
"""Settings that are mappings, with an example."""
OF_KIND = {
    "text": ("max_length", "max_train_length", "clean_text", "freeze_embeddings", "prompt"),
    "image": ("image_size", "augmentation", "augmented_passes", "freeze_batch_norm"),
}
"""Settings that mean something for texts or for images alone."""


def parse_experiment(
    recipe: Recipe, argv: Sequence[str] | None = None, description: str | None = None
) -> tuple[ExperimentArguments, ContrastiveTrainingArguments]:
    """The recipe's settings, changed by ``--config FILE`` (YAML or JSON), changed by the command line.

    The loss decides which of the recipe's settings hold: ``--loss zlpr`` brings the study's epochs, batch, schedule and
    choice of checkpoint for losses on logits. Wrong arguments end the program with code 2.

    Args:
        recipe: The defaults.
        argv: The command line; that of the program if not given.
        description: For ``--help``.

    Examples:
        >>> recipe = Recipe("toy_text", contrastive={"num_train_epochs": 10}, logit={"num_train_epochs": 5})
        >>> argv = ["--loss", "zlpr", "--max_train_samples", "100", "--use_cpu"]
        >>> experiment, training = parse_experiment(recipe, argv)
        >>> experiment.max_train_samples, training.num_train_epochs, training.lr_scheduler_type.value
        (100, 5, 'linear')
    """
    try:
        from_file, given = _parsed(argv, description)
        if given.pop("dry_run", False):
            _end_with_dry_run(recipe, from_file, given)
        return build_experiment(recipe, {**from_file, **given})
    except ValueError as error:
        parser = _parser(description)
        parser.exit(2, f"{parser.format_usage()}{parser.prog}: error: {error}\n")
        raise  # never reached: the parser has ended the program


def parse_settings(argv: Sequence[str]) -> dict[str, Any]:
    """What a command line says, and the file that it may name with ``--config``; nothing else.

    Examples:
        >>> parse_settings(["--learning_rate", "2e-5", "--size", "small"])
        {'learning_rate': 2e-05, 'size': 'small'}
    """
    from_file, given = _parsed(argv)
    if "dry_run" in given:
        raise ValueError("--dry_run is for recipes; `hf-mlcl train` has --check.")
    return {**from_file, **given}


def _parsed(argv: Sequence[str] | None, description: str | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the file says that a command line names, and what it says itself."""
    known, unknown = _parser(description).parse_known_args(argv)
    if unknown:
        wrong = next((word.partition("=")[0] for word in unknown if word.startswith("-")), unknown[0])
        raise ValueError(unknown_name("argument", wrong, (f"--{name}" for name in _arguments()), most=3))
    given = vars(known)
    return read_settings(given.pop("config")) if "config" in given else {}, given


def _end_with_dry_run(recipe: Recipe, from_file: Mapping[str, Any], given: Mapping[str, Any]) -> NoReturn:
    """Print what would be done, by one process of many, and end the program."""
    from accelerate import PartialState

    from hf_mlcl.experiments.dry_run import dry_run

    plan = dry_run(recipe, {**from_file, **given}, from_file=from_file.keys() - given.keys())
    if PartialState().is_main_process:
        print(plan)
    PartialState().destroy_process_group()  # a rank that leaves without it may crash on its way out
    raise SystemExit(0)


def build_experiment(
    recipe: Recipe, settings: Mapping[str, Any]
) -> tuple[ExperimentArguments, ContrastiveTrainingArguments]:
    """The recipe's settings, changed by a dictionary.

    Args:
        recipe: The defaults.
        settings: Fields of `ExperimentArguments` and `ContrastiveTrainingArguments`.

    Examples:
        >>> experiment, training = build_experiment(Recipe("toy_text"), {"loss": "msc", "seed": 3, "use_cpu": True})
        >>> training.output_dir, training.seed
        ('outputs/toy_text-msc', 3)
    """
    settings = {name: _converted(name, value) for name, value in settings.items()}
    for name in ("do_train", "do_eval", "do_predict"):
        if settings.get(name) is False:
            raise ValueError(f"{name}=False is not possible: an experiment trains and evaluates. Leave it out.")
    import_plugins(settings.get("plugins") or ())
    loss, size = str(settings.get("loss", recipe.loss)), str(settings.get("size", "full"))
    stated = recipe.for_loss(loss, size)
    if (corpus := settings.get("corpus", recipe.corpus)) in list_corpora():
        check_kind(settings, corpus_facts(corpus).modality, stated.get("single_label", False))
    chosen = {"save_total_limit": 1, "corpus": recipe.corpus, **stated, "loss": loss, "size": size, **settings}
    if settings.get("label_aware_batches") and "train_sampling_strategy" not in settings:
        chosen["train_sampling_strategy"] = "random"  # both order the rows, and the user's wish counts
    # Hyperparameters of the study hold until others are named: --loss_kwargs '{"beta": 2}' leaves alpha as it is.
    for name in MAPPINGS:
        chosen[name] = {**stated.get(name, {}), **_as_dict(name, settings.get(name))}
    folder = f"outputs/{folder_name(str(chosen['corpus']))}{'-small' if size == 'small' else ''}"
    if "loss" in settings or recipe.loss_in_folder:
        folder += f"-{loss}"
    chosen.setdefault("output_dir", folder)
    _fit_to_protocol(chosen, settings)
    if chosen.get("lora_rank") is not None and "learning_rate" not in settings:  # the heads keep that of the backbone
        rate = chosen.get("learning_rate", TrainingArguments.learning_rate)
        chosen["learning_rate"] = ADAPTER_RATE * rate
        chosen.setdefault("head_learning_rate", rate)
    _choose_precision(chosen, settings)
    of_experiment = {field.name for field in dataclasses.fields(ExperimentArguments)} & chosen.keys()
    experiment = ExperimentArguments(**{name: chosen.pop(name) for name in of_experiment})
    training = ContrastiveTrainingArguments(**chosen)
    if experiment.global_batch_size is not None and "per_device_train_batch_size" not in settings:
        # Rows of one step, which is what a contrastive loss sees: accumulated batches never meet.
        devices = training.world_size * max(1, training.n_gpu)
        if experiment.global_batch_size % devices:
            raise ValueError(
                f"global_batch_size {experiment.global_batch_size} cannot be parted among {devices} devices. Give "
                f"per_device_train_batch_size, or a global_batch_size that is a multiple of {devices}."
            )
        training.per_device_train_batch_size = experiment.global_batch_size // devices
    check_experiment(experiment, training)
    return experiment, training


def import_plugins(plugins: Iterable[str]) -> None:
    """Import modules, or Python files whose names end in ``.py``, which register losses of your own."""
    for plugin in plugins:
        try:
            if plugin.endswith(".py"):
                runpy.run_path(plugin, run_name=Path(plugin).stem)
            else:
                importlib.import_module(plugin)
        except (ImportError, OSError) as error:
            raise ValueError(f"plugins names {plugin!r}, which cannot be imported: {error}") from error


class _Parser(HfArgumentParser):  # type: ignore[misc]
    """Wrong arguments raise, since the recipes and the program each have their own way to end."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def _parser(description: str | None = None) -> Any:
    """HF's parser for both kinds of arguments, telling only what was given."""
    parser = _Parser(
        (ExperimentArguments, ContrastiveTrainingArguments),
        usage="%(prog)s [--argument VALUE ...]",  # all of them would fill a screen before the help begins
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", help="A YAML or JSON file with any of these arguments.")
    help_of_dry_run = "Print every setting with its origin, rows, steps and time, and end."
    parser.add_argument("--dry_run", "--dry-run", action="store_true", help=help_of_dry_run)
    for action in parser._actions:  # argparse has no other way to leave out what was not given
        action.default = argparse.SUPPRESS
        if action.dest == "bf16":
            action.type = _auto_or_bool
    return parser


def _auto_or_bool(text: str | bool) -> str | bool:
    return text if text == "auto" else string_to_bool(text)


@functools.cache
def _arguments() -> dict[str, tuple[Any, Any]]:
    """What turns the text of each argument into its value, and its type."""
    types = known_arguments()
    return {action.dest: (action.type, types[action.dest]) for action in _parser()._actions if action.dest in types}


def _converted(name: str, value: Any) -> Any:
    """A setting with the type of its field; an error for a name that is none."""
    if name not in _arguments():
        raise ValueError(unknown_name("setting", name, _arguments(), most=3))
    convert, hint = _arguments()[name]

    def from_text(one: Any) -> Any:
        if not isinstance(one, str) or not callable(convert):
            return one
        try:
            return convert(one)
        except (ValueError, TypeError, argparse.ArgumentTypeError) as error:
            raise ValueError(f"{name} cannot be {one!r}: {error}") from error

    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    value = list(map(from_text, value)) if isinstance(value, list | tuple) else from_text(value)
    if not accepts(hint, value):
        raise ValueError(f"{name} must be {hint_name(hint)}; got {value!r}.")
    return value


def _as_dict(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise ValueError(f"{name} must be JSON such as '{MAPPINGS[name]}'; got {value!r}.") from error
    if not isinstance(value or {}, dict):
        raise ValueError(f"{name} must be a mapping such as '{MAPPINGS[name]}'; got {value!r}.")
    return dict(value or {})


def _fit_to_protocol(chosen: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Leave out what a recipe says for the other protocol; what the user says of it is refused, here or later."""
    is_best = chosen.get("protocol") == "best"
    for name in OF_PROTOCOL["study" if is_best else "best"]:
        if given.get(name) is None:
            chosen.pop(name, None)
        elif is_best:
            raise ValueError(f"{name} means nothing with protocol='best'. Leave it out, or choose 'study'.")
    if is_best:
        chosen.setdefault("thresholds", "macro_f1")
        chosen["load_best_model_at_end"] = False  # the stages choose among their own looks
        if given.get("eval_strategy") is None:
            chosen.pop("eval_strategy", None)
    elif cut_for_want_of_a_threshold(chosen):
        chosen.setdefault("thresholds", "macro_f1")
    if given.get("minutes") is not None and given.get("num_train_epochs") is not None:
        raise ValueError("minutes and num_train_epochs both say how long to train. Give one of them.")


def _choose_precision(chosen: dict[str, Any], given: Mapping[str, Any]) -> None:
    """The study's 16-bit mixed precision where a GPU is used and nothing else was said, here or to the launcher.

    On a CPU, only if ``auto`` says so and it is faster, or somebody insists.
    """
    launched_with, said = os.environ.get("ACCELERATE_MIXED_PRECISION"), given.get("bf16")
    silent = said is None and launched_with is not None  # accelerate launch says "no" of its own accord, too
    if said in (None, "auto") and ("fp16" in given or silent or launched_with not in (None, "no")):
        chosen.pop("bf16", None)
    on_cpu = bool(chosen.get("use_cpu")) or not (torch.accelerator.is_available() or is_torch_xla_available())
    of_gpu = "bf16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "fp16"
    if chosen.get("bf16") == "auto":
        del chosen["bf16"]
        if on_cpu:
            chosen["bf16"] = cpu_knows_bfloat16()
        elif torch.cuda.is_available():
            chosen[of_gpu] = True
    if chosen.get("bf16") and on_cpu:
        chosen.setdefault("use_cpu", True)  # HF refuses bf16 unless it is told what it can see
    if {"bf16", "fp16"} & chosen.keys() or chosen.get("use_cpu") or not torch.cuda.is_available():
        return
    if launched_with is None:
        chosen[of_gpu] = True
    elif launched_with == "no":  # the default of accelerate launch, which HF's arguments follow
        logger.warning(
            "Training in 32 bits, as accelerate launch says (mixed_precision=no). The study trained in 16: "
            "accelerate launch --mixed_precision bf16, or --bf16 after the program's name."
        )


def cpu_knows_bfloat16(unknown: bool = False) -> bool:
    """Whether mixed precision is faster on this CPU: by half in training and twice in encoding, of texts.

    `unknown` is the answer for other CPUs than x86, and for versions of torch that do not tell.
    """
    facts: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    known = [facts[name] for name in ("avx512_bf16", "amx_bf16") if name in facts]
    return any(known) if known else unknown


def check_experiment(experiment: ExperimentArguments, training: ContrastiveTrainingArguments) -> None:
    """Raise a ValueError for what cannot be trained or evaluated; it names the setting and what to do."""
    corpus, loss, options = experiment.corpus, training.loss, experiment.corpus_options
    rank, weights, small = experiment.lora_rank, experiment.backbone_weights, experiment.backbone == SMALL_BACKBONE
    checkpoints = (HubStrategy.CHECKPOINT, HubStrategy.ALL_CHECKPOINTS)
    wrong = {
        f"num_train_epochs must be above 0, or max_steps must; got {training.num_train_epochs:g} and "
        f"{training.max_steps}: nothing would be trained.": training.max_steps <= 0 and training.num_train_epochs <= 0,
        f"hub_strategy={str(training.hub_strategy.value)!r} is not possible: an experiment pushes its finished "
        "encoder and classifier, and no checkpoints. Leave it out, or use ContrastiveMultiLabelTrainer, which pushes "
        "them.": training.push_to_hub and training.hub_strategy in checkpoints,
        f"data_dir={experiment.data_dir!r} is not a folder. Give the folder with the files of {corpus}.": (
            corpus in list_corpora()
            and experiment.data_dir is not None
            and not Path(experiment.data_dir).expanduser().is_dir()
        ),
        "backbone_weights are for a timm architecture; --backbone small learns from nothing. Leave one of them out.": (
            small and weights is not None
        ),
        "lora_rank needs PEFT: pip install 'hf-mlcl[peft]'.": rank is not None and find_spec("peft") is None,
        "lora_rank trains an adapter of a pre-trained backbone, which is loaded again by its name: give --backbone a "
        "model of the Hub, a folder or a timm architecture, not 'small', and neither --pretrained False nor "
        "--backbone_weights.": rank is not None and (small or not experiment.pretrained or weights is not None),
        f"evaluation='direct' needs a loss on logits; {loss!r} trains no classifier. Join one ({loss}+zlpr), or leave "
        "evaluation at 'auto'.": experiment.evaluation == "direct" and "logit" not in loss_kinds(loss),
    }
    for message, holds in wrong.items():
        if holds:
            raise ValueError(message)
    if corpus in list_corpora():
        for name in OWN_DATA:
            if (value := getattr(experiment, name)) is not None:
                raise ValueError(f"{name}={value!r} is for data of your own, but {corpus!r} is a corpus. Leave it out.")
        corpus_options(str(corpus), experiment.size, options, training.seed)
    else:
        meant_for_them = {"corpus_options": options, "size": experiment.size, "data_dir": experiment.data_dir}
        for name, value in meant_for_them.items():
            if value and value != "full":
                known = f"the corpora of `hf-mlcl corpora`, and {corpus!r} is none of them"
                raise ValueError(f"{name}={value!r} is for {known}. Leave it out.")
    linear_config(experiment, training)


def check_kind(settings: Mapping[str, Any], modality: str, single_label: bool = False) -> None:
    """Raise a ValueError for a setting that would do nothing with texts, with images, or with one label per row.

    Examples:
        >>> check_kind({"image_size": 64}, "text")
        Traceback (most recent call last):
        ...
        ValueError: image_size=64 is for images, but the data are texts. Leave it out.
    """
    for kind, names in OF_KIND.items():
        for name in names if kind not in modality else ():
            if settings.get(name) is not None:
                raise ValueError(
                    f"{name}={settings[name]!r} is for {kind}s, but the data are {modality}s. Leave it out."
                )
    if settings.get("single_label", single_label) and settings.get("thresholds") not in (None, "half"):
        raise ValueError(
            f"thresholds={settings['thresholds']!r} is for rows with any number of labels, but every row has one: the "
            "most probable label counts. Leave it out, or say single_label=False (--single_label False)."
        )


def check_push(repo_id: str, token: str | bool | None = None) -> None:
    """Refuse a push that cannot succeed: no name of a repository, no way to the Hub, nobody logged in.

    Examples:
        >>> check_push("me/reg+zlpr")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        ValueError: 'me/reg+zlpr' cannot name a repository of the Hub. Expected owner/name of letters, digits, - _ . ...
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    from hf_mlcl.data.download import hub_is_reachable

    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(
            f"{repo_id!r} cannot name a repository of the Hub. Expected owner/name of letters, digits, - _ . "
            f"(of a training: --hub_model_id)."
        ) from error
    if not hub_is_reachable():
        raise ValueError("The Hub cannot be reached. `hf-mlcl doctor` says what else is missing.")
    try:
        HfApi(token=token).whoami()
    except Exception as error:  # no token, a wrong one, or a Hub that fails
        reason = " ".join(str(error).split())
        raise ValueError(f"The Hub does not know who pushes; log in with `hf auth login`. It says: {reason}") from error


def evaluates_linearly(evaluation: str, loss: str) -> bool:
    """Whether the frozen features are evaluated, and not the trained logits."""
    return evaluation == "linear" or (evaluation == "auto" and not on_logits_only(loss))


def cut_for_want_of_a_threshold(settings: Mapping[str, Any]) -> bool:
    """Whether thresholds are tuned because trained logits decide that rank without one of their own."""
    loss = settings["loss"]
    decides = settings.get("protocol") != "best" and not evaluates_linearly(settings.get("evaluation", "auto"), loss)
    return decides and ranks_only(loss) and not settings.get("single_label")


def linear_config(experiment: ExperimentArguments, training: ContrastiveTrainingArguments) -> LinearEvaluationConfig:
    """How an experiment evaluates: by the study's linear evaluation, by the trained logits, or as serves a user best.

    Examples:
        >>> training = ContrastiveTrainingArguments("outputs", report_to="none", use_cpu=True)
        >>> linear_config(ExperimentArguments(linear_optimizer="sgd"), training).optimizer
        'sgd'
    """
    linear = evaluates_linearly(experiment.evaluation, training.loss)
    settings: dict[str, Any] = {
        name.removeprefix("linear_"): value for name, value in vars(experiment).items() if name.startswith("linear_")
    }
    settings |= {"thresholds": experiment.thresholds, "single_label": experiment.single_label, "seed": training.seed}
    settings["protocol"] = "best" if experiment.protocol == "best" else "study" if linear else "direct"
    try:
        return LinearEvaluationConfig(**settings)
    except (ValueError, TypeError) as error:
        raise ValueError(str(error).replace("`", "linear_", 1).replace("`", "", 1)) from error
