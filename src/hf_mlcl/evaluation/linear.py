"""The study's linear evaluation, all of it at once.

For each (learning rate, weight decay) of a grid, a few linear heads are trained on frozen features with binary
cross-entropy; a grid point predicts the mean of its heads' sigmoids, and each label takes the grid point that has the
best validation F1 for it. Every head of every grid point sees the same batches, so all of them are one matrix W whose
rows are grid points x heads x labels, and a step is two matrix products around a closed-form gradient:

    P = sigmoid(X W^T + b)        dW = (P - Y)^T X / (rows labels)        db = sum of (P - Y) / (rows labels)

The optimiser is torch's own, over views of W (`BatchedOptimizer`). The heads are independent by initialisation; that
they share the order of batches is what makes them one product, and it takes away nothing that the mean of heads is for:
on real features the F1 is that of separately trained heads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm.auto import tqdm

from hf_mlcl.evaluation.best import BestHeads, fit_best_heads
from hf_mlcl.evaluation.config import LinearEvaluationConfig
from hf_mlcl.evaluation.heads import GridHeads, GridScores, predict, score
from hf_mlcl.evaluation.optimizer import BatchedOptimizer
from hf_mlcl.evaluation.thresholds import ThresholdChoice, choose_thresholds, tune_thresholds
from hf_mlcl.metrics import DecisionRule, decision_metrics, rule_metrics
from hf_mlcl.metrics._arrays import ArrayLike, as_features, as_multi_hot, as_tensor

LOWEST_LOGIT = -25.0
"""Where the gradient's sigmoid ends. At a learning rate of 1 logits fall below -100; their probabilities, and the
squares that the optimiser keeps, would be denormal numbers, with which a CPU multiplies a hundred times slower. The
gradient so cut off is below 1e-15."""

LOSS_EVERY = 16
"""Steps between two looks at the training loss, which costs more than the gradient that the step needs."""

CURVE_EVERY = 4
"""Epochs between two points of the learning curves; the last epoch is always one."""


@dataclass(frozen=True)
class LabelChoice:
    """The setting that a label takes: the study's grid point with the best validation F1 for it, or the one for all."""

    learning_rate: float | None
    weight_decay: float
    validation_f1: float


@dataclass(frozen=True)
class LinearEvaluationResult:
    """What a linear evaluation found.

    Attributes:
        metrics: ``validation_...`` and, where test features were given, ``test_...`` metrics.
        choices: One `LabelChoice` per label.
        curves: Learning curves: ``epoch`` (points,), and for each point and grid point (points, grid points)
            ``train_loss`` (on some batches of that epoch), ``validation_loss``, ``validation_macro_f1`` and
            ``validation_micro_f1``. Empty for ``protocol="best"``, which has no epochs.
        weight: The final classifier's weights (heads, labels, features).
        bias: And its biases (heads, labels).
        validation_labels: Boolean (rows, labels): what thresholds and temperature are fitted to,
        validation_probabilities: together with what the final classifier says of the same rows.
        config: The settings.
        test_labels: The same of the test split, where it was given; likewise `test_probabilities`.
        classifier: A model that predicts the same from texts or images, where a trainer made the evaluation.
        best: How the heads of ``protocol="best"`` were chosen.
        tuned: The thresholds that the classifier decides by, where they were tuned.
    """

    metrics: dict[str, float]
    choices: list[LabelChoice]
    curves: dict[str, npt.NDArray[np.float64]]
    weight: Tensor
    bias: Tensor
    validation_labels: npt.NDArray[np.bool_] = field(repr=False)
    validation_probabilities: npt.NDArray[np.float32] = field(repr=False)
    config: LinearEvaluationConfig = field(repr=False)
    test_labels: npt.NDArray[np.bool_] | None = field(default=None, repr=False)
    test_probabilities: npt.NDArray[np.float32] | None = field(default=None, repr=False)
    classifier: Any = field(default=None, repr=False)
    best: BestHeads | None = field(default=None, repr=False)
    tuned: ThresholdChoice | None = field(default=None, repr=False)

    def predict_proba(self, features: ArrayLike, device: torch.device | str = "cpu") -> npt.NDArray[np.float32]:
        """Probabilities (rows, labels): the mean of the heads' sigmoids."""
        x = as_features(features, "features", size=self.weight.shape[-1])
        return _probabilities(self.weight.to(device), self.bias.to(device), x, self.config)

    def with_test(
        self, features: ArrayLike, labels: ArrayLike, device: torch.device | str = "cpu"
    ) -> LinearEvaluationResult:
        """The same with the scores of test rows: ``test_...``, and ``tuned_test_...`` where thresholds were tuned."""
        x, y = _split("test", features, labels, self.weight.shape[-1], self.weight.shape[1])
        p = self.predict_proba(x, device)
        metrics = self.metrics | _scores("test", y.numpy(), p, self.config)
        if self.tuned is not None:
            tuned = decision_metrics(y, self.tuned.rule.decide(p))
            metrics |= {f"tuned_test_{name}": float(value) for name, value in tuned.items()}
        return replace(self, metrics=metrics, test_labels=y.numpy(), test_probabilities=p)


