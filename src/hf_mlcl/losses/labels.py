"""Label sets of the rows of a contrast, and the checks that labels pass before a loss sees them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses import FakeTensor  # its only place

NO_CLASS = -100
"""The class id of a row without a class, as in `torch.nn.functional.cross_entropy`."""


class LabelSets:
    """The label sets of the rows *queue, instances, prototypes* as a 0/1 matrix Y, without storing its identity block.

    A prototype carries its own label only, so the last L rows of Y are the identity: products with them are copies.
    That keeps 10,000 labels as cheap as their similarities, where the explicit matrix would cost 40 times as much.

    Examples:
        >>> labels = LabelSets(torch.tensor([[1.0, 1.0], [0.0, 1.0]]), with_prototypes=True)
        >>> labels.sizes.tolist(), labels.counts.tolist()
        ([2.0, 1.0, 1.0, 1.0], [2.0, 3.0])
        >>> labels.shared(labels[0:1], torch.empty(1, 4)).tolist()  # labels that row 0 shares with every row
        [[2.0, 1.0, 1.0, 1.0]]
    """

    def __init__(self, multi_hot: Tensor, with_prototypes: bool) -> None:
        self.multi_hot = multi_hot
        self.with_prototypes = with_prototypes
        self.split = multi_hot.shape[0]

    @property
    def sizes(self) -> Tensor:
        """Number of labels of each row."""
        sizes = self.multi_hot.sum(1)
        return torch.cat([sizes, sizes.new_ones(self.multi_hot.shape[1])]) if self.with_prototypes else sizes

    @property
    def counts(self) -> Tensor:
        """Number of rows that carry each label."""
        return self.multi_hot.sum(0) + float(self.with_prototypes)

    def __getitem__(self, rows: slice) -> Tensor:
        """Y[rows], of shape (rows, L)."""
        if rows.stop <= self.split:
            return self.multi_hot[rows]
        labels = self.multi_hot.shape[1]
        first = max(rows.start - self.split, 0)
        one_hot = self.multi_hot.new_zeros((rows.stop - self.split - first, labels))
        one_hot.diagonal(first).fill_(1.0)
        return torch.cat([self.multi_hot[rows.start :], one_hot]) if rows.start < self.split else one_hot

    def shared(self, weights: Tensor, out: Tensor) -> Tensor:
        """``weights @ Y.T`` in `out`: for each row, the summed weights of the labels it carries."""
        out[:, : self.split].addmm_(weights, self.multi_hot.T, beta=0.0)
        if self.with_prototypes:
            out[:, self.split :] = weights
        return out

    def per_label(self, pair_weights: Tensor) -> Tensor:
        """``pair_weights @ Y``: for each label, the summed weights of the rows that carry it."""
        sums = pair_weights[:, : self.split] @ self.multi_hot
        return sums + pair_weights[:, self.split :] if self.with_prototypes else sums


def check_dense(**inputs: Any) -> None:
    """Raise for inputs that are not dense tensors, by their names; None only of labels: the rest may be left out."""
    if "labels" in inputs and inputs["labels"] is None:
        raise ValueError("labels are missing: give a tensor with the labels of every row.")
    for name, value in inputs.items():
        if value is not None and not isinstance(value, Tensor):
            raise ValueError(
                f"{name} must be a torch.Tensor, got {type(value).__name__}. Convert it first: torch.as_tensor({name})."
            )
        if value is not None and value.layout != torch.strided:
            raise ValueError(f"{name} must be a dense tensor, got {value.layout}. Convert it: {name}.to_dense().")


def has_values(tensor: Tensor) -> bool:
    """Whether a tensor's values can be looked at: not those of torch.func, of FakeTensorMode and of the meta device."""
    return not (tensor.is_meta or isinstance(tensor, FakeTensor) or _is_transformed(tensor))


def _is_transformed(tensor: Tensor) -> bool:
    # Private, but torch has no public way to ask; torch.compile, which cannot trace it, never comes here.
    return not torch.compiler.is_compiling() and torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def check_followed(embeddings: Tensor) -> None:
    """Raise where a contrastive loss, whose gradient is computed in closed form, cannot be followed."""
    if _is_transformed(embeddings):
        raise NotImplementedError(
            "Contrastive losses compute their gradient in closed form, which torch.func (grad, vmap, jvp, ...) cannot "
            "follow. Call backward(), or torch.autograd.grad, on the loss."
        )
    if embeddings.is_meta:
        raise ValueError(
            "embeddings are on the meta device, where there is nothing to compute with. For shapes alone, call the "
            "loss under torch._subclasses.FakeTensorMode."
        )


def check_multi_hot(labels: Tensor, rows: Tensor, *, rows_name: str) -> None:
    """Raise unless `labels` is a matrix with as many rows as `rows`, on its device."""
    if labels.ndim != 2:
        raise ValueError(
            f"labels must be a multi-hot matrix of shape (batch, num_labels), but have shape {tuple(labels.shape)}. "
            "Encode class ids with torch.nn.functional.one_hot first."
        )
    _check_same_batch(labels, rows, rows_name=rows_name)


def to_class_ids(labels: Tensor, rows: Tensor, *, rows_name: str, check_values: bool) -> Tensor:
    """Class ids (batch,) from class ids or one-hot rows; a row without a class becomes `NO_CLASS`."""
    _check_same_batch(labels, rows, rows_name=rows_name)
    if labels.ndim == 1:
        if labels.is_floating_point() or labels.dtype == torch.bool:
            raise ValueError(f"labels of shape (batch,) must be integer class ids, but came as {labels.dtype}.")
        wrong = labels[(labels < 0) & (labels != NO_CLASS)] if check_values else labels[:0]
        if len(wrong):
            raise ValueError(
                f"labels must be class ids >= 0, or {NO_CLASS} for a row without a class; got {int(wrong[0])}."
            )
        return labels.long()
    if labels.ndim != 2:
        raise ValueError(
            "labels must be class ids of shape (batch,) or one-hot of shape (batch, num_classes), "
            f"but came with shape {tuple(labels.shape)}."
        )
    if check_values:
        check_zero_one(labels)
        most = int(labels.sum(1).max()) if labels.numel() else 0
        if most > 1:
            raise ValueError(
                f"labels must name at most one class a row for a single-label loss; one row has {most}. "
                "Use a multi-label loss (for example 'reg' or 'zlpr') for such data."
            )
    return torch.where(labels.bool().any(1), labels.long().argmax(1), NO_CLASS)


def check_zero_one(labels: Tensor) -> None:
    """Raise unless every entry is 0 or 1. On an accelerator this waits for the device."""
    if labels.dtype == torch.bool:
        return
    as_zero_one = labels.bool().to(labels.dtype)
    if not torch.equal(labels, as_zero_one):
        row, column = (labels != as_zero_one).nonzero()[0].tolist()
        raise ValueError(
            f"labels must be 0 or 1, but labels[{row}, {column}] is {labels[row, column].item()}. "
            "Pass multi-hot labels, not ids or probabilities."
        )


def _check_same_batch(labels: Tensor, rows: Tensor, *, rows_name: str) -> None:
    if labels.shape[:1] != rows.shape[:1]:
        raise ValueError(
            f"labels and {rows_name} must have the same number of rows; got {labels.shape[0] if labels.ndim else 0} "
            f"rows of labels for {rows.shape[0]} rows of {rows_name}."
        )
    if labels.device != rows.device:
        raise ValueError(f"labels are on {labels.device} but {rows_name} on {rows.device}; move them together.")
