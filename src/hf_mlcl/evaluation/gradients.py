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

from hf_mlcl.losses.balanced import WithoutRegLoss
from hf_mlcl.losses.labels import check_multi_hot
from hf_mlcl.metrics._arrays import ArrayLike, as_array, as_multi_hot


@dataclass(frozen=True)
class GradientStudy:
    """Pull and push on the pairs of one batch, summed over anchors and divided by their number.

    Attributes:
        positives: Number of positive pairs.
        repelled: Those that the loss without regulariser pushes apart.
        attraction: Pull on positive pairs.
        wrong: Push on positive pairs: gradient in the wrong direction, of which the regulariser leaves none.
        repulsion: Push on negative pairs.
        pulls: A_ij of every positive pair, shape (positives,).
    """

    positives: int
    repelled: int
    attraction: float
    wrong: float
    repulsion: float
    pulls: npt.NDArray[np.float64]

    @property
    def prr(self) -> float:
        """Positive Regularisation Ratio: the share of positive pairs that are pushed apart without it."""
        return self.repelled / max(self.positives, 1)


def gradient_study(
    embeddings: ArrayLike,
    labels: ArrayLike,
    prototypes: ArrayLike | None = None,
    temperature: float = 0.1,
    alpha: float = 0.0,
) -> GradientStudy:
    """Pull and push of the loss `wo_reg` on the pairs of one batch; `reg` has no push on positive ones.

    Args:
        embeddings: Raw embeddings of the batch (rows, size).
        labels: Multi-hot labels (rows, labels).
        prototypes: Raw prototypes (labels, size), further anchors and candidates; None for the instances alone.
        temperature: tau.
        alpha: Weight of label overlap in the targets.

    Examples:
        >>> study = gradient_study([[1.0, 0.0], [1.0, 0.1], [0.9, 0.0]], [[1, 1], [1, 0], [0, 1]])
        >>> study.positives, study.repelled
        (4, 1)
    """
    x, y = torch.as_tensor(as_array(embeddings)).double(), torch.as_tensor(as_multi_hot(labels, "labels"))
    check_multi_hot(y, x, rows_name="embeddings")
    if prototypes is None:
        target, pull = _AmongInstances(temperature, alpha).pairs(x, y, None)
    else:
        target, pull = WithoutRegLoss(temperature, alpha).pairs(x, y, torch.as_tensor(as_array(prototypes)).double())
    positive = target > 0
    anchors = max(int(positive.any(1).sum()), 1)
    on_positives = pull[positive]
    return GradientStudy(
        positives=len(on_positives),
        repelled=int((on_positives < 0).sum()),
        attraction=float(on_positives.clamp(min=0).sum()) / anchors,
        wrong=float(-on_positives.clamp(max=0).sum()) / anchors,
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

    The study trains text with batches of 256 and images with 64. The other arguments are those of `gradient_study`.

    Returns:
        One ratio per temperature, NaN if there is no positive pair.
    """
    x, y = as_array(embeddings), as_array(labels)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    batches = [b.numpy() for b in torch.split(order, batch_size) if len(b) == min(batch_size, len(x))]
    ratios = []
    for temperature in temperatures:
        parts = [gradient_study(x[rows], y[rows], prototypes, temperature, alpha) for rows in batches]
        positives = sum(part.positives for part in parts)
        ratios.append(sum(part.repelled for part in parts) / positives if positives else np.nan)
    return np.array(ratios)


class _AmongInstances(WithoutRegLoss):
    uses_prototypes = False