def linear_evaluate(
    train_features: ArrayLike | Sequence[ArrayLike],
    train_labels: ArrayLike,
    validation_features: ArrayLike,
    validation_labels: ArrayLike,
    test_features: ArrayLike | None = None,
    test_labels: ArrayLike | None = None,
    config: LinearEvaluationConfig | None = None,
    device: torch.device | str | None = None,
    progress: bool = True,
    *,
    priors: Mapping[str, Tensor] | None = None,
    trained_on_these: bool = True,
) -> LinearEvaluationResult:
    """Train linear heads on frozen features and choose the best: for each label (the study), or for all together.

    Args:
        train_features: Shape (rows, size); or several augmented passes over the same rows, (passes, rows, size), of
            which each epoch takes the next.
        train_labels: Multi-hot (rows, labels).
        validation_features: Features on which each label chooses, with `validation_labels`.
        validation_labels: Their labels.
        test_features: Features of which metrics are reported, with `test_labels`; may be left out.
        test_labels: Their labels.
        config: The grid and how to train; the study's for AAPD and BGC if not given.
        device: Where to train; the first GPU if there is one, by default.
        progress: Whether to show a bar.
        priors: With ``protocol="best"``: where heads may shrink to; see `fit_best_heads`.
        trained_on_these: With ``protocol="best"``: whether the encoder has seen the training rows, so that validation
            rows choose the strength; of an encoder that has not, cross-validation on the training rows does.

    Returns:
        Metrics, choices, learning curves and the classifier. The same seed gives the same numbers on the same machine.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(300, 8)).astype("float32")
        >>> y = x[:, :2] > 0.5
        >>> result = linear_evaluate(x[:200], y[:200], x[200:], y[200:], progress=False)
        >>> result.metrics["validation_macro_f1"] > 0.9, result.predict_proba(x).shape
        (True, (300, 2))
    """
    config = config or LinearEvaluationConfig()
    if config.protocol == "direct":
        raise ValueError("protocol='direct' fits no heads: give `score_heads` those of a trained classifier.")
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    passes = _passes(train_features, "train_features")
    rows, size = passes[0].shape
    labels = _labels(train_labels, "train_labels", rows)
    validation = _split("validation", validation_features, validation_labels, size, labels.shape[1])
    test = None
    if test_features is not None and test_labels is not None:
        test = _split("test", test_features, test_labels, size, labels.shape[1])
    elif test_features is not None or test_labels is not None:
        raise ValueError("`test_features` and `test_labels` belong together: give both, or neither.")
    if priors and config.protocol == "study":
        raise ValueError("`priors` are for protocol='best'; the study's heads start at random.")
    curves: dict[str, npt.NDArray[np.float64]] = {}
    fitted: BestHeads | None = None
    grid: Sequence[tuple[float | None, float]]
    if config.protocol == "best":
        judges = validation if trained_on_these else None
        fitted = fit_best_heads(passes, labels, judges, priors=priors, seed=config.seed, device=device)
        heads = GridHeads(fitted.weight[None, None], fitted.bias[None, None])
        scores, grid = score(heads, *validation), [(None, fitted.weight_decay)]
    else:
        heads, scores, curves = _train(passes, labels, *validation, config, device, progress)
        grid = config.grid()

    best = scores.best()
    f1 = scores.f1.cpu()
    choices = [
        LabelChoice(rate, decay, float(f1[point, label]))
        for label, point in enumerate(best.tolist())
        for rate, decay in (grid[point],)
    ]
    chosen = heads.select(best)
    unseen = None if fitted is None or fitted.unseen_probabilities is None else (labels, fitted.unseen_probabilities)
    found: dict[str, Any] = {"choices": choices, "curves": curves, "best": fitted}
    result = score_heads(chosen.weight[0], chosen.bias[0], *validation, config, unseen=unseen, **found)
    return result if test is None else result.with_test(*test, device)


