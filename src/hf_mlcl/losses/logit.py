"""Losses on logits, all in the log domain: finite, with finite gradients, at logits of any size.

Throughout, q = sigmoid(x) and log(1 - q) = log sigmoid(-x). `softplus` of torch is linear above 20 and so off by up to
2e-9 in float64; `logsigmoid` is not.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from hf_mlcl.losses.gathering import gather_rows
from hf_mlcl.losses.labels import NO_CLASS, check_dense, check_multi_hot, check_zero_one, to_class_ids
from hf_mlcl.losses.loss import Loss, number
from hf_mlcl.losses.registry import register_loss


class LogitLoss(Loss):
    """Base of the losses on logits. A subclass states `compute`.

    Inputs:
        - **logits** (B, L): in any floating dtype; the computation is in float32 (float64 stays float64).
        - **labels** (B, L): multi-hot, as bool, integers or floats.
    """

    kind = "logit"

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The mean over the batch; 0 for an empty one."""
        check_dense(logits=logits, labels=labels)
        if self.gather_across_devices:
            logits, labels = gather_rows(logits), gather_rows(labels)
        return self.of_rows(logits, labels)

    def of_rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The mean over these rows, which are gathered already."""
        if logits.ndim != 2 or not logits.is_floating_point():
            raise ValueError(
                "logits must be a floating-point matrix of shape (batch, num_labels), but came as "
                f"{logits.dtype} of shape {tuple(logits.shape)}."
            )
        logits = logits if logits.dtype == torch.float64 else logits.float()
        labels = self.check_labels(labels, logits)
        self.labels_are_right()
        terms = self.compute(logits, labels)
        return terms.sum() / max(terms.numel(), 1)

    def compute(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The terms whose mean is the loss, from checked logits and 0/1 labels of the same dtype."""
        raise NotImplementedError("A subclass of LogitLoss states its terms.")

    def check_labels(self, labels: Tensor, logits: Tensor) -> Tensor:
        """Raise for wrong labels; return them as `compute` wants them."""
        check_multi_hot(labels, logits, rows_name="logits")
        if labels.shape != logits.shape:
            raise ValueError(
                f"labels and logits must have the same shape; got {tuple(labels.shape)} and {tuple(logits.shape)}."
            )
        if self.may_look_at_values(labels):
            check_zero_one(labels)
        return labels.to(logits.dtype)


@register_loss("bce")
class BCELoss(LogitLoss):
    """Binary cross-entropy, each label on its own: the baseline of multi-label classification.

    Examples:
        >>> round(BCELoss()(torch.zeros(2, 3), torch.ones(2, 3)).item(), 4)
        0.6931
    """

    formula = "-[y log q + (1 - y) log(1 - q)],  mean over batch and labels"
    citation = "Binary relevance with log-likelihood"

    def compute(self, logits: Tensor, labels: Tensor) -> Tensor:
        """One term per label."""
        return F.binary_cross_entropy_with_logits(logits, labels, reduction="none")


@register_loss("focal")
class FocalLoss(LogitLoss):
    """BCE that attends to what the model still gets wrong.

    Args:
        gamma: How strongly easy labels are discounted; 0 is `bce`.

    Examples:
        >>> round(FocalLoss(gamma=2.0)(torch.zeros(2, 3), torch.ones(2, 3)).item(), 4)  # log 2 / 4
        0.1733
    """

    formula = "-(1 - p_t)^gamma log p_t,  p_t = q where y = 1, else 1 - q"
    citation = "Lin et al. (2017), Focal Loss for Dense Object Detection, ICCV"

    def __init__(self, gamma: float = 2.0) -> None:
        super().__init__()
        self.gamma = number("gamma", gamma)

    def compute(self, logits: Tensor, labels: Tensor) -> Tensor:
        """One term per label."""
        signed = torch.where(labels > 0, logits, -logits)  # p_t = sigmoid(signed)
        return -torch.exp(self.gamma * F.logsigmoid(-signed)) * F.logsigmoid(signed)


