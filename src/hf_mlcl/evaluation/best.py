"""Heads for users: regularised logistic regression on standardised features, one strength for all labels.

The study's heads are hardly regularised, and each label chooses its own setting: right for comparing losses, wrong for
a classifier from a few hundred rows. Here all labels share one strength, chosen by the log-likelihood of rows that the
heads have not seen. The result is one linear layer on the raw features, which any model can hold.

An encoder that has never seen the training rows is judged by cross-validation on them. One that was fine-tuned on them
finds them easier than any new row: it is judged on validation rows, and its probabilities are made honest there.

A **prior** says where a label's weights are expected: in the direction of its encoded name (what an encoder makes of
"joy" is where it will put joyful texts), or nowhere. Heads shrink towards it instead of towards zero. How far it
reaches is one number for all labels, fitted to the training rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from hf_mlcl.evaluation.heads import GridHeads
from hf_mlcl.evaluation.logistic import fit_logistic
from hf_mlcl.evaluation.thresholds import fit_temperature

STRENGTHS = tuple(10.0**exponent for exponent in np.arange(-3.0, 1.01, 0.5).tolist())
"""Weight decays that are tried, for features of variance 1 and the mean loss of a row."""
FOLDS = 5
CHOOSING_ROWS = 5000
CHOOSING_LABELS = 100
"""Rows and labels that strength and prior are chosen on, at most."""
NEWTON_STEPS = 50
HALVES = tuple(0.5**n for n in range(20))
FAR = 10.0
"""How far a prior may reach that tells every label of every row, as the deviation of a Gaussian."""
TRAINED_SHARE = 1 / 3
"""How much of its reach a prior keeps with an encoder that was trained on the rows: they lie where it has put them, and
show more of it than new rows do. Half or a quarter of it gives new tweets nearly the same likelihood, the whole less
than no prior."""
TEMPLATES = ("{}", "This text is about {}.", "This text expresses {}.")
"""Sentences that a label's name is put into; the training rows choose."""
IMAGE_TEMPLATES = ("{}", "a photo of {}.", "This is about {}.")
"""The same for images, of models that read texts as well."""


@dataclass(frozen=True)
class BestHeads:
    """One linear layer, and how it was chosen.

    Attributes:
        weight: Of raw features (labels, size), with `bias` (labels,).
        weight_decay: The strength, for standardised features.
        prior: Name of the prior that was chosen, ``"zero"`` for none.
        loss: Log loss per row and label of unseen rows, for each prior a number per strength.
        unseen_probabilities: Of the training rows by heads that did not see them, where cross-validation took them all.
    """

    weight: Tensor
    bias: Tensor
    weight_decay: float
    prior: str
    loss: dict[str, list[float]]
    unseen_probabilities: npt.NDArray[np.float32] | None = field(default=None, repr=False)

    def logits(self, features: Tensor) -> Tensor:
        """Logits (rows, labels)."""
        return torch.addmm(self.bias, features.to(self.weight), self.weight.T)


