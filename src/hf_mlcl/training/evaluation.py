"""From rows to a classifier, in three steps: features, heads with their scores and decisions, a model.

The one way for `ContrastiveMultiLabelTrainer.linear_evaluate`, for recipes, `hf-mlcl train` and studies.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from hf_mlcl.evaluation.config import LinearEvaluationConfig
from hf_mlcl.evaluation.linear import LinearEvaluationResult, linear_evaluate, score_heads
from hf_mlcl.models import MLCLForImageClassification, MLCLForSequenceClassification, MLCLModel
from hf_mlcl.training.batches import NEEDS_LABELS

if TYPE_CHECKING:
    from hf_mlcl.training.trainer import ContrastiveMultiLabelTrainer

Array = npt.NDArray[np.float32]
SplitFeatures = dict[str, tuple[Any, Array]]
"""Of each split its features and multi-hot labels; of ``train`` the features of every pass."""


def split_features(
    trainer: ContrastiveMultiLabelTrainer,
    splits: Mapping[str, Any],
    cache_dir: str | os.PathLike[str] | None = None,
    augmented_passes: int = 0,
) -> SplitFeatures:
    """Features and labels of each split that is not None by the weights of the moment, computed once, on all ranks.

    With `augmented_passes`, ``train`` is encoded so many times with augmented rows in place of once with plain ones. A
    `cache_dir` keeps features for the next call with the same weights and rows.
    """
    if augmented_passes < 0:
        raise ValueError(f"augmented_passes must be 0 or the number of passes, but is {augmented_passes}.")
    features: SplitFeatures = {}
    for name, rows in splits.items():
        if rows is None:
            continue
        numbers: Any = range(1, augmented_passes + 1) if name == "train" and augmented_passes else [None]
        passes = [trainer._cached_features(rows, cache_dir, number) for number in numbers]
        if len(passes[0][1]) == 0:
            raise ValueError(f"{name} has no labels. {NEEDS_LABELS}")
        if len(passes) > 1 and np.array_equal(passes[0][0], passes[1][0]):
            warnings.warn(
                f"augmented_passes={augmented_passes}, but two passes have the same features: the data_collator does "
                "not augment. Give the trainer one that does, and the plain one as eval_data_collator.",
                stacklevel=3,
            )
        found = [each for each, _ in passes]
        features[name] = (found if name == "train" else found[0], passes[0][1])
    return features


def evaluate_features(
    trainer: ContrastiveMultiLabelTrainer,
    features: SplitFeatures,
    config: LinearEvaluationConfig,
    priors: Mapping[str, Tensor] | None = None,
    trained_on_these: bool = True,
) -> LinearEvaluationResult:
    """Heads on features, their scores, and the thresholds that they decide by; the same on every rank.

    Test may be left out, and train with ``protocol="direct"``, which scores the trainer's own classifier. `priors` are
    where heads of ``protocol="best"`` may shrink to; `trained_on_these` tells whether the encoder has learned from the
    training rows, so that others must judge its heads.
    """
    device, validation = trainer.args.device, features["validation"]
    test: tuple[Any, Any] = features.get("test", (None, None))
    if config.protocol == "direct":
        own = trainer.model.classifier
        if own is None:
            raise ValueError("protocol='direct' needs a classifier that the loss has trained: a loss on logits.")
        result = score_heads(own.weight.detach()[None].float(), own.bias.detach()[None].float(), *validation, config)
        return result if "test" not in features else result.with_test(*test, device=device)
    return linear_evaluate(
        *features["train"],
        *validation,
        *test,
        config=config,
        device=device,
        progress=not trainer.args.disable_tqdm and trainer.is_world_process_zero(),
        priors=priors,
        trained_on_these=trained_on_these,
    )


def make_classifier(model: MLCLModel, result: LinearEvaluationResult) -> Any:
    """A classifier that decides as its scores were computed, from the encoder whose features were evaluated."""
    images = model.main_input_name == "pixel_values"
    kind: Any = MLCLForImageClassification if images else MLCLForSequenceClassification
    classifier = kind.from_encoder(model, result.weight, result.bias)
    if result.config.single_label and result.config.protocol == "direct":
        classifier.config.problem_type = "single_label_classification"  # a softmax, as it was trained
    elif result.config.single_label:
        classifier.config.single_label = True
    elif result.tuned is not None:
        classifier.calibrate(result.tuned.rule)
    return classifier
