"""Temperature scaling: one number, fitted on validation scores, that makes probabilities honest."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logit

from hf_mlcl.evaluation.thresholds import checked_probabilities
from hf_mlcl.metrics._arrays import ArrayLike


def fit_temperature(labels: ArrayLike, probabilities: ArrayLike) -> float:
    """The divisor of all logits with the lowest cross-entropy on validation scores (Guo et al., 2017).

    Args:
        labels: Multi-hot truth (rows, labels).
        probabilities: Between 0 and 1, same shape.

    Examples:
        >>> from hf_mlcl.metrics import sigmoid
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(0, 2, (5000, 2))
        >>> labels = rng.random(logits.shape) < sigmoid(logits)
        >>> round(fit_temperature(labels, sigmoid(3 * logits)), 1)
        3.0
    """
    truth, p = checked_probabilities(labels, probabilities)
    tiny = np.finfo(np.float64).eps
    margin = np.where(truth, 1, -1) * logit(np.clip(p.astype(np.float64), tiny, 1 - tiny))

    def loss(log_temperature: float) -> float:
        return float(np.logaddexp(0, -margin / np.exp(log_temperature)).mean())

    found = minimize_scalar(loss, bounds=(np.log(0.05), np.log(20)), method="bounded", options={"xatol": 1e-6})
    return float(np.exp(found.x))
