"""L_W/O-REG and L_REG, the study's own losses."""

from __future__ import annotations

from hf_mlcl.losses.balanced import balanced_targets
from hf_mlcl.losses.contrastive import ContrastiveLoss, Rows, Targets
from hf_mlcl.losses.registry import register_loss


@register_loss("wo_reg")
class WithoutRegLoss(ContrastiveLoss):
    """Label-balanced attraction among instances and prototypes alike.

    A prototype is a row of the batch that carries its own label: it is candidate and anchor.

    Args:
        temperature: tau > 0.
        alpha: How much partners with further labels are discounted: f = (|y_i and y_j| / |y_j|)^alpha. 0 discounts
            none; the study tries 0 and 1.
        chunk_size: See `ContrastiveLoss`.

    Relations:
        `reg` is this loss with the regulariser. Without prototypes and with a mean over labels it would be `mulsupcon`.

    Examples:
        >>> import torch
        >>> from hf_mlcl import build_loss
        >>> loss = build_loss("wo_reg", alpha=1.0)
        >>> loss(torch.randn(4, 8), torch.randint(0, 2, (4, 3)), torch.randn(3, 8)).shape
        torch.Size([])
    """

    uses_prototypes = True
    formula = "T_ij = 1/|y_i| sum_(l in y_i) [y_jl] f_ij / N(l, i),  f = (|y_i and y_j| / |y_j|)^alpha"
    citation = (
        "Audibert, Gauffre, Amini (2024), Multi-Label Contrastive Learning: A Comprehensive Study, arXiv:2412.00101"
    )

    def __init__(self, temperature: float = 0.1, alpha: float = 0.0, chunk_size: int | None = None) -> None:
        super().__init__(temperature, chunk_size)
        if not alpha >= 0:
            raise ValueError(f"alpha must be at least 0, got {alpha}. 0 switches the re-weighting off.")
        self.alpha = float(alpha)

    def anchors(self, rows: Rows) -> range:
        """Instances and prototypes."""
        return range(rows.instances.start, rows.prototypes.stop)

    def targets(self, rows: Rows) -> Targets:
        """Balanced over the anchor's labels, partners discounted by alpha."""
        labels = rows.label_sets()
        if self.alpha == 0.0:
            return balanced_targets(rows, labels)
        candidate_sizes = labels.sizes.clamp(min=1.0)
        return balanced_targets(rows, labels, lambda shared, _: shared.div_(candidate_sizes).pow_(self.alpha))


@register_loss("reg")
class RegLoss(WithoutRegLoss):
    """`wo_reg` with the gradient regulariser: no positive pair is ever pushed apart.

    Where a positive pair is already more probable than its target, the plain loss pushes it apart as if it were a
    negative one. The regulariser takes that part of the gradient away; the minimum stays the same.

    Args:
        temperature: tau > 0.
        alpha: See `WithoutRegLoss`.
        chunk_size: See `ContrastiveLoss`.

    Examples:
        The share of positive pairs that the regulariser touches comes from the same pass:

        >>> import torch
        >>> from hf_mlcl import build_loss
        >>> loss = build_loss("reg")
        >>> parts = loss.parts(torch.randn(16, 8), torch.ones(16, 3), torch.randn(3, 8), statistics=True)
        >>> bool(0 < parts.statistics()["prr"] < 1)
        True
    """

    regularised = True
    formula = WithoutRegLoss.formula + ",  minus sum_(j positive) max(0, detach(p_ij) - T_ij) s_ij"