def score_heads(
    weight: Tensor,
    bias: Tensor,
    validation_features: ArrayLike,
    validation_labels: ArrayLike,
    config: LinearEvaluationConfig,
    *,
    unseen: tuple[ArrayLike, ArrayLike] | None = None,
    **found: Any,
) -> LinearEvaluationResult:
    """Scores and thresholds of heads on validation: of those that were fitted, or of a model's own classifier.

    Args:
        weight: Of the heads (heads, labels, features).
        bias: (heads, labels).
        validation_features: Features (rows, size).
        validation_labels: Multi-hot (rows, labels).
        config: Whether a row has a single label, and what thresholds are tuned for.
        unseen: Labels of further rows that thresholds may be tuned on, and their probabilities by heads that did not
            see them.
        **found: Further fields of the result.
    """
    x, y = _split("validation", validation_features, validation_labels, weight.shape[-1], weight.shape[1])
    p = _probabilities(weight, bias, x, config)
    return LinearEvaluationResult(
        metrics=_scores("validation", y.numpy(), p, config),
        weight=weight.cpu(),
        bias=bias.cpu(),
        validation_labels=y.numpy(),
        validation_probabilities=p,
        config=config,
        tuned=_tuned(y.numpy(), p, config, unseen),
        **{"choices": [], "curves": {}, **found},
    )


def _probabilities(weight: Tensor, bias: Tensor, x: Tensor, config: LinearEvaluationConfig) -> npt.NDArray[np.float32]:
    if config.protocol == "direct" and config.single_label:  # such a classifier was trained as a softmax
        return np.asarray(torch.addmm(bias[0], x.to(weight), weight[0].T).softmax(1).cpu().numpy())
    return predict(GridHeads(weight.unsqueeze(0), bias.unsqueeze(0)), x)


def _tuned(
    labels: npt.NDArray[np.bool_], p: npt.NDArray[np.float32], config: LinearEvaluationConfig, unseen: Any
) -> ThresholdChoice | None:
    if config.single_label or config.thresholds == "half":
        return None
    if config.protocol != "best":
        return ThresholdChoice(tune_thresholds(labels, p, objective=config.thresholds), "label", {})
    if unseen is not None:
        labels, p = np.concatenate([labels, unseen[0]]), np.concatenate([p, unseen[1]])
    return choose_thresholds(labels, p, config.thresholds)


def _scores(
    split: str, labels: npt.NDArray[np.bool_], p: npt.NDArray[np.float32], config: LinearEvaluationConfig
) -> dict[str, float]:
    """Metrics of a split: of decisions at 0.5, or of the most probable label alone."""
    found = rule_metrics(labels, p, DecisionRule(single_label=config.single_label), config.absent)
    return {f"{split}_{name}": float(value) for name, value in found.items()}


def _split(name: str, features: ArrayLike, labels: ArrayLike, size: int, width: int) -> tuple[Tensor, Tensor]:
    x = as_features(features, f"{name}_features", size)
    if len(x) == 0:
        raise ValueError(f"`{name}_features` has no rows: there is nothing to score. Is the {name} split empty?")
    return x, _labels(labels, f"{name}_labels", len(x), width)


def _passes(values: ArrayLike | Sequence[ArrayLike], name: str) -> list[Tensor]:
    """Passes over the training features: one, an array of several, or a list of some that may lie on disk."""
    several: Any = values
    if not (isinstance(values, list | tuple) and values and getattr(values[0], "ndim", 1) == 2):
        x = as_tensor(values, name)
        several = x if x.dim() == 3 else [x]
    passes = [as_features(item, name) for item in several]
    if not passes or any(item.shape != passes[0].shape for item in passes):
        shapes = [tuple(item.shape) for item in passes]
        raise ValueError(f"the passes of `{name}` must all have the same rows and size, but have shapes {shapes}.")
    if len(passes[0]) == 0:
        raise ValueError(f"`{name}` has no rows: there is nothing to learn from.")
    return passes


