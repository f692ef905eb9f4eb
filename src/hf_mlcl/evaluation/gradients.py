"""The study's gradient analysis: which positive pairs a contrastive loss pushes apart, and what the regulariser does.

For an anchor i with targets T and softmax probabilities p over its candidates, the loss pulls the pair (i, j) together
with strength A_ij = T_ij - m_i p_ij, where m_i = sum_j T_ij (1, but for labels without a positive). Where A is negative
on a *positive* pair, the pair is pushed apart. The regulariser of `reg` raises T to m_i p_ij there, and A to 0. The
share of such pairs is the Positive Regularisation Ratio (PRR).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from hf_mlcl.metrics._arrays import ArrayLike, as_array, as_multi_hot


@dataclass(frozen=True)
class GradientStudy:
    """Pull and push on the pairs of one batch, summed over anchors and divided by their number.

    Attributes:
        positives: Number of positive pairs.
        repelled: Those that the loss without regulariser pushes apart.
        attraction: Pull on positive pairs; the regulariser leaves it as it is.
        wrong: Push on positive pairs without the regulariser: gradient in the wrong direction.
        wrong_regularised: The same with it.
        repulsion: Push on negative pairs.
        pulls: A_ij of every positive pair without the regulariser, shape (positives,).
    """

    positives: int
    repelled: int
    attraction: float
    wrong: float
    wrong_regularised: float
    repulsion: float
    pulls: npt.NDArray[np.float64]

    @property
    def prr(self) -> float:
        """Positive Regularisation Ratio: the share of positive pairs that are pushed apart without the regulariser."""
        return self.repelled / max(self.positives, 1)

    @property
    def wrong_share(self) -> float:
        """Share of the gradient on positive pairs that points in the wrong direction, without the regulariser."""
        return self.wrong / max(self.attraction + self.wrong, 1e-300)


def gradient_study(
    embeddings: ArrayLike,
    labels: ArrayLike,
    prototypes: ArrayLike | None = None,
    temperature: float = 0.1,
    alpha: float = 0.0,
) -> GradientStudy:
    """Pull and push of the losses `wo_reg` and `reg` on one batch, from their closed form.

    Args:
        embeddings: Raw embeddings of the batch (rows, size).
        labels: Multi-hot labels (rows, labels).
        prototypes: Raw prototypes (labels, size): further anchors and candidates, each with its own label. None: the
            instances alone.
        temperature: tau.
        alpha: Weight of label overlap in the targets.

    Example:
        >>> study = gradient_study([[1.0, 0.0], [1.0, 0.1], [0.9, 0.0]], [[1, 1], [1, 0], [0, 1]])
        >>> study.positives, study.wrong_regularised
        (4, 0.0)
    """
    x, y = _stacked(embeddings, labels, prototypes)
    _check_temperature(temperature)
    target, expected = _target_and_expected(x, y, temperature, alpha)
    positive = target > 0
    anchors = max(int(positive.any(1).sum()), 1)
    on_positives = (target - expected)[positive]
    regularised = (torch.maximum(target, expected) - expected)[positive]
    return GradientStudy(
        positives=len(on_positives),
        repelled=int((on_positives < 0).sum()),
        attraction=float(on_positives.clamp(min=0).sum()) / anchors,
        wrong=float(-on_positives.clamp(max=0).sum()) / anchors,
        wrong_regularised=abs(float(regularised.clamp(max=0).sum())) / anchors,
        repulsion=float(expected[~positive].sum()) / anchors,
        pulls=on_positives.numpy(),
    )


def prr_by_temperature(
    embeddings: ArrayLike,
    labels: ArrayLike,
    temperatures: Sequence[float],
    prototypes: ArrayLike | None = None,
    alpha: float = 0.0,
    batch_size: int = 256,
    seed: int = 0,
) -> npt.NDArray[np.float64]:
    """The Positive Regularisation Ratio at each temperature, over batches as in training.

    PRR depends on who is compared with whom, hence on the batch size: rows are shuffled and cut into batches, and the
    last, incomplete one is dropped as in training (unless it is the only one). All positive pairs count alike.

    Args:
        embeddings: Raw embeddings (rows, size).
        labels: Multi-hot labels (rows, labels).
        temperatures: One or more.
        prototypes: See `gradient_study`.
        alpha: See `gradient_study`.
        batch_size: Rows a batch; the study trains text with 256 and images with 64.
        seed: Of the shuffling.

    Returns:
        One ratio a temperature, NaN if there is no positive pair.
    """
    x = torch.as_tensor(as_array(embeddings)).double()
    y = torch.as_tensor(as_multi_hot(labels, "labels"))
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    batches = [b for b in torch.split(order, batch_size) if len(b) == min(batch_size, len(x))]
    counts = np.zeros((len(temperatures), 2))
    for batch in batches:
        rows, truth = _stacked(x[batch], y[batch], prototypes)
        for index, temperature in enumerate(temperatures):
            _check_temperature(temperature)
            target, expected = _target_and_expected(rows, truth, temperature, alpha)
            positive = target > 0
            counts[index] += [int((expected > target)[positive].sum()), int(positive.sum())]
    ratios = np.full(len(counts), np.nan)
    np.divide(counts[:, 0], counts[:, 1], out=ratios, where=counts[:, 1] > 0)
    return ratios


def contrastive_targets(labels: ArrayLike, alpha: float = 0.0) -> npt.NDArray[np.float64]:
    """Targets T of `wo_reg` and `reg` for a batch that is compared with itself; rows sum to 1 or, without positives, 0.

    T_ij = 1/|y_i| sum over the labels l of i that j carries: f_ij / N(l, i), with f_ij = (|y_i and y_j| / |y_j|)^alpha
    and N(l, i) the sum of f_ik over the k other than i that carry l.

    Example:
        >>> contrastive_targets([[1, 1], [1, 0], [0, 1], [1, 0]]).round(3)[0].tolist()
        [0.0, 0.25, 0.5, 0.25]
    """
    return _targets(torch.as_tensor(as_multi_hot(labels, "labels")).double(), alpha).numpy()


def _targets(y: Tensor, alpha: float) -> Tensor:
    overlap = y @ y.T
    f = (overlap / y.sum(1).clamp(min=1)).pow(alpha) * (overlap > 0)
    f.fill_diagonal_(0)
    normaliser = f @ y  # N(l, i) for anchor i and label l
    share = torch.where(normaliser > 0, y / normaliser, 0.0) / y.sum(1, keepdim=True).clamp(min=1)
    return f * (share @ y.T)


def _target_and_expected(x: Tensor, y: Tensor, temperature: float, alpha: float) -> tuple[Tensor, Tensor]:
    """T and m p, each (rows, rows)."""
    target = _targets(y, alpha)
    similarity = (x @ x.T / temperature).fill_diagonal_(-torch.inf)
    p = torch.softmax(similarity, dim=1)
    return target, target.sum(1, keepdim=True) * p


def _stacked(embeddings: ArrayLike, labels: ArrayLike, prototypes: ArrayLike | None) -> tuple[Tensor, Tensor]:
    x = torch.as_tensor(as_array(embeddings)).double()
    y = torch.as_tensor(as_multi_hot(labels, "labels")).double()
    if x.dim() != 2 or len(x) != len(y) or len(x) < 2:
        raise ValueError(
            f"`embeddings` must be (rows, size), with a row for each of the {len(y)} rows of `labels`, at least "
            f"two, but has shape {tuple(x.shape)}."
        )
    if prototypes is not None:
        c = torch.as_tensor(as_array(prototypes)).double()
        if c.shape != (y.shape[1], x.shape[1]):
            raise ValueError(
                f"`prototypes` must have shape {(y.shape[1], x.shape[1])}, labels x size, but has {tuple(c.shape)}."
            )
        x, y = torch.cat([c, x]), torch.cat([torch.eye(len(c), dtype=torch.float64), y])
    return F.normalize(x, dim=1), y


def _check_temperature(temperature: float) -> None:
    if not temperature > 0:
        raise ValueError(f"temperatures must be positive, but one is {temperature}.")
