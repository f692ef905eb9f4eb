"""Quick classifiers on features, so that contrastive training shows a score while it runs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def probe(kind: str, train: Tensor, train_labels: Tensor, features: Tensor) -> Tensor:
    """Probabilities (rows, L) of each label from a classifier that takes no training.

    Args:
        kind: ``"knn"``: the share of the 15 nearest training rows (cosine) that carry the label; ``"ridge"``: ridge
            regression on the standardised features, cut to [0, 1].
        train: Features to learn from.
        train_labels: Their multi-hot labels.
        features: Features to score.

    Examples:
        >>> x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
        >>> y = torch.tensor([[1.0], [1.0], [0.0]])
        >>> bool(probe("ridge", x, y, x)[0] > probe("ridge", x, y, x)[2])
        True
    """
    train, features, train_labels = train.float(), features.float(), train_labels.float()
    if kind == "knn":
        near = (F.normalize(features, dim=1) @ F.normalize(train, dim=1).T).topk(min(15, len(train)), dim=1).indices
        return train_labels[near].mean(1)
    mean, deviation = train.mean(0), train.std(0, unbiased=False).clamp(min=1e-6)
    x, z = (train - mean) / deviation, (features - mean) / deviation
    gram = x.T @ x + 0.1 * len(x) * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    weights = torch.linalg.solve(gram, x.T @ (train_labels - train_labels.mean(0)))
    return (z @ weights + train_labels.mean(0)).clamp(0.0, 1.0)
