"""How far a matrix is from orthonormal: Gram matrix, residual and distance."""

from __future__ import annotations

import torch
from torch import Tensor

from glideslope.formulas.arguments import check_matrices, in_full_precision

# On the CPU torch adds squares one after the other: of 1e7 equal float32 numbers the norm is off by one in a hundred.
# Norms of more entries are norms of row norms. Not under autograd: the norm of a zero row has no second derivative.
LONG_SUM = 65_536


@in_full_precision
def gram(X: Tensor) -> Tensor:
    """Gram matrix X^H X, shape (*batch, p, p). One product of cost O(n p²).

    Args:
        X: Matrices, shape (*batch, n, p) with n >= p.

    Examples:
        >>> gs.formulas.gram(torch.eye(4, 2)).shape
        torch.Size([2, 2])
    """
    check_matrices(X=X)
    return X.mH @ X


def subtract_identity_(S: Tensor) -> Tensor:
    """S - I in place, for a (*batch, p, p) tensor; writes only the diagonal."""
    S.diagonal(dim1=-2, dim2=-1).sub_(1)
    return S


def per_matrix(numbers: Tensor) -> Tensor:
    """One number per matrix, shape (*batch), as (*batch, 1, 1) to multiply the matrices with."""
    return numbers.unsqueeze(-1).unsqueeze(-1)


def frobenius(M: Tensor) -> Tensor:
    """Frobenius norm of each matrix, shape (*batch); real, and never a norm over the batch."""
    if M.device.type == "cpu" and M.shape[-2] * M.shape[-1] > LONG_SUM and not M.requires_grad:
        M = torch.linalg.vector_norm(M, dim=-1, keepdim=True)
    norms: Tensor = torch.linalg.vector_norm(M, dim=(-2, -1))
    return norms


@in_full_precision
def residual(X: Tensor) -> Tensor:
    """Residual Δ = X^H X - I, shape (*batch, p, p); zero exactly on the Stiefel manifold.

    Examples:
        >>> gs.formulas.residual(2 * torch.eye(3, 1))
        tensor([[3.]])
    """
    return subtract_identity_(gram(X))


@in_full_precision
def distance(X: Tensor) -> Tensor:
    """Distance d = ‖X^H X - I‖_F of each matrix, shape (*batch); X is in the safe region (12) if d <= ε.

    Examples:
        >>> gs.formulas.distance(2 * torch.eye(3, 1))
        tensor(3.)
    """
    return frobenius(residual(X))


@in_full_precision
def spectral_distance(X: Tensor) -> Tensor:
    """Spectral norm ‖X^H X - I‖_2 of each matrix, shape (*batch). Computes eigenvalues, as no step does.

    Examples:
        >>> gs.formulas.spectral_distance(2 * torch.eye(3, 2))
        tensor(3.)
    """
    eigenvalues: Tensor = torch.linalg.eigvalsh(residual(X))
    return eigenvalues.abs().amax(-1)
