"""Cayley SGD with momentum (Li, Li and Todorovic, ICLR 2020, algorithm 1), from the formulas of the paper.

This is the method known as SGDG in the code that learns rotations; it is here to be compared with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class CayleySGD(torch.optim.Optimizer):
    """M ← β M - G; W = Ŵ - Ŵᵀ with Ŵ = M Xᵀ - ½ X Xᵀ M Xᵀ; M ← W X; α = min(lr, 2q / ‖W‖); X ← Y after Y = X + α M,
    then s times Y ← X + α/2 W (X + Y), which approaches the Cayley transform.

    Args:
        params: Square orthogonal matrices, or batches of them.
        lr: Longest step α.
        momentum: β.
        iterations: s, two in the paper; the copies in use take five.
        contraction: q in (0, 1): how fast the iteration is to converge.
    """

    def __init__(
        self, params: Any, lr: float, momentum: float = 0.9, iterations: int = 2, contraction: float = 0.5
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "iterations": iterations, "contraction": contraction}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """One step on every matrix that has a gradient."""
        for group in self.param_groups:
            for X in group["params"]:
                if X.grad is not None:
                    M = group["momentum"] * self.state[X].get("momentum", torch.zeros_like(X)) - X.grad
                    X.copy_(self._moved(X, M, group))

    def _moved(self, X: Tensor, M: Tensor, group: dict[str, Any]) -> Tensor:
        MX = M @ X.mT
        W = MX - 0.5 * X @ (X.mT @ MX)
        W = W - W.mT
        M = W @ X
        self.state[X]["momentum"] = M
        norm = torch.linalg.matrix_norm(W, keepdim=True)
        step = (2 * group["contraction"] / (norm + 1e-8)).clamp(max=group["lr"])
        Y = X + step * M
        for _ in range(group["iterations"]):
            Y = X + step / 2 * (W @ (X + Y))
        return Y
