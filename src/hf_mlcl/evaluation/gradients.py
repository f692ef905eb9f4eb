"""The study's gradient analysis: which positive pairs a contrastive loss pushes apart, and what the regulariser does.

For an anchor i with targets T and softmax probabilities p over its candidates, the loss pulls the pair (i, j) together
with strength A_ij = T_ij - m_i p_ij, where m_i = sum_j T_ij; `hf_mlcl.losses.engine` has the formulas and computes them
here as in training. Where A is negative on a *positive* pair, the pair is pushed apart. The regulariser of `reg` raises
T to m_i p_ij there, and A to 0. The share of such pairs is the Positive Regularisation Ratio (PRR).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hf_mlcl.losses.balanced import RegLoss, WithoutRegLoss
from hf_mlcl.losses.labels import check_multi_hot
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
    """Pull and push of the losses `wo_reg` and `reg` on the pairs of one batch.

    Args:
        embeddings: Raw embeddings of the batch (rows, size).
        labels: Multi-hot labels (rows, labels).
        prototypes: Raw prototypes (labels, size): further anchors and candidates, each with its own label. None: the
            instances alone.
        temperature: tau.
        alpha: Weight of label overlap in the targets.

    Examples:
        >>> study = gradient_study([[1.0, 0.0], [1.0, 0.1], [0.9, 0.0]], [[1, 1], [1, 0], [0, 1]])
        >>> study.positives, study.wrong_regularised
        (4, 0.0)
    """
    batch = _batch(embeddings, labels, prototypes)
    without, with_regulariser = _losses(prototypes, temperature, alpha)
    target, pull = without.pairs(*batch)
    regularised = with_regulariser.pairs(*batch).attraction
    positive = target > 0
    anchors = max(int(positive.any(1).sum()), 1)
    on_positives = pull[positive]
    return GradientStudy(
        positives=len(on_positives),
        repelled=int((on_positives < 0).sum()),
        attraction=float(on_positives.clamp(min=0).sum()) / anchors,
        wrong=float(-on_positives.clamp(max=0).sum()) / anchors,
        wrong_regularised=abs(float(regularised[positive].clamp(max=0).sum())) / anchors,
        repulsion=float(-pull[~positive].sum()) / anchors,
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
    x, y, c = _batch(embeddings, labels, prototypes)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    batches = [b for b in torch.split(order, batch_size) if len(b) == min(batch_size, len(x))]
    ratios = []
    for temperature in temperatures:
        loss, _ = _losses(prototypes, temperature, alpha)
        parts = [loss.parts(x[rows], y[rows], c, statistics=True).counts for rows in batches]
        positives, raised = (float(sum(getattr(counts, name) for counts in parts)) for name in ("positives", "raised"))
        ratios.append(raised / positives if positives else np.nan)
    return np.array(ratios)


def _batch(
    embeddings: ArrayLike, labels: ArrayLike, prototypes: ArrayLike | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """As the losses want it, in float64."""
    x = torch.as_tensor(as_array(embeddings)).double()
    y = torch.as_tensor(as_multi_hot(labels, "labels"))
    check_multi_hot(y, x, rows_name="embeddings")
    return x, y, None if prototypes is None else torch.as_tensor(as_array(prototypes)).double()


def _losses(prototypes: ArrayLike | None, temperature: float, alpha: float) -> tuple[WithoutRegLoss, WithoutRegLoss]:
    """`wo_reg` and `reg`, among instances alone where there are no prototypes."""
    plain, regularised = (_Plain, _Regularised) if prototypes is None else (WithoutRegLoss, RegLoss)
    return plain(temperature, alpha), regularised(temperature, alpha)


class _Plain(WithoutRegLoss):
    uses_prototypes = False


class _Regularised(RegLoss):
    uses_prototypes = False
