"""The linear evaluation as one would write it first: a module, an optimiser and a schedule for each head."""

import numpy as np
import torch
from torch.nn import functional as F


def make_optimizer(name, weight, bias, rate, decay, momentum):
    groups = [{"params": [weight], "weight_decay": decay}, {"params": [bias], "weight_decay": 0.0}]
    if name == "sgd":
        return torch.optim.SGD(groups, lr=rate, momentum=momentum)
    return {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop}[name](groups, lr=rate)


def train_head(batches, weight, bias, name, rate, decay, momentum=0.9, dtype=torch.float32):
    """Train one head on a list of (features, labels) batches; yields a copy of its weight and bias after each step."""
    weight = torch.nn.Parameter(weight.clone().to(dtype))
    bias = torch.nn.Parameter(bias.clone().to(dtype))
    optimizer = make_optimizer(name, weight, bias, rate, decay, momentum)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / len(batches))
    for x, y in batches:
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(x.to(dtype) @ weight.T + bias, y.to(dtype)).backward()
        optimizer.step()
        schedule.step()
        yield weight.detach().clone(), bias.detach().clone()


def linear_evaluate_plainly(train, validation, config):
    """Per-label validation F1 of the best grid point, head after head, each with its own initialisation and order."""
    (x, y), (vx, vy) = train, validation
    x, vx, y = torch.as_tensor(x).float(), torch.as_tensor(vx).float(), torch.as_tensor(np.asarray(y)).float()
    scores = []
    for rate, decay in config.grid():
        heads = []
        for head in range(config.heads):
            random = torch.Generator().manual_seed(1000 * head + 17)
            weight = torch.empty(y.shape[1], x.shape[1])
            torch.nn.init.xavier_uniform_(weight, generator=random)
            batches = []
            for _ in range(config.epochs):
                order = torch.randperm(len(x), generator=random)
                batches += [(x[b], y[b]) for b in order.split(config.batch_size)]
            *_, (weight, bias) = train_head(batches, weight, torch.zeros(y.shape[1]), config.optimizer, rate, decay)
            heads.append(torch.sigmoid(vx @ weight.T + bias))
        p = torch.stack(heads).mean(0).numpy()
        hits = ((p >= 0.5) & (vy == 1)).sum(0)
        scores.append(2 * hits / np.maximum((p >= 0.5).sum(0) + (vy == 1).sum(0), 1))
    return np.max(scores, axis=0)
