"""Every loss once more, as slow loops in float64 written from its formula.

Nothing here uses the package. A contrastive oracle works on rows of autograd scalars: `Row(z, labels, is_prototype)`.
Weights that the formulas call detached are detached here too, so autograd gives the stated gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(eq=False)
class Row:
    z: Tensor
    labels: frozenset[int]
    is_prototype: bool = False
    is_queued: bool = False


def rows_of(embeddings, labels, prototypes=None, queue=None):
    """(instances, prototypes, queued) as lists of rows; labels are multi-hot."""

    def sets(matrix):
        return [frozenset(j for j, value in enumerate(row) if value) for row in matrix.tolist()]

    instances = [Row(z, y) for z, y in zip(embeddings, sets(labels), strict=True)]
    protos = [] if prototypes is None else [Row(c, frozenset([j]), True) for j, c in enumerate(prototypes)]
    queued = [] if queue is None else [Row(z, y, False, True) for z, y in zip(queue[0], sets(queue[1]), strict=True)]
    return instances, protos, queued


def similarity(a: Row, b: Row, tau: float) -> Tensor:
    na, nb = a.z.norm(), b.z.norm()
    if na == 0 or nb == 0:  # a zero embedding is as far from everything
        return (a.z * b.z).sum() / (tau * (na if na > 0 else 1) * (nb if nb > 0 else 1))
    return (a.z * b.z).sum() / (tau * na * nb)


def anchor_loss(i, candidates, target, tau, weight=lambda row: 1.0, regularised=False):
    """-sum_j T_ij log(exp(s_ij) / Z_i), plus the regulariser; None where the anchor has no positive.

    `weight` stands in the denominator Z only.
    """
    others = [j for j in candidates if j is not i]
    t = {id(j): target(i, j) for j in others}
    if not sum(t.values()) > 0:
        return None
    s = {id(j): similarity(i, j, tau) for j in others}
    log_z = torch.logsumexp(torch.stack([s[id(j)] + math.log(weight(j)) for j in others]), 0)
    total = torch.zeros((), dtype=torch.float64)
    for j in others:
        log_p = s[id(j)] - log_z
        total = total - t[id(j)] * log_p
        if regularised and t[id(j)] > 0:
            total = total - max(0.0, log_p.exp().item() - t[id(j)]) * s[id(j)]
    return total


def mean_over(losses, divisor=None):
    valid = [loss for loss in losses if loss is not None]
    if not valid:
        return torch.zeros((), dtype=torch.float64)
    return sum(valid) / (len(valid) if divisor is None else max(divisor, 1))


def jaccard(a, b):
    return len(a & b) / len(a | b) if a | b else 0.0


def base(instances, protos, queued, tau=0.1):
    candidates = queued + instances

    def target(i, j):
        total = sum(jaccard(i.labels, k.labels) for k in candidates if k is not i)
        return jaccard(i.labels, j.labels) / total if total else 0.0

    return mean_over([anchor_loss(i, candidates, target, tau) for i in instances])


def proto(instances, protos, queued, tau=0.1):
    def target(i, j):
        return len(i.labels & j.labels) / len(i.labels) if i.labels else 0.0

    return mean_over([anchor_loss(i, protos, target, tau) for i in instances])


def carriers(label, i, candidates):
    """P(l, i): the candidates that carry the label, without i."""
    return [k for k in candidates if k is not i and label in k.labels]


def mulsupcon(instances, protos, queued, tau=0.1):
    candidates = queued + instances

    def target(i, j):
        return sum(1 / len(carriers(label, i, candidates)) for label in i.labels if label in j.labels)

    divisor = sum(len(i.labels) for i in instances)
    return mean_over([anchor_loss(i, candidates, target, tau) for i in instances], divisor)


def balanced_target(f, candidates):
    """(1/|y_i|) sum over labels l of i: f / N(l, i)."""

    def target(i, j):
        total = 0.0
        for label in i.labels & j.labels:
            total += f(i, j) / sum(f(i, k) for k in carriers(label, i, candidates))
        return total / len(i.labels) if i.labels else 0.0

    return target


def msc(instances, protos, queued, tau=0.1, beta=0.1):
    candidates = queued + instances + protos

    def f(i, j):
        return 1.0 if j.is_prototype else 1 / len(i.labels | j.labels)

    target = balanced_target(f, candidates)
    return mean_over(
        [anchor_loss(i, candidates, target, tau, lambda j: 1.0 if j.is_prototype else beta) for i in instances]
    )


def wo_reg(instances, protos, queued, tau=0.1, alpha=0.0, regularised=False):
    candidates = queued + instances + protos

    def f(i, j):
        return (len(i.labels & j.labels) / len(j.labels)) ** alpha

    target = balanced_target(f, candidates)
    return mean_over([anchor_loss(i, candidates, target, tau, regularised=regularised) for i in instances + protos])


def reg(instances, protos, queued, tau=0.1, alpha=0.0):
    return wo_reg(instances, protos, queued, tau, alpha, regularised=True)


def supcon(instances, protos, queued, tau=0.1, regularised=False):
    candidates = queued + instances

    def target(i, j):
        same = [k for k in candidates if k is not i and i.labels and k.labels == i.labels]
        return 1 / len(same) if any(j is k for k in same) else 0.0

    return mean_over([anchor_loss(i, candidates, target, tau, regularised=regularised) for i in instances])


def supcon_reg(instances, protos, queued, tau=0.1):
    return supcon(instances, protos, queued, tau, regularised=True)


CONTRASTIVE = {
    "base": base,
    "proto": proto,
    "mulsupcon": mulsupcon,
    "msc": msc,
    "wo_reg": wo_reg,
    "reg": reg,
    "supcon": supcon,
    "supcon_reg": supcon_reg,
}
SINGLE_LABEL = {"supcon", "supcon_reg", "cross_entropy"}


# Logit losses: plain formulas, for logits of a size at which they do not overflow in float64 -------------------------


def each(x, y):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            yield x[i, j], bool(y[i, j])


def bce(x, y):
    return -sum(torch.log(torch.sigmoid(v if p else -v)) for v, p in each(x, y)) / x.numel()


def focal(x, y, gamma=2.0):
    total = 0
    for v, p in each(x, y):
        pt = torch.sigmoid(v if p else -v)
        total = total - (1 - pt) ** gamma * torch.log(pt)
    return total / x.numel()


def asymmetric(x, y, gamma_pos=0.0, gamma_neg=1.0, margin=0.0):
    total = 0
    for v, p in each(x, y):
        q = torch.sigmoid(v)
        if p:
            total = total - (1 - q) ** gamma_pos * torch.log(q)
        elif q > margin:
            total = total - (q - margin) ** gamma_neg * torch.log(1 - (q - margin))
    return total / x.numel() + 0 * x.sum()


def lsep(x, y):
    total = 0
    for row, labels in zip(x, y, strict=True):
        inner = 1 + 0 * row.sum()
        for n, is_n in zip(row, ~labels.bool(), strict=True):
            for p, is_p in zip(row, labels.bool(), strict=True):
                if is_n and is_p:
                    inner = inner + torch.exp(n - p)
        total = total + torch.log(inner)
    return total / len(x)


def zlpr(x, y):
    total = 0
    for row, labels in zip(x, y, strict=True):
        pos = sum((torch.exp(-v) for v, p in zip(row, labels, strict=True) if p), 1 + 0 * row.sum())
        neg = sum((torch.exp(v) for v, p in zip(row, labels, strict=True) if not p), 1 + 0 * row.sum())
        total = total + torch.log(pos) + torch.log(neg)
    return total / len(x)


def two_way(x, y, positive_temperature=4.0):
    total = 0 * x.sum()
    for way, labels in ((x, y.bool()), (x.T, y.bool().T)):
        ranked = [(row, marks) for row, marks in zip(way, labels, strict=True) if marks.any()]
        for row, marks in ranked:
            positives = sum(torch.exp(-v / positive_temperature) for v, p in zip(row, marks, strict=True) if p)
            negatives = sum((torch.exp(v) for v, p in zip(row, marks, strict=True) if not p), 0 * row.sum())
            total = total + torch.log(1 + negatives * positives**positive_temperature) / len(ranked)
    return total


def cross_entropy(x, y):
    rows = [(row, labels) for row, labels in zip(x, y, strict=True) if labels.any()]
    total = sum((-row[labels.bool()][0] + torch.log(torch.exp(row).sum()) for row, labels in rows), 0 * x.sum())
    return total / max(len(rows), 1)


LOGIT = {
    "bce": bce,
    "focal": focal,
    "asymmetric": asymmetric,
    "lsep": lsep,
    "zlpr": zlpr,
    "two_way": two_way,
    "cross_entropy": cross_entropy,
}
