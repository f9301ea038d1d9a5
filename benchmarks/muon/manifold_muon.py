"""Manifold Muon by dual ascent: the steepest tangent direction of a bounded spectral norm, found by an inner loop.

Maximises <M, A> over the tangent A, those with sym(XᵀA) = 0, of spectral norm at most one; M is the momentum. With a
symmetric multiplier Λ the maximiser is A = sign(M + X Λ), where sign(U S Vᵀ) = U Vᵀ. The dual minimises the nuclear
norm of M + X Λ, whose gradient in Λ is sym(XᵀA).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

# Five steps that bring singular values near one (those of torch.optim.Muon), then two that converge.
COARSE, FINE = (3.4445, -4.7750, 2.0315), (15 / 8, -10 / 8, 3 / 8)
SIGN = (*[COARSE] * 5, *[FINE] * 2)
RETRACTION = (FINE,) * 2  # X - lr A is near the manifold: its singular values are in [1 - lr, 1 + lr]
ITERATIONS = 10
DUAL_STEP = 0.1  # for M scaled to singular values of root mean square one; it falls linearly to zero
TANGENT_ENOUGH = 1e-2  # of ‖sym(XᵀA)‖ / √p, which is at most one


def newton_schulz(X: Tensor, steps: tuple[tuple[float, float, float], ...]) -> Tensor:
    """X (a I + b XᵀX + c (XᵀX)²), once for every (a, b, c): three products each."""
    for a, b, c in steps:
        gram = X.mT @ X
        X = a * X + X @ (b * gram + c * gram @ gram)
    return X


def matrix_sign(M: Tensor) -> Tensor:
    """The orthonormal factor of the polar decomposition of tall matrices, (*batch, n, p), by products."""
    norm = torch.linalg.matrix_norm(M, keepdim=True)
    return newton_schulz(M / norm.clamp(min=torch.finfo(M.dtype).tiny), SIGN)


def symmetric(S: Tensor) -> Tensor:
    """(S + Sᵀ) / 2."""
    return (S + S.mT) / 2


class Direction(NamedTuple):
    """A direction of spectral norm one, the matrix signs it took, and the ‖sym(XᵀA)‖ / √p that is left."""

    A: Tensor
    signs: int
    left: float


def tangent_direction(X: Tensor, M: Tensor, iterations: int = ITERATIONS) -> Direction:
    """The dual ascent, for X and M of shape (*batch, n, p); it starts at the Λ that makes M + X Λ tangent."""
    p = X.shape[-1]
    M = M * (p**0.5 / torch.linalg.matrix_norm(M, keepdim=True).clamp(min=torch.finfo(M.dtype).tiny))
    multiplier = -symmetric(X.mT @ M)
    for done in range(iterations):
        A = matrix_sign(M + X @ multiplier)
        normal = symmetric(X.mT @ A)
        left = torch.linalg.matrix_norm(normal).max().item() / p**0.5
        if left < TANGENT_ENOUGH:
            break
        multiplier = multiplier - 2 * DUAL_STEP * (1 - done / iterations) * normal
    return Direction(A, done + 1, left)


class ManifoldMuon(torch.optim.Optimizer):
    """X <- sign(X - lr A) with A from the dual ascent along the Nesterov momentum that torch.optim.Muon has.

    `signs` counts matrix signs, retractions not included; `left` has the largest ‖sym(XᵀA)‖ / √p of each step.
    """

    def __init__(self, params: Any, lr: float, momentum: float = 0.95) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})
        self.signs = 0
        self.left: list[float] = []

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Step the matrices of each shape as one batch."""
        left = 0.0
        for group in self.param_groups:
            stacks: dict[tuple[int, ...], list[Tensor]] = {}
            for param in group["params"]:
                stacks.setdefault(tuple(tall(param).shape), []).append(param)
            for params in stacks.values():
                X = torch.stack([tall(param) for param in params])
                M = torch.stack([tall(self._momentum(param, group["momentum"])) for param in params])
                found = tangent_direction(X, M)
                self.signs += found.signs * len(params)
                left = max(left, found.left)
                for param, new in zip(params, newton_schulz(X - group["lr"] * found.A, RETRACTION), strict=True):
                    tall(param).copy_(new)
        self.left.append(left)

    def _momentum(self, param: Tensor, momentum: float) -> Tensor:
        grad = param.grad
        assert grad is not None
        buffer: Tensor = self.state[param].setdefault("momentum_buffer", torch.zeros_like(grad))
        buffer.lerp_(grad, 1 - momentum)
        return grad.lerp(buffer, momentum)


def tall(matrix: Tensor) -> Tensor:
    """The matrix, or its transpose if that has more rows."""
    return matrix if matrix.shape[0] >= matrix.shape[1] else matrix.mT
