"""Independent components, section 4.2 of the paper: f(X) = (1/N) Σ_i Σ_j log cosh([a_i X]_j) on whitened data."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from glideslope.formulas.arguments import check_option
from glideslope.solve.problem import RowSum
from glideslope.theory import Constants

SCORES = ("logcosh", "adaptive")
LOG_2 = math.log(2)
LARGEST_THIRD_DERIVATIVE = 4 / (3 * math.sqrt(3))  # of log cosh


def log_cosh(Y: Tensor) -> Tensor:
    """Log cosh of every entry, without overflow: |y| + log(1 + e^{-2|y|}) - log 2."""
    size = Y.abs()
    return size + torch.nn.functional.softplus(-2 * size) - LOG_2


class ICA(RowSum):
    """Independent directions of whitened data: f_i(X) = Σ_j s_j log cosh([a_i X]_j).

    Args:
        data: Whitened real samples, one per row, shape (N, n).
        n_components: p. Default: n.
        score: "logcosh" has s_j = 1, for super-Gaussian sources. "adaptive" takes s_j = -1 for the directions that
            are sub-Gaussian, decided anew before the first step and after every pass over the data.

    Examples:
        >>> sources = torch.rand(500, 3) - 0.5  # white and independent
        >>> gs.minimize(gs.problems.ICA(sources * 12**0.5)).X.shape
        torch.Size([3, 3])
    """

    kept = ("signs",)

    def __init__(self, data: Any, n_components: int | None = None, *, score: str = "logcosh") -> None:
        check_option("score", score, SCORES)
        width = data.shape[1] if n_components is None and getattr(data, "ndim", 0) == 2 else n_components
        super().__init__(data, width)
        if self.dtype in (torch.complex64, torch.complex128):
            raise ValueError(f"ICA needs real data; got {self.dtype}")
        self.score = score
        self.signs: Tensor | None = None

    def column_weights(self) -> Tensor | None:
        """The signs s_j, once there are any."""
        return self.signs

    def loss(self, Y: Tensor, index: Tensor | slice) -> Tensor:
        """Sum of s_j log cosh."""
        return self.weigh(log_cosh(Y)).sum()

    def scores(self, Y: Tensor, index: Tensor | slice) -> Tensor:
        """The derivatives tanh, without the signs."""
        return torch.tanh(Y)

    def refresh(self, X: Tensor) -> bool:
        """Decide which directions are sub-Gaussian at X, by one pass over the data."""
        if self.score != "adaptive":
            return False
        moments = torch.zeros((3, X.shape[1]), dtype=X.dtype, device=X.device)
        for _, _, Y in self.products(X):
            tanh = torch.tanh(Y)
            moments += torch.stack([Y.square().sum(0), (1 - tanh.square()).sum(0), (Y * tanh).sum(0)])
        square, slope, product = moments / self.n_terms
        before, self.signs = self.signs, torch.where(square * slope - product >= 0, 1.0, -1.0).to(X.dtype)
        return before is None or not torch.equal(before, self.signs)

    def constants(self, safe_radius: float, *, each_term: bool = False) -> Constants:
        """Constants of the terms from the longest row, L = ‖a‖² and L' = ‖a‖ sqrt(p); of f, from means over rows.

        |tanh| <= 1, its derivative is at most 1 and its second derivative at most 4/(3 sqrt 3).
        """
        self.refuse_ranks("its constants")
        _, p = self.known_shape()
        if each_term:
            first = self.largest_row_norm()
            second, third = first**2, first**3
        else:
            norms = torch.cat([torch.linalg.vector_norm(A, dim=1).double() for _, A in self.rows.blocks()])
            first, third = float(norms.mean()), float(norms.pow(3).mean())
            second = float(torch.linalg.eigvalsh(self.second_moment(torch.float64))[-1])
        gradient_bound = first * math.sqrt(p)
        return Constants(
            smoothness=second,
            gradient_bound=gradient_bound,
            symmetric_bound=math.sqrt(1 + safe_radius) * gradient_bound,
            hessian_lipschitz=LARGEST_THIRD_DERIVATIVE * third,
        )
