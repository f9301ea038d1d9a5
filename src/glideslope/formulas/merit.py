"""The merit function that landing decreases: its value, its gradient, and a form without gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from glideslope.formulas.arguments import check_matrices, check_positive, in_full_precision
from glideslope.formulas.orthogonality import residual
from glideslope.formulas.penalty import penalty, penalty_gradient


def check_values(name: str, values: object, X: Tensor) -> None:
    """Raise a ValueError unless values is a real tensor with one value per matrix of X."""
    if not isinstance(values, Tensor):
        raise ValueError(f"{name} must be a torch.Tensor of shape {tuple(X.shape[:-2])}; got {type(values).__name__}")
    if values.shape != X.shape[:-2] or values.is_complex():
        raise ValueError(
            f"{name} must be real with one value per matrix of X, shape {tuple(X.shape[:-2])}; "
            f"got {values.dtype} of shape {tuple(values.shape)}"
        )


@in_full_precision
def merit(X: Tensor, value: Tensor, G: Tensor, *, mu: float) -> Tensor:
    """Merit function f(X) + h(X) + μ N(X) with h(X) = -½ Re<sym(X^H G), X^H X - I>, eq. (16), shape (*batch).

    Two products of cost O(n p²).

    Args:
        X: Matrices, shape (*batch, n, p) with n >= p.
        value: f(X), shape (*batch).
        G: Euclidean gradient of f at X, same shape as X.
        mu: Weight μ > 0 of the penalty (11).

    Examples:
        >>> X, G, value = 2 * torch.eye(2, 1), torch.zeros(2, 1), torch.tensor(1.0)
        >>> gs.formulas.merit(X, value, G, mu=2.0)
        tensor(5.5000)
    """
    check_matrices(X=X, G=G)
    check_values("value", value, X)
    check_positive(mu=mu)
    return merit_of(residual(X), X.mH @ G, value, mu)


def merit_of(delta: Tensor, cross: Tensor, value: Tensor, mu: float) -> Tensor:
    """The merit function (16) from Δ = X^H X - I and X^H G."""
    # Only the Hermitian part of X^H G has an inner product with the Hermitian residual.
    return value + (delta.conj() * (delta * (mu / 4) - cross / 2)).real.sum(dim=(-2, -1))


def merit_gradient(function: Callable[[Tensor], Tensor], X: Tensor, *, mu: float) -> Tensor:
    """Gradient of the merit function (16) by automatic differentiation, shape (*batch, n, p).

    Differentiates `function` twice; writes neither X.grad nor X.requires_grad.

    Args:
        function: Maps (*batch, n, p) to f of each matrix, shape (*batch); twice differentiable.
        X: Matrices, shape (*batch, n, p) with n >= p.
        mu: Weight μ > 0 of the penalty (11).

    Examples:
        >>> gs.formulas.merit_gradient(lambda X: X.sum(), torch.eye(3, 1), mu=1.0).shape
        torch.Size([3, 1])
    """
    check_matrices(X=X)
    with torch.inference_mode(False), torch.enable_grad():
        point = X.detach().clone().requires_grad_()
        value = function(point)
        check_values("function(X)", value, X)
        (G,) = torch.autograd.grad(value.sum(), point, create_graph=True)
        (gradient,) = torch.autograd.grad(merit(point, value, G, mu=mu).sum(), point)
    return gradient


def gradient_free_merit(function: Callable[[Tensor], Tensor], X: Tensor, *, mu: float) -> Tensor:
    """Ψ(X) = f(X (3/2 I - ½ X^H X)) + μ N(X), shape (*batch): the merit function (16) up to O(‖X^H X - I‖²).

    Two products of cost O(n p²) and one value of f, no gradient.

    Args:
        function: Maps (*batch, n, p) to f of each matrix, shape (*batch).
        X: Matrices, shape (*batch, n, p) with n >= p.
        mu: Weight μ > 0 of the penalty (11).

    Examples:
        >>> gs.formulas.gradient_free_merit(lambda X: X.sum(), torch.eye(3, 1), mu=1.0)
        tensor(1.)
    """
    check_matrices(X=X)
    check_positive(mu=mu)
    value = function(X - penalty_gradient(X) / 2)
    check_values("function(X)", value, X)
    return value + mu * penalty(X)
