"""The linear problem of the penalty proposition, section 3.4: f(X) = Re<M, X>, with and without the penalty."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from glideslope.formulas.arguments import check_matrices, check_positive
from glideslope.solve.problem import Optimum, Problem
from glideslope.solve.rows import as_tensor
from glideslope.theory import Constants


class LinearProblem(Problem):
    """f(X) = Re<M, X>, minimised on the manifold by -U V^H for M = U Σ V^H.

    Args:
        M: Matrix of shape (n, p) with n >= p; torch tensor or NumPy array.

    Examples:
        >>> gs.minimize(gs.problems.LinearProblem(torch.randn(8, 3))).converged
        True
    """

    def __init__(self, M: Any) -> None:
        self.from_numpy = isinstance(M, np.ndarray)
        self.M: Tensor = as_tensor(M) if self.from_numpy else M
        check_matrices(M=self.M)
        if self.M.ndim != 2 or not bool(torch.isfinite(self.M).all()):
            raise ValueError(f"M must be one finite matrix; got shape {tuple(self.M.shape)}")
        self.shape = (self.M.shape[0], self.M.shape[1])
        self.dtype, self.device = self.M.dtype, self.M.device

    def value_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Re<M, X> and M."""
        return (self.M.conj() * X).real.sum(), self.M

    def _decomposition(self) -> tuple[Tensor, Tensor, Tensor]:
        wide = self.M.to(torch.promote_types(self.M.dtype, torch.float64))
        left, singular, right = torch.linalg.svd(wide, full_matrices=False)
        return left, singular, right

    def optimum(self) -> Optimum:
        """The point -U V^H, where f = -Σ σ_i."""
        left, singular, right = self._decomposition()
        return Optimum((-left @ right).to(self.M.dtype), -float(singular.sum()))

    def penalty_minimiser(self, penalty_weight: float) -> Tensor:
        """Minimiser -U D V^H of f + λ N: each d the largest root of λ d (d² - 1) = σ, shape (n, p).

        Args:
            penalty_weight: λ > 0.
        """
        check_positive(penalty_weight=penalty_weight)
        left, singular, right = self._decomposition()
        scaled = singular / penalty_weight
        # Newton's method from above the root: d (d² - 1) is convex there, so every iterate stays above it.
        root = 1 + torch.minimum(scaled ** (1 / 3), scaled / 2)
        for _ in range(60):
            root = root - (root * (root.square() - 1) - scaled) / (3 * root.square() - 1)
        return (-(left * root) @ right).to(self.M.dtype)

    def constants(self, safe_radius: float, *, each_term: bool = False) -> Constants:
        """L = 0, L' = ‖M‖_F, s = sqrt(1+ε) ‖M‖_F."""
        size = float(torch.linalg.vector_norm(self.M))
        return Constants(smoothness=0.0, gradient_bound=size, symmetric_bound=(1 + safe_radius) ** 0.5 * size)