def fit_best_heads(
    features: Tensor | Sequence[Tensor],
    labels: Tensor,
    validation: tuple[Tensor, Tensor] | None = None,
    *,
    priors: Mapping[str, Tensor] | None = None,
    weight_decays: Sequence[float] = STRENGTHS,
    folds: int = FOLDS,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> BestHeads:
    """Fit and choose the heads.

    Args:
        features: Of the training rows (rows, size); or several augmented passes over them.
        labels: Boolean (rows, labels).
        validation: Features and labels of rows to choose on, for an encoder that was trained on the training rows.
            Without them the choice is made by cross-validation on the training rows.
        priors: By name, directions (labels, size) in the space of the features; that of zero is always tried.
        weight_decays: Strengths to choose from.
        folds: Of the cross-validation, drawn by `seed`.
        seed: Of the folds.
        device: Where to compute.

    Examples:
        >>> x = torch.randn(50, 16, generator=torch.Generator().manual_seed(0))
        >>> y = x[:, :8] > 0.5  # eight labels, each of which is a direction of the space
        >>> heads = fit_best_heads(x, y, priors={"names": torch.eye(8, 16)})
        >>> heads.prior, heads.weight.shape
        ('names', torch.Size([8, 16]))
    """
    passes = [features] if isinstance(features, Tensor) else list(features)
    if len(labels) < 2:
        raise ValueError(f"features has {len(labels)} rows: heads need at least 2, one to fit and one to judge.")
    mean = torch.stack([x.float().mean(0) for x in passes]).mean(0)
    scale = torch.stack([(x.float() - mean).square().mean(0) for x in passes]).mean(0).sqrt()
    # A feature that hardly moves says nothing; dividing by its deviation would make noise of it.
    scale = scale.clamp(min=1e-3 * float(scale.mean().clamp(min=torch.finfo(torch.float32).tiny)))

    def standard(x: Tensor) -> Tensor:
        return (x.float() - mean) / scale

    names = ["zero", *(priors or {})]
    directions = torch.stack(
        [torch.zeros(labels.shape[1], len(mean)), *map(_contrast, map(standard, (priors or {}).values()))]
    )
    unseen_rows = None if validation is None else (standard(validation[0]), validation[1])
    problem = _Problem([standard(x) for x in passes], labels, directions, torch.device(device), unseen_rows)
    rows, some, logits, truth = _judged(problem, weight_decays, folds, seed)
    losses = np.reshape(
        [F.binary_cross_entropy_with_logits(each, truth.to(each)).item() for each in logits.unbind(1)], (len(names), -1)
    )
    prior, best = divmod(int(np.nanargmin(losses)), len(weight_decays))
    every = torch.arange(labels.shape[1])
    heads = problem.fit(torch.arange(len(labels)), every, [weight_decays[best]], slice(prior, prior + 1), 1e-8)
    weight = heads.weight[0, 0].cpu() / scale
    bias = heads.bias[0, 0].cpu() - weight @ mean
    if validation is not None:
        judged = torch.addmm(bias, validation[0].float(), weight.T)
        honest = fit_temperature(validation[1].numpy(), judged.sigmoid().numpy())
        weight, bias = weight / honest, bias / honest
    unseen: Any = None
    if validation is None and len(rows) == len(labels) and len(some) == len(every):
        unseen = logits[:, prior * len(weight_decays) + best].sigmoid().numpy()
    loss = {name: each.tolist() for name, each in zip(names, losses, strict=True)}
    return BestHeads(weight, bias, float(weight_decays[best]), names[prior], loss, unseen)


@dataclass(frozen=True)
class _Problem:
    """Standardised features of training rows, their labels, and directions (priors, labels, size) to shrink towards.

    `unseen` are features and labels of validation rows, where the encoder was trained on the training rows.
    """

    passes: list[Tensor]
    labels: Tensor
    directions: Tensor
    place: torch.device
    unseen: tuple[Tensor, Tensor] | None

    def fit(self, rows: Tensor, some: Tensor, strengths: Sequence[float], priors: slice, tolerance: float) -> GridHeads:
        """Heads of some labels, fitted to some rows, for each of these priors and strengths."""
        x, y = [part[rows] for part in self.passes], self.labels[rows][:, some]
        share = 1.0 if self.unseen is None else TRAINED_SHARE
        starts = torch.stack([share * _reach(x[0] @ one.T, y) * one for one in self.directions[priors, some]])
        return fit_logistic(x, y, strengths, self.place, tolerance=tolerance, priors=starts)


def _judged(
    problem: _Problem, strengths: Sequence[float], folds: int, seed: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits of unseen rows by every prior and strength, and their labels; before them, the rows and labels fitted to.

    One strength for all: some of the rows and of the labels, frequent and rare ones, can tell which.
    """
    labels, every = problem.labels, slice(None)
    rows = torch.arange(len(labels))[:: -(-len(labels) // CHOOSING_ROWS)]
    frequent_first = labels.sum(0).argsort(descending=True, stable=True)
    some = frequent_first[:: -(-labels.shape[1] // CHOOSING_LABELS)].sort().values
    if problem.unseen is not None:
        heads = problem.fit(rows, some, strengths, every, 1e-4)
        return rows, some, _logits(heads, problem.unseen[0]), problem.unseen[1][:, some]
    logits = torch.empty(len(rows), len(problem.directions) * len(strengths), len(some))
    for held_out in _folds(len(rows), folds, seed):
        kept = torch.ones(len(rows), dtype=torch.bool)
        kept[held_out] = False
        heads = problem.fit(rows[kept], some, strengths, every, 1e-4)
        logits[held_out] = _logits(heads, problem.passes[0][rows[held_out]])
    return rows, some, logits, labels[rows][:, some]


def _logits(heads: GridHeads, x: Tensor) -> Tensor:
    """Logits (rows, grid points, labels)."""
    flat = torch.addmm(heads.bias.flatten(), x.to(heads.weight), heads.weight.flatten(0, 2).T)
    return flat.view(len(x), heads.bias.shape[0], heads.bias.shape[2]).cpu()


def _contrast(directions: Tensor) -> Tensor:
    """What sets each label's direction apart from the others, with length 1: what they share tells no label."""
    apart = directions - directions.mean(0) if len(directions) > 1 else directions
    return F.normalize(apart, dim=1)


def _reach(scores: Tensor, labels: Tensor) -> float:
    """The factor k of the most likely logits k * scores + a bias per label, by Newton's method; at least 0.

    Scores that tell the labels of every row would have it grow without end: `FAR` holds it back there, and where a
    handful of rows say little.
    """
    s, y = scores.double(), labels.double()
    if not s.any() or not s.isfinite().all():
        return 0.0
    share = y.mean(0).clamp(1 / (2 * len(y)), 1 - 1 / (2 * len(y)))
    k, bias = 0.0, share.logit()

    def cost(k: float, bias: Tensor) -> float:
        return float(F.binary_cross_entropy_with_logits(k * s + bias, y, reduction="sum")) + k * k / (2 * FAR**2)

    now = cost(k, bias)
    for _ in range(NEWTON_STEPS):
        p = torch.sigmoid(k * s + bias)
        error, v = p - y, p * (1 - p)
        by_bias, curvature, cross = error.sum(0), v.sum(0).clamp(min=1e-9), (v * s).sum(0)
        slope = float((error * s).sum() - (cross * by_bias / curvature).sum()) + k / FAR**2
        bend = float((v * s * s).sum() - (cross * cross / curvature).sum()) + 1 / FAR**2
        step = -slope / bend
        turn = -(by_bias + cross * step) / curvature
        tried = ((t, cost(k + t * step, bias + t * turn)) for t in HALVES)
        length, lower = next(((t, value) for t, value in tried if value < now * (1 - 1e-9)), (0.0, now))
        if length == 0:
            break
        k, bias, now = k + length * step, bias + length * turn, lower
    return max(k, 0.0)


def _folds(rows: int, folds: int, seed: int) -> list[Tensor]:
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    return [part for part in torch.tensor_split(order, min(max(folds, 2), rows)) if len(part)]


def readable(name: str) -> str:
    """A label's name as a person would write it in a sentence.

    Examples:
        >>> readable("comp.sys.ibm_pc"), readable("MachineLearning"), readable("cs.LG"), readable("F1-score")
        ('comp sys ibm pc', 'machine learning', 'cs LG', 'F1 score')
    """
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", re.sub(r"[\W_]+", " ", name)).strip()
    words = [word if word.isupper() or any(map(str.isdigit, word)) else word.lower() for word in spaced.split()]
    return " ".join(words) or name


def check_templates(templates: Sequence[str]) -> None:
    """Raise unless each template has one place for a name."""
    for template in templates:
        if template.count("{}") != 1:
            raise ValueError(f"A label template must have one {{}} where the label's name goes; got {template!r}.")


def name_priors(
    label_names: Sequence[str],
    encode: Callable[[list[str]], Tensor],
    templates: Sequence[str] = TEMPLATES,
    descriptions: Mapping[str, str] | None = None,
) -> dict[str, Tensor]:
    """Priors for `fit_best_heads`: the encoded names of all labels, for each template.

    Args:
        label_names: Of all labels, in the order of the heads.
        encode: Gives the features (rows, size) of texts, as the heads will see them.
        templates: Sentences with one place for a name.
        descriptions: What to write in the place of a name that says little: ``{"cs.LG": "machine learning"}``.

    Examples:
        >>> lengths = lambda texts: torch.tensor([[float(len(text))] for text in texts])
        >>> name_priors(["joy", "deep_sorrow"], lengths, templates=["It is {}."])["It is {}."].tolist()
        [[10.0], [18.0]]
    """
    check_templates(templates)
    names = [(descriptions or {}).get(name) or readable(name) for name in label_names]
    encoded = encode([template.replace("{}", name) for template in templates for name in names])
    return dict(zip(templates, torch.split(encoded, len(names)), strict=True))
