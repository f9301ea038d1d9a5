"""Joint diagonalisation: the orthonormal X that makes the matrices X^H C_k X as diagonal as can be."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from glideslope.formulas.arguments import check_whole_number
from glideslope.solve.problem import Problem
from glideslope.solve.problems.quadratic import check_hermitian
from glideslope.solve.rows import as_tensor


class JointDiagonalization(Problem):
    """f(X) = 1/(2K) Σ_k ‖off(X^H C_k X)‖_F², off(M) being M without its diagonal: a mean of K terms.

    The gradient is 2/K Σ_k C_k X off(X^H C_k X). An evaluation costs O(K n² p), and remembers K n p numbers.

    Args:
        matrices: Hermitian C_k, shape (K, n, n), torch tensor or NumPy array.
        n_columns: p. Default: n.

    Examples:
        >>> problem = gs.problems.JointDiagonalization(torch.diag_embed(torch.rand(5, 4)))
        >>> gs.minimize(problem).value < 1e-6
        True
    """

    def __init__(self, matrices: Any, n_columns: int | None = None) -> None:
        self.from_numpy = isinstance(matrices, np.ndarray)
        self.matrices: Tensor = as_tensor(matrices) if self.from_numpy else matrices
        shape = tuple(self.matrices.shape)
        if len(shape) != 3 or shape[1] != shape[2] or 0 in shape:
            raise ValueError(f"matrices must have shape (K, n, n); got {shape}")
        check_hermitian("matrices", self.matrices)
        n = shape[1]
        if n_columns is not None:
            check_whole_number("n_columns", n_columns, least=1, most=n)
        self.n_terms, self.shape = shape[0], (n, n_columns or n)
        self.dtype, self.device = self.matrices.dtype, self.matrices.device

    def value_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """f(X) and its gradient, which share the products with the matrices."""
        return mean_of_terms(self.matrices, X)

    def batch_gradient(self, X: Tensor, index: Tensor | slice) -> Tensor:
        """Gradient of the mean of the terms of an index."""
        return mean_of_terms(self.matrices[index], X)[1]


def mean_of_terms(matrices: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of ½ ‖off(X^H C X)‖² over some C, shape (), and its gradient."""
    K, n, _ = matrices.shape
    p = X.shape[1]
    products = (matrices.reshape(K * n, n) @ X).view(K, n, p)
    off = X.mH @ products
    off.diagonal(dim1=-2, dim2=-1).zero_()
    value = torch.linalg.vector_norm(off).square() / (2 * K)
    # Σ_k C_k X off_k as one product of n x (K p) with (K p) x p.
    G = products.transpose(0, 1).reshape(n, K * p) @ off.reshape(K * p, p)
    return value, G.mul_(2 / K)
