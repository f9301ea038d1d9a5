"""The penalty N of the distance, its gradient, and the gradient of a penalised function."""

from __future__ import annotations

from torch import Tensor

from glideslope.formulas.arguments import in_full_precision
from glideslope.formulas.orthogonality import distance, residual


@in_full_precision
def penalty(X: Tensor) -> Tensor:
    """Penalty N(X) = ¼ ‖X^H X - I‖_F², eq. (11), shape (*batch).

    Examples:
        >>> gs.formulas.penalty(2 * torch.eye(3, 1))
        tensor(2.2500)
    """
    return distance(X).square() / 4


@in_full_precision
def penalty_gradient(X: Tensor) -> Tensor:
    """Gradient of (11), ∇N(X) = X (X^H X - I), shape (*batch, n, p). Two products of cost O(n p²).

    Examples:
        >>> gs.formulas.penalty_gradient(2 * torch.eye(2, 1)).T
        tensor([[6., 0.]])
    """
    return X @ residual(X)


@in_full_precision
def penalised_gradient(X: Tensor, G: Tensor, *, penalty_weight: float) -> Tensor:
    """Gradient G + λ ∇N(X) of f + λ N, section 3.4, shape (*batch, n, p). Two products of cost O(n p²).

    Args:
        X: Matrices, shape (*batch, n, p) with n >= p.
        G: Gradient of f at X, same shape.
        penalty_weight: Weight λ > 0 of the penalty.

    Examples:
        >>> X, G = 2 * torch.eye(2, 1), torch.ones(2, 1)
        >>> gs.formulas.penalised_gradient(X, G, penalty_weight=10.0).T
        tensor([[61.,  1.]])
    """
    return G + penalty_weight * penalty_gradient(X)
