"""One optimiser for all heads of the linear evaluation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hf_mlcl.evaluation.config import LinearEvaluationConfig
from hf_mlcl.evaluation.heads import GridHeads


class BatchedOptimizer:
    """torch's optimiser over all heads at once, each with the learning rate and weight decay of its grid point.

    torch sees one parameter group a learning rate, views of the tensors that hold all heads. Weight decay, which
    differs within a group and spares the biases, is applied here before torch's step, where torch itself would: to the
    weights for AdamW, to their gradient for the others. A learning rate falls linearly to 0 over `steps`. Each step
    updates `heads` in place and overwrites `weight_grad`.
    """

    def __init__(
        self, heads: GridHeads, weight_grad: Tensor, bias_grad: Tensor, config: LinearEvaluationConfig, steps: int
    ) -> None:
        self.weight, self.weight_grad, self.decoupled = heads.weight, weight_grad, config.optimizer == "adamw"
        self.learning_rates = config.learning_rates
        rates, decays = torch.tensor(config.grid(), dtype=torch.float64).T.view(2, len(heads.weight), 1, 1, 1)
        self.shrink, self.decay = (rates * decays).to(heads.weight), decays.to(heads.weight)

        groups: list[dict[str, Any]] = []
        points = len(config.weight_decays)
        for index, rate in enumerate(config.learning_rates):
            block = slice(index * points, (index + 1) * points)
            params = [torch.nn.Parameter(heads.weight[block]), torch.nn.Parameter(heads.bias[block])]
            params[0].grad, params[1].grad = weight_grad[block], bias_grad[block]
            groups.append({"params": params, "lr": rate})
        kwargs: dict[str, Any] = {} if config.optimizer == "rmsprop" else {"fused": heads.weight.device.type != "mps"}
        if config.optimizer == "sgd":
            kwargs["momentum"] = config.momentum
        # Without weight decay Adam and AdamW are the same.
        classes = {"adamw": "Adam", "adam": "Adam", "rmsprop": "RMSprop", "sgd": "SGD"}
        self.optimizer: torch.optim.Optimizer = getattr(torch.optim, classes[config.optimizer])(groups, **kwargs)
        self.steps, self.taken = steps, 0

    def step(self) -> None:
        """One update of all heads."""
        share = 1 - self.taken / self.steps
        for group, rate in zip(self.optimizer.param_groups, self.learning_rates, strict=True):
            group["lr"] = share * rate
        if self.decoupled:
            self.weight.mul_(1 - share * self.shrink)
        else:
            self.weight_grad.addcmul_(self.weight, self.decay)
        self.optimizer.step()
        self.taken += 1