@register_loss("asymmetric")
class AsymmetricLoss(LogitLoss):
    """Focal loss with its own discount for positives and for negatives, and a margin under which negatives are free.

    It is `bce` with all three 0, and `focal` with both gammas equal and margin 0.

    Args:
        gamma_pos: Discount of easy positives.
        gamma_neg: Discount of easy negatives.
        margin: Negatives with a probability below it cost nothing; 0 <= margin < 1.

    Examples:
        >>> loss = AsymmetricLoss(gamma_neg=1.0)
        >>> round(loss(torch.zeros(1, 2), torch.tensor([[1, 0]])).item(), 4)  # (log 2 + log 2 / 2) / 2
        0.5199
    """

    formula = "-[y (1-q)^g+ log q + (1-y) r^g- log(1-r)],  r = max(q - margin, 0)"
    citation = "Ridnik et al. (2021), Asymmetric Loss for Multi-Label Classification, ICCV"

    def __init__(self, gamma_pos: float = 0.0, gamma_neg: float = 1.0, margin: float = 0.0) -> None:
        super().__init__()
        self.gamma_pos = number("gamma_pos", gamma_pos)
        self.gamma_neg = number("gamma_neg", gamma_neg)
        self.margin = number("margin", margin)
        if self.margin >= 1:
            raise ValueError(f"margin must be below 1, got {margin}: at 1 no negative would ever count.")

    def compute(self, logits: Tensor, labels: Tensor) -> Tensor:
        """One term per label."""
        log_q, log_not_q = F.logsigmoid(logits), F.logsigmoid(-logits)
        positive = torch.exp(self.gamma_pos * log_not_q) * log_q
        if self.margin == 0:
            negative = torch.exp(self.gamma_neg * log_q) * log_not_q
        else:
            # log(1 - r) = log(1 - q + margin). log r exists only above the margin: elsewhere 1 stands in for r, so that
            # neither value nor gradient sees the logarithm of 0.
            r = log_q.exp() - self.margin
            above = r > 0
            log_not_r = torch.logaddexp(log_not_q, log_q.new_full((), math.log(self.margin)))
            log_r = torch.where(above, r, 1.0).log()
            negative = torch.where(above, torch.exp(self.gamma_neg * log_r) * log_not_r, 0.0)
        return -torch.where(labels > 0, positive, negative)


@register_loss("lsep")
class LSEPLoss(LogitLoss):
    """Smooth ranking: every positive label above every negative one.

    Examples:
        >>> round(LSEPLoss()(torch.zeros(1, 2), torch.tensor([[1, 0]])).item(), 4)
        0.6931
    """

    ranks_only = True
    formula = "log(1 + sum_(neg, pos) exp(x_neg - x_pos)),  mean over the batch"
    citation = "Li, Song, Luo (2017), Improving Pairwise Ranking for Multi-label Image Classification, CVPR"

    def compute(self, logits: Tensor, labels: Tensor) -> Tensor:
        """One term per row: the double sum is a product of two sums, an addition in the log domain."""
        return -F.logsigmoid(-_log_sum_exp(logits, labels == 0) - _log_sum_exp(-logits, labels > 0))


@register_loss("zlpr")
class ZLPRLoss(LogitLoss):
    """Zero-bounded log-sum-exp and pairwise rank: positives above 0, negatives below it, softly.

    It is `lsep` with a label of logit 0 between positives and negatives, which makes 0 the threshold: the study's
    strongest logit loss where labels are many.

    Examples:
        >>> round(ZLPRLoss()(torch.zeros(1, 2), torch.tensor([[1, 0]])).item(), 4)  # 2 log 2
        1.3863
    """

    formula = "log(1 + sum_pos exp(-x)) + log(1 + sum_neg exp(x)),  mean over the batch"
    citation = "Su et al. (2022), ZLPR: A Novel Loss for Multi-label Classification, arXiv:2208.02955"

    def compute(self, logits: Tensor, labels: Tensor) -> Tensor:
        """One term per row."""
        return -F.logsigmoid(-_log_sum_exp(-logits, labels > 0)) - F.logsigmoid(-_log_sum_exp(logits, labels == 0))


