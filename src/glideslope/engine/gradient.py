"""A gradient G = A^H W of low rank, given by its factors: a step multiplies with it and never forms it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from glideslope.engine.products import cross_product


class Factored(NamedTuple):
    """The gradient A^H W at X of a mean of terms φ(a_i X): b rows instead of n.

    With Y = A X at hand, X^H G = Y^H W, and the tangent part is ½ (A^H (W S) - X (W^H Y)).
    """

    A: Tensor
    """Rows, shape (b, n)."""
    W: Tensor
    """Derivatives φ'(Y) / b, shape (b, p)."""
    Y: Tensor
    """The product A X, shape (b, p)."""

    def dense(self) -> Tensor:
        """The gradient as one matrix, shape (n, p)."""
        return self.A.mH @ self.W


def dense(G: Tensor | Factored) -> Tensor:
    """A gradient as one matrix."""
    return G.dense() if isinstance(G, Factored) else G


def cross_gram(X: Tensor, G: Tensor | Factored, *, out: Tensor | None = None) -> Tensor:
    """The p x p product X^H G."""
    return cross_product(G.Y, G.W, out=out) if isinstance(G, Factored) else cross_product(X, G, out=out)


def add_product_(F: Tensor, G: Tensor | Factored, K: Tensor, *, alpha: float = 1.0) -> Tensor:
    """F + α G K in place."""
    if isinstance(G, Factored):
        return F.addmm_(G.A.mH, G.W @ K, alpha=alpha)
    return F.addmm_(G, K, alpha=alpha) if F.ndim == 2 else F.baddbmm_(G, K, alpha=alpha)


def cancelled_size(G: Tensor | Factored, size: Tensor) -> Tensor:
    """The size whose roundings bound the drift of the tangent part: ‖X^H G‖, or for a sum of b terms ‖A‖ ‖W‖.

    The terms of a sum may cancel each other, their roundings do not. A factored product rounds twice.
    """
    if not isinstance(G, Factored):
        return size
    norms: Tensor = torch.linalg.vector_norm(G.A) * torch.linalg.vector_norm(G.W)
    return 2 * norms
