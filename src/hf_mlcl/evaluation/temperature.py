"""Temperature scaling: one number, fitted on validation scores, that makes probabilities honest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logit

from hf_mlcl.evaluation.thresholds import checked_probabilities
from hf_mlcl.metrics import sigmoid
from hf_mlcl.metrics._arrays import ArrayLike, FloatArray, as_scores


@dataclass(frozen=True)
class Temperature:
    """A divisor of all logits that makes probabilities honest (Guo et al., 2017); decisions at 0.5 stay as they are.

    Examples:
        >>> Temperature(2.0).apply([[4.0, 0.0]]).round(3).tolist()
        [[0.881, 0.5]]
        >>> Temperature(2.0).apply_to_probabilities([[0.982, 0.5]]).round(3).tolist()  # as `linear_evaluate` gives them
        [[0.881, 0.5]]
    """

    value: float = 1.0

    def apply(self, logits: ArrayLike) -> FloatArray:
        """Calibrated probabilities."""
        return sigmoid(as_scores(logits, "logits") / self.value)

    def apply_to_probabilities(self, probabilities: ArrayLike) -> FloatArray:
        """The same for scores that are probabilities already, such as the mean of several heads."""
        return self.apply(_logit(as_scores(probabilities, "probabilities")))


def fit_temperature(labels: ArrayLike, probabilities: ArrayLike) -> Temperature:
    """The temperature with the lowest cross-entropy on validation scores.

    Args:
        labels: Multi-hot truth (rows, labels).
        probabilities: Between 0 and 1, same shape.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(0, 2, (5000, 2))
        >>> labels = rng.random(logits.shape) < sigmoid(logits)
        >>> round(fit_temperature(labels, sigmoid(3 * logits)).value, 1)
        3.0
    """
    truth, p = checked_probabilities(labels, probabilities)
    margin = np.where(truth, 1, -1) * _logit(p.astype(np.float64))

    def loss(log_temperature: float) -> float:
        return float(np.logaddexp(0, -margin / np.exp(log_temperature)).mean())

    found = minimize_scalar(loss, bounds=(np.log(0.05), np.log(20)), method="bounded", options={"xatol": 1e-6})
    return Temperature(float(np.exp(found.x)))


def _logit(p: FloatArray) -> FloatArray:
    tiny = np.finfo(p.dtype).eps
    return np.asarray(logit(np.clip(p, tiny, 1 - tiny)))
