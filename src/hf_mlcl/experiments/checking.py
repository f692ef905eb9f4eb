"""Settings that would fail, or mean nothing, only after hours of training: they are refused before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers.trainer_utils import HubStrategy

from hf_mlcl.data.registry import list_corpora
from hf_mlcl.evaluation.config import LinearEvaluationConfig
from hf_mlcl.experiments.arguments import ExperimentArguments
from hf_mlcl.experiments.inputs import corpus_options
from hf_mlcl.losses import loss_kinds, on_logits_only
from hf_mlcl.training import ContrastiveTrainingArguments


def check_experiment(experiment: ExperimentArguments, training: ContrastiveTrainingArguments) -> None:
    """Raise a ValueError for what cannot be trained or evaluated; it names the setting and what to do."""
    corpus, loss, options = experiment.corpus, training.loss, experiment.corpus_options
    checkpoints = (HubStrategy.CHECKPOINT, HubStrategy.ALL_CHECKPOINTS)
    wrong = {
        f"num_train_epochs must be above 0, or max_steps must; got {training.num_train_epochs:g} and "
        f"{training.max_steps}: nothing would be trained.": training.max_steps <= 0 and training.num_train_epochs <= 0,
        f"hub_strategy={str(training.hub_strategy.value)!r} is not possible: an experiment pushes its finished "
        "encoder and classifier, and no checkpoints. Leave it out, or use ContrastiveMultiLabelTrainer, which pushes "
        "them.": training.push_to_hub and training.hub_strategy in checkpoints,
        f"data_dir={experiment.data_dir!r} is not a folder. Give the folder with the files of {corpus}.": (
            experiment.data_dir is not None and not Path(experiment.data_dir).expanduser().is_dir()
        ),
        f"corpus_options={options} are for the corpora of `hf-mlcl corpora`, and {corpus!r} is none of them. Leave "
        "them out.": options and corpus not in list_corpora(),
        f"test_file is for data of one's own; the corpus {corpus!r} has its test split.": (
            corpus in list_corpora() and experiment.test_file is not None
        ),
        f"evaluation='direct' needs a loss on logits; {loss!r} trains no classifier. Join one ({loss}+zlpr), or leave "
        "evaluation at 'auto'.": experiment.evaluation == "direct" and "logit" not in loss_kinds(loss),
    }
    for message, holds in wrong.items():
        if holds:
            raise ValueError(message)
    if corpus in list_corpora():
        corpus_options(str(corpus), experiment.size, options, training.seed)
    linear_config(experiment, training)


def check_push(repo_id: str, token: str | bool | None = None) -> None:
    """Refuse a push that cannot succeed: no name of a repository, no way to the Hub, nobody logged in.

    Args:
        repo_id: Where to: ``"name"`` or ``"owner/name"``.
        token: Of the user; the one of ``hf auth login`` if not given.

    Raises:
        ValueError: Says which of them it is and what to do.

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


def evaluates_linearly(experiment: ExperimentArguments, loss: str) -> bool:
    """Whether the frozen features are evaluated, and not the trained logits."""
    return experiment.evaluation == "linear" or (experiment.evaluation == "auto" and not on_logits_only(loss))


def linear_config(experiment: ExperimentArguments, training: ContrastiveTrainingArguments) -> LinearEvaluationConfig:
    """How an experiment evaluates: by the study's linear evaluation, by the trained logits, or as serves a user best.

    Examples:
        >>> training = ContrastiveTrainingArguments("outputs", report_to="none", use_cpu=True)
        >>> linear_config(ExperimentArguments(linear_optimizer="sgd"), training).optimizer
        'sgd'
    """
    linear = evaluates_linearly(experiment, training.loss)
    settings: dict[str, Any] = {
        name.removeprefix("linear_"): value for name, value in vars(experiment).items() if name.startswith("linear_")
    }
    settings |= {"thresholds": experiment.thresholds, "single_label": experiment.single_label, "seed": training.seed}
    settings["protocol"] = "best" if experiment.protocol == "best" else "study" if linear else "direct"
    try:
        return LinearEvaluationConfig(**settings)
    except (ValueError, TypeError) as error:
        raise ValueError(str(error).replace("`", "linear_", 1).replace("`", "", 1)) from error
