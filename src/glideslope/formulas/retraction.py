"""Retractions of the Stiefel manifold: QR, polar, Cayley and exponential, the feasible alternatives.

QR and polar orthonormalise X + Z. Cayley and exponential rotate X, which keeps X^H X as it is, rounding errors of
earlier steps included. So both rotate the Newton-Schulz step X (I - Δ/2), Δ = X^H X - I, instead: the same for an
orthonormal X, and an error of size ‖Δ‖ ends as ¾ ‖Δ‖² in place of adding up.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from glideslope.formulas.arguments import check_matrices, check_option, in_full_precision
from glideslope.formulas.field import skew
from glideslope.formulas.orthogonality import frobenius, per_matrix, subtract_identity_


@in_full_precision
def qr_retraction(X: Tensor, Z: Tensor) -> Tensor:
    """Q factor of X + Z with positive diagonal of R, shape (*batch, n, p). One QR of cost O(n p²).

    Args:
        X: Orthonormal matrices, shape (*batch, n, p) with n >= p.
        Z: Tangent directions at X, same shape.

    Examples:
        >>> Y = gs.formulas.qr_retraction(torch.eye(4, 2), torch.ones(4, 2))
        >>> bool(gs.formulas.distance(Y) < 1e-5)
        True
    """
    check_matrices(X=X, Z=Z)
    Q: Tensor
    Q, R = torch.linalg.qr(X + Z)
    phase = torch.sgn(R.diagonal(dim1=-2, dim2=-1))
    # A zero on the diagonal has no phase: leave that column of Q as it is.
    phase = torch.where(phase == 0, torch.ones_like(phase), phase)
    return Q * phase.unsqueeze(-2)


@in_full_precision
def polar_retraction(X: Tensor, Z: Tensor) -> Tensor:
    """Y (Y^H Y)^{-1/2} with Y = X + Z, eq. (7), shape (*batch, n, p). One QR of cost O(n p²) and a p x p SVD.

    Args:
        X: Orthonormal matrices, shape (*batch, n, p) with n >= p.
        Z: Tangent directions at X, same shape.

    Examples:
        >>> Y = gs.formulas.polar_retraction(torch.eye(4, 2), torch.ones(4, 2))
        >>> bool(gs.formulas.distance(Y) < 1e-5)
        True
    """
    check_matrices(X=X, Z=Z)
    # The singular vectors of R, not Y^H Y, whose condition number is that of Y squared.
    Q, R = torch.linalg.qr(X + Z)
    left, _, right = torch.linalg.svd(R, full_matrices=False)
    result: Tensor = Q @ (left @ right)
    return result


@in_full_precision
def cayley_retraction(X: Tensor, Z: Tensor) -> Tensor:
    """(I - W/2)^{-1} (I + W/2) X with W = P Z X^H - X Z^H P and P = I - X X^H / 2, section 1.1.2.

    Computed as X + U (I - V^H U / 2)^{-1} V^H X with U = [P Z, X] and V = [X, -P Z]: products of cost O(n p²)
    and a 2p x 2p system, never an n x n matrix. Mending X takes p x p products only: V^H X holds X^H X.

    Args:
        X: Orthonormal matrices, shape (*batch, n, p) with n >= p; slightly off, the result is closer.
        Z: Tangent directions at X, same shape.

    Examples:
        >>> X, Z = torch.eye(4, 2), torch.ones(4, 2)
        >>> Z = gs.formulas.riemannian_gradient(X, Z)
        >>> bool(gs.formulas.distance(gs.formulas.cayley_retraction(X, Z)) < 1e-5)
        True
    """
    check_matrices(X=X, Z=Z)
    PZ = Z - X @ (X.mH @ Z) / 2
    U = torch.cat((PZ, X), dim=-1)
    V = torch.cat((X, -PZ), dim=-1)
    system = V.mH @ U / -2
    system.diagonal(dim1=-2, dim2=-1).add_(1)
    projections = V.mH @ X
    coefficients: Tensor = torch.linalg.solve(system, projections)
    # (X + U C) (I - Δ/2), where X is the last p columns of U.
    p = X.shape[-1]
    excess = half_residual(projections.narrow(-2, 0, p))
    mended = coefficients - coefficients @ excess
    mended.narrow(-2, p, p).sub_(excess)
    return X + U @ mended


@in_full_precision
def exponential_retraction(X: Tensor, Z: Tensor) -> Tensor:
    """[X Q] exp([[Ω, -K^H], [K, 0]]) [I; 0] with Z = X Ω + Q K, eq. (6): canonical-metric geodesic.

    One QR of cost O(n p²) and a 2p x 2p matrix exponential.

    Args:
        X: Orthonormal matrices, shape (*batch, n, p) with n >= p; slightly off, the result is closer.
        Z: Tangent directions at X, same shape.

    Examples:
        >>> X, Z = torch.eye(4, 2), torch.ones(4, 2)
        >>> Z = gs.formulas.riemannian_gradient(X, Z)
        >>> bool(gs.formulas.distance(gs.formulas.exponential_retraction(X, Z)) < 1e-5)
        True
    """
    check_matrices(X=X, Z=Z)
    p = X.shape[-1]
    omega = skew(X.mH @ Z)
    # With X in front, the further columns are orthonormal to X even where the normal part of Z lacks rank.
    both = torch.linalg.qr(torch.cat((X, Z - X @ omega), dim=-1)).Q
    Q = both.narrow(-1, p, both.shape[-1] - p)
    K = Q.mH @ Z
    corner = K.new_zeros(*K.shape[:-1], K.shape[-2])
    generator = torch.cat((torch.cat((omega, -K.mH), dim=-1), torch.cat((K, corner), dim=-1)), dim=-2)
    rotation: Tensor = torch.linalg.matrix_exp(generator).narrow(-1, 0, p)
    top = rotation.narrow(-2, 0, p)
    mended = top - half_residual(X.mH @ X) @ top
    return torch.cat((X, Q), dim=-1) @ torch.cat((mended, rotation.narrow(-2, p, rotation.shape[-2] - p)), dim=-2)


def half_residual(S: Tensor) -> Tensor:
    """Δ/2 with Δ = S - I; zero where ‖Δ‖_F >= 1, from where a Newton-Schulz step may lead further away."""
    Delta = subtract_identity_(S.clone())
    return Delta * per_matrix((frobenius(Delta.detach()) < 1) / 2)


RETRACTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "qr": qr_retraction,
    "polar": polar_retraction,
    "cayley": cayley_retraction,
    "exponential": exponential_retraction,
}


def retract(X: Tensor, Z: Tensor, kind: str = "qr") -> Tensor:
    """Orthonormal R(X, Z) = X + Z + o(‖Z‖), section 1.1.2, shape (*batch, n, p). Cost O(n p²).

    Args:
        X: Orthonormal matrices, shape (*batch, n, p) with n >= p.
        Z: Tangent directions at X, same shape.
        kind: "qr", "polar", "cayley" or "exponential".

    Examples:
        >>> Y = gs.formulas.retract(torch.eye(4, 2), torch.ones(4, 2), kind="polar")
        >>> bool(gs.formulas.distance(Y) < 1e-5)
        True
    """
    check_option("kind", kind, tuple(RETRACTIONS))
    return RETRACTIONS[kind](X, Z)