@register_loss("two_way")
class TwoWayLoss(LogitLoss):
    """Ranks the labels of each row, and the rows of each label: every positive above every negative, both ways.

    The second way is what mean average precision and macro-F1 ask for, and gives each label of a batch the same weight,
    however rare. It needs rows to compare: batches of 16 or more. Rows without a label, and labels without a row, are
    only what others are ranked above. Like those of `lsep`, its logits rank and do not decide: 0 is no threshold. Tune
    thresholds, or fit linear heads to the features, as `hf-mlcl train` does.

    Args:
        positive_temperature: At least 1. At 1 each way is `lsep`, which looks at the lowest positives most; the higher,
            the more alike all of them are raised.

    Examples:
        >>> round(TwoWayLoss()(torch.zeros(1, 2), torch.tensor([[1, 0]])).item(), 4)  # log 2: one label has no row
        0.6931
    """

    ranks_only = True
    formula = (
        "log(1 + sum_neg exp(x) (sum_pos exp(-x / t))^t),  mean over the rows with a label plus mean over the labels "
        "with a row;  t is positive_temperature"
    )
    citation = "Kobayashi (2023), Two-Way Multi-Label Loss, CVPR"

    def __init__(self, positive_temperature: float = 4.0) -> None:
        super().__init__()
        self.positive_temperature = number("positive_temperature", positive_temperature)
        if self.positive_temperature < 1:
            raise ValueError(f"positive_temperature must be at least 1, got {positive_temperature}.")

    def compute(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Both ways, as a single term."""
        return (self._one_way(logits, labels > 0) + self._one_way(logits.T, labels.T > 0)).unsqueeze(0)

    def _one_way(self, logits: Tensor, positive: Tensor) -> Tensor:
        has_one, t = positive.any(1), self.positive_temperature
        apart = _log_sum_exp(logits, ~positive) + t * _log_sum_exp(-logits / t, positive)
        terms = torch.where(has_one, -F.logsigmoid(-apart), 0.0)
        return terms.sum() / has_one.sum().clamp(min=1)


@register_loss("cross_entropy")
class CrossEntropyLoss(LogitLoss):
    """Softmax cross-entropy, for data with one label per instance.

    Inputs:
        - **logits** (B, C)
        - **labels**: class ids (B,), -100 for a row without a class, or one-hot (B, C).

    Examples:
        >>> round(CrossEntropyLoss()(torch.zeros(2, 4), torch.tensor([3, 0])).item(), 4)  # log 4
        1.3863
    """

    formula = "-log softmax(x)_class,  mean over the rows that have a class"
    citation = "Log-likelihood of a categorical variable"

    def check_labels(self, labels: Tensor, logits: Tensor) -> Tensor:
        """Class ids from ids or one-hot rows."""
        look = self.may_look_at_values(labels)
        if labels.ndim == 2 and labels.shape != logits.shape:
            raise ValueError(
                f"one-hot labels must have the shape of the logits, {tuple(logits.shape)}; got {tuple(labels.shape)}."
            )
        ids = to_class_ids(labels, logits, rows_name="logits", check_values=look)
        if look and ids.numel() and int(ids.max()) >= logits.shape[1]:
            raise ValueError(
                f"labels must be class ids below the number of logits, {logits.shape[1]}; got {int(ids.max())}."
            )
        return ids

    def compute(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The mean over the rows that have a class, as a single term."""
        total = F.cross_entropy(logits, labels, ignore_index=NO_CLASS, reduction="sum")
        return (total / (labels != NO_CLASS).sum().clamp(min=1)).unsqueeze(0)


def _log_sum_exp(values: Tensor, where: Tensor) -> Tensor:
    """Log sum exp over the chosen entries of each row; over none, a number so low that its exponential is 0.

    The lowest finite number stands in for the others: -inf would make the gradient of an empty row NaN.
    """
    return values.masked_fill(~where, torch.finfo(values.dtype).min / 4).logsumexp(1)