def _labels(values: ArrayLike, name: str, rows: int, width: int | None = None) -> Tensor:
    labels = torch.from_numpy(as_multi_hot(values, name))
    if labels.shape[1] == 0:
        raise ValueError(f"`{name}` has shape {tuple(labels.shape)}: there must be a column for each label.")
    if len(labels) != rows:
        raise ValueError(f"`{name}` has {len(labels)} rows, but the features have {rows}.")
    if width is not None and labels.shape[1] != width:
        raise ValueError(f"`{name}` has {labels.shape[1]} labels, but `train_labels` has {width}.")
    return labels


@torch.no_grad()
def _train(
    passes: list[Tensor],
    labels: Tensor,
    validation_features: Tensor,
    validation_labels: Tensor,
    config: LinearEvaluationConfig,
    device: torch.device,
    progress: bool,
) -> tuple[GridHeads, GridScores, dict[str, npt.NDArray[np.float64]]]:
    """The trained heads, their scores on validation, and the learning curves."""
    (rows, size), width, grid = passes[0].shape, labels.shape[1], config.grid()
    random = torch.Generator().manual_seed(config.seed)
    bound = math.sqrt(6 / (size + width))  # Xavier's, of one head
    weight = torch.empty(len(grid), config.heads, width, size).uniform_(-bound, bound, generator=random).to(device)
    bias = torch.zeros(len(grid), config.heads, width, device=device)
    heads = GridHeads(weight, bias)
    weight_grad, bias_grad = torch.zeros_like(weight), torch.zeros_like(bias)
    steps = config.epochs * math.ceil(rows / config.batch_size)
    optimizer = BatchedOptimizer(heads, weight_grad, bias_grad, config, steps)

    W, b, dW, db = weight.flatten(0, 2), bias.flatten(), weight_grad.flatten(0, 2), bias_grad.flatten()
    # The memory of a step is asked for once: asking again each time takes as long as the sigmoids.
    most = min(config.batch_size, rows)
    logits_of_batch = W.new_empty(most, len(W))
    curves: dict[str, list[npt.NDArray[np.float64]]] = {}
    epochs: Iterable[int] = tqdm(range(config.epochs), desc="Linear evaluation", unit="epoch", disable=not progress)
    for epoch in epochs:
        features, losses = passes[epoch % len(passes)], []
        features_of_batch = features.new_empty(most, size)
        is_point = (epoch + 1) % CURVE_EVERY == 0 or epoch + 1 == config.epochs
        order = torch.randperm(rows, generator=random)
        for step, batch in enumerate(torch.split(order, config.batch_size)):
            X = torch.index_select(features, 0, batch.to(features.device), out=features_of_batch[: len(batch)]).to(W)
            Y = labels[batch].to(W).unsqueeze(1)  # the same for all grid points and heads
            logits = torch.addmm(b, X, W.T, out=logits_of_batch[: len(batch)]).view(len(batch), -1, width)
            if is_point and step % LOSS_EVERY == 0:
                each = F.binary_cross_entropy_with_logits(logits, Y.expand_as(logits), reduction="none")
                losses.append(each.view(len(X), len(grid), -1).mean((0, 2)))
            error = logits.clamp_(min=LOWEST_LOGIT).sigmoid_().sub_(Y).flatten(1)
            torch.addmm(dW, error.T, X, beta=0, alpha=1 / Y.numel(), out=dW)
            torch.sum(error, 0, out=db).div_(Y.numel())
            optimizer.step()
        if is_point:
            scores = score(heads, validation_features, validation_labels)
            point = {"train_loss": torch.stack(losses).mean(0), "validation_loss": scores.loss.mean(1)}
            point |= {"validation_macro_f1": scores.f1.mean(1), "validation_micro_f1": scores.micro_f1}
            for name, values in point.items():
                curves.setdefault(name, []).append(values.cpu().double().numpy())
            curves.setdefault("epoch", []).append(np.array(epoch + 1.0))
    return heads, scores, {name: np.stack(values) for name, values in curves.items()}
