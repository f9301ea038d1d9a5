"""Quadratics f(X) = Re tr(X^H A X B) + Re<C, X>: eigenvalues, Brockett's function, weighted Procrustes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glideslope.solve.problem import Optimum, Problem
from glideslope.solve.rows import as_tensor


class Quadratic(Problem):
    """f(X) = Re tr(X^H A X B) + Re<C, X>, with the gradient 2 A X B + C. One product with A per evaluation.

    With B = I and C = 0 a minimiser spans the eigenvectors of the p smallest eigenvalues of A; with a diagonal B of
    distinct entries it has them as columns (Brockett). ‖M X - N‖² is A = M^H M, C = -2 M^H N, up to ‖N‖².

    Args:
        A: Hermitian, shape (n, n): a dense torch tensor or NumPy array, a sparse torch tensor, or a function that maps
            X to A X, for anything else. Nothing of size n x n is formed.
        B: Hermitian, shape (p, p), or the diagonal of such a matrix, shape (p,). Default: the identity.
        C: Shape (n, p). Default: zero.

    Examples:
        >>> problem = gs.problems.Quadratic(torch.diag(torch.arange(1.0, 9.0)))
        >>> round(gs.minimize(problem, gs.random_stiefel(8, 2)).value, 3)  # 1 + 2
        3.0
    """

    def __init__(self, A: Any, B: Any = None, C: Any = None) -> None:
        self.from_numpy = any(isinstance(each, np.ndarray) for each in (A, B, C))
        A, B, C = (as_tensor(each) if isinstance(each, np.ndarray) else each for each in (A, B, C))
        self.A: Tensor | Callable[[Tensor], Tensor] = A
        self.B: Tensor | None = B
        self.C: Tensor | None = C
        if isinstance(A, Tensor):
            if A.ndim != 2 or A.shape[0] != A.shape[1]:
                raise ValueError(f"A must have shape (n, n); got {tuple(A.shape)}")
            self.dtype, self.device = A.dtype, A.device
            if A.layout == torch.strided:
                check_hermitian("A", A)
        elif not callable(A):
            raise ValueError(f"A must be a matrix or a function that maps X to A X; got {type(A).__name__}")
        if B is not None and (B.ndim not in (1, 2) or len(set(B.shape)) != 1):
            raise ValueError(f"B must have shape (p, p) or (p,); got {tuple(B.shape)}")
        if B is not None and B.ndim == 2:
            check_hermitian("B", B)
        self.shape = self._known_shape()

    def _known_shape(self) -> tuple[int, int] | None:
        n = {len(each) for each in (self.A, self.C) if isinstance(each, Tensor)}
        p = {each.shape[-1] for each in (self.B, self.C) if each is not None}
        if len(n) > 1 or len(p) > 1:
            shapes = [None if not isinstance(each, Tensor) else tuple(each.shape) for each in (self.A, self.B, self.C)]
            raise ValueError(f"A must have shape (n, n), B (p, p) or (p,) and C (n, p); got {shapes}")
        return (n.pop(), p.pop()) if n and p else None

    def value_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """f(X) and 2 A X B + C."""
        product = self.A @ X if isinstance(self.A, Tensor) else self.A(X)
        if product.shape != X.shape:
            raise ValueError(
                f"A must map X to a matrix of the shape of X, {tuple(X.shape)}; got {tuple(product.shape)}"
            )
        if self.B is not None:
            product = product * self.B if self.B.ndim == 1 else product @ self.B
        value, G = real_inner(X, product), product * 2
        return (value, G) if self.C is None else (value + real_inner(X, self.C), G.add_(self.C))

    def optimum(self) -> Optimum | None:
        """Eigenvectors of A, the smallest eigenvalues with the largest of B, for a dense A and C = 0. Cost O(n³)."""
        if not isinstance(self.A, Tensor) or self.A.layout != torch.strided or self.C is not None or self.shape is None:
            return None
        n, p = self.shape
        eigenvalues, vectors = torch.linalg.eigh(self.A)
        B = torch.ones(p, dtype=eigenvalues.dtype) if self.B is None else self.B.to(self.A.device)
        weights, directions = torch.linalg.eigh(torch.diag(B).to(self.A.dtype) if B.ndim == 1 else B)
        # Without constraint B has n - p further eigenvalues 0: positive weights take the smallest eigenvalues of A in
        # ascending order, negative ones the largest.
        positive = int((weights > 0).sum())
        taken = torch.cat([torch.arange(n - p + positive, n).flip(0), torch.arange(positive).flip(0)])
        return Optimum(vectors[:, taken] @ directions.mH, float((eigenvalues[taken] * weights).sum()))


def real_inner(left: Tensor, right: Tensor) -> Tensor:
    """Re<left, right>, shape ()."""
    if left.is_complex():
        left, right = torch.view_as_real(left), torch.view_as_real(right)
    return torch.dot(left.reshape(-1), right.reshape(-1))


def check_hermitian(name: str, M: Tensor) -> None:
    """Raise a ValueError for matrices that are not finite or differ from their conjugate transpose."""
    if not bool(torch.isfinite(M).all()):
        raise ValueError(f"{name} must be finite")
    scale = float(M.abs().max())
    if float((M - M.mH).abs().max()) > math.sqrt(torch.finfo(M.dtype).eps) * scale:
        raise ValueError(
            f"{name} must be Hermitian; got one that differs from {name}.mH. Pass ({name} + {name}.mH) / 2"
        )
