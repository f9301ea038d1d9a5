"""Procrustes: f(X) = 1/(2N) ‖A X - B‖_F², the orthonormal matrix that best maps the rows of A to those of B."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from glideslope.solve.problem import Optimum, RowSum
from glideslope.solve.rows import Rows
from glideslope.theory import Constants, quadratic_constants


class Procrustes(RowSum):
    """Terms f_i(X) = ½ ‖a_i X - b_i‖².

    Args:
        A: Rows to map, shape (N, n).
        B: Rows to reach, shape (N, p).

    Examples:
        >>> problem = gs.problems.Procrustes(torch.randn(9, 5), torch.randn(9, 5))
        >>> gs.minimize(problem).X.shape
        torch.Size([5, 5])
    """

    def __init__(self, A: Any, B: Any) -> None:
        self.targets = Rows(B, name="B")
        super().__init__(A, self.targets.shape[1], name="A")
        if len(self.targets) != self.n_terms or self.targets.dtype != self.dtype:
            raise ValueError(
                f"A and B must have the same number of rows and the same type; got {self.rows.shape} {self.dtype} "
                f"and {self.targets.shape} {self.targets.dtype}"
            )
        self._normal: tuple[Tensor, Tensor, float] | None = None

    def loss(self, Y: Tensor, index: Tensor | slice) -> Tensor:
        """Sum of ½ ‖y_i - b_i‖²."""
        return (Y - self.targets.take(index).to(Y.device)).abs().square().sum() / 2

    def scores(self, Y: Tensor, index: Tensor | slice) -> Tensor:
        """The derivatives y_i - b_i."""
        return Y - self.targets.take(index).to(Y.device)

    def normal_equations(self) -> tuple[Tensor, Tensor, float]:
        """A^H A / N, A^H B / N and ‖B‖² / N."""
        self.refuse_ranks("its normal equations")
        if self._normal is None:
            n, p = self.known_shape()
            square = torch.zeros((n, n), dtype=self.dtype, device=self.device)
            cross = torch.zeros((n, p), dtype=self.dtype, device=self.device)
            size = 0.0
            for where, A in self.rows.blocks():
                B = self.targets.take(where)
                square.addmm_(A.mH, A)
                cross.addmm_(A.mH, B)
                size += float(B.abs().square().sum())
            self._normal = square / self.n_terms, cross / self.n_terms, size / self.n_terms
        return self._normal

    def optimum(self) -> Optimum | None:
        """The polar factor of A^H B, where ‖A X‖ is the same for all X: for n = p, or A^H A a multiple of I."""
        n, p = self.known_shape()
        square, cross, size = self.normal_equations()
        scale = float(square.diagonal().real.mean())
        identity = torch.eye(n, dtype=square.dtype, device=square.device)
        rounding = 100 * math.sqrt(n) * torch.finfo(square.dtype).eps * scale
        if n > p and float(torch.linalg.matrix_norm(square - scale * identity)) > rounding:
            return None
        wide = cross.to(torch.promote_types(cross.dtype, torch.float64))
        left, singular, right = torch.linalg.svd(wide, full_matrices=False)
        mapped = float(square.diagonal().real.double().sum()) if n == p else scale * p
        return Optimum((left @ right).to(self.dtype), mapped / 2 - float(singular.sum()) + size / 2)

    def constants(self, safe_radius: float, *, each_term: bool = False) -> Constants:
        """Constants of the quadratic with M = A^H A / N and B = -A^H B / N; of the terms, from their longest rows."""
        _, p = self.known_shape()
        if not each_term:
            square, cross, _ = self.normal_equations()
            return quadratic_constants(square, -cross, columns=p, safe_radius=safe_radius)
        rows, stretch = self.largest_row_norm(), math.sqrt(1 + safe_radius)
        linear = rows * max(float(torch.linalg.vector_norm(B, dim=1).max()) for _, B in self.targets.blocks())
        gradient_bound = stretch * rows**2 + linear
        return Constants(smoothness=rows**2, gradient_bound=gradient_bound, symmetric_bound=stretch * gradient_bound)
