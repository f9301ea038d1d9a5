"""The optimizers that are compared: ours, and those that people use for rotations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import orthogonal

import glideslope as gs
from recipes.rotations.cayley_sgd import CayleySGD


class CayleyParametrized(torch.optim.Optimizer):
    """SGD on the skew matrices of torch's Cayley parametrization.

    A step takes the map forth once and back once, the least that a user pays. Between steps the graph of the map is
    held, as it is while a model runs.
    """

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})
        matrices = [X for group in self.param_groups for X in group["params"]]
        self.holders = [orthogonal(Holder(X), orthogonal_map="cayley") for X in matrices]
        self.inner = torch.optim.SGD([V for holder in self.holders for V in holder.parameters()], lr=lr)
        self.points = [(X, holder.weight) for X, holder in zip(matrices, self.holders, strict=True)]

    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Gradients go from the matrices to the skew matrices, and new matrices come back."""
        self.inner.param_groups[0]["lr"] = self.param_groups[0]["lr"]
        self.inner.zero_grad()
        for X, R in self.points:
            R.backward(X.grad)
        self.inner.step()
        self.points = [(X, holder.weight) for (X, _), holder in zip(self.points, self.holders, strict=True)]
        with torch.no_grad():
            for X, R in self.points:
                X.copy_(R)


class Holder(nn.Module):
    """A copy of a matrix as the weight of a module."""

    def __init__(self, X: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(X.detach().clone())


class Method(NamedTuple):
    """An optimizer of matrices and the learning rates it is tried with."""

    build: Callable[[list[Tensor], float], torch.optim.Optimizer]
    rates: tuple[float, ...]


# Rates a factor of about 1.8 apart, around the best of a first search: the chosen ones are inside. The gradient has a
# norm of 1e-3.
SGD_RATES = (56.0, 100.0, 180.0, 320.0, 560.0, 1000.0)
ADAM_RATES, MOMENTUM_RATES = (5.6e-4, 1e-3, 1.8e-3, 3.2e-3, 5.6e-3), (10.0, 18.0, 32.0, 56.0, 100.0)
METHODS = {
    "LandingSGD": Method(lambda X, lr: gs.LandingSGD(X, lr=lr), SGD_RATES),
    "LandingSGD, newton-schulz": Method(lambda X, lr: gs.LandingSGD(X, lr=lr, normal_step="newton-schulz"), SGD_RATES),
    "LandingAdam": Method(lambda X, lr: gs.LandingAdam(X, lr=lr), ADAM_RATES),
    "SGDG as it is run": Method(lambda X, lr: CayleySGD(X, lr, momentum=0, iterations=5), SGD_RATES),
    "Cayley SGD of the paper": Method(lambda X, lr: CayleySGD(X, lr, momentum=0.9, iterations=2), MOMENTUM_RATES),
    "Riemannian SGD, QR": Method(lambda X, lr: gs.RiemannianSGD(X, lr=lr), SGD_RATES),
    "torch Cayley, SGD": Method(lambda X, lr: CayleyParametrized(X, lr), SGD_RATES),
}
