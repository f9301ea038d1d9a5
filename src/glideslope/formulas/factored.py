"""A gradient G = A^H W of low rank, given by its factors: a step multiplies with it and never forms it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


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


def cross_gram(X: Tensor, G: Tensor | Factored) -> Tensor:
    """The p x p product X^H G."""
    return G.Y.mH @ G.W if isinstance(G, Factored) else X.mH @ G


def add_product_(F: Tensor, G: Tensor | Factored, K: Tensor) -> Tensor:
    """F + G K in place."""
    if isinstance(G, Factored):
        return F.addmm_(G.A.mH, G.W @ K)
    return F.addmm_(G, K) if F.ndim == 2 else F.baddbmm_(G, K)


def cancelled_size(G: Tensor | Factored, size: Tensor) -> Tensor:
    """The size whose roundings bound the drift of the tangent part: ‖X^H G‖, or for a sum of b terms ‖A‖ ‖W‖.

    The terms of a sum may cancel each other, their roundings do not. A factored product rounds twice.
    """
    if not isinstance(G, Factored):
        return size
    norms: Tensor = torch.linalg.vector_norm(G.A) * torch.linalg.vector_norm(G.W)
    return 2 * norms
