"""The landing field: its tangent part in two metrics, its attraction, and the p x p coefficients both are made of."""

from __future__ import annotations

import torch
from torch import Tensor

from glideslope.formulas.arguments import (
    METRICS,
    check_matrices,
    check_option,
    check_positive,
    in_full_precision,
)
from glideslope.formulas.orthogonality import subtract_identity_
from glideslope.formulas.penalty import penalty_gradient

# The square forms cost 2 (gradient) and 3 (field) products with n x n matrices against 4 with p x p ones.
# Measured in float32 on two cores, p = 256 to 1024: they win while n is below these multiples of p.
SQUARE_GRADIENT_UP_TO = 1.75
SQUARE_FIELD_UP_TO = 1.25


def sym(M: Tensor) -> Tensor:
    """Hermitian part ½ (M + M^H)."""
    return (M + M.mH) / 2


def skew(M: Tensor) -> Tensor:
    """Skew-Hermitian part ½ (M - M^H)."""
    return (M - M.mH) / 2


def metric_of_shape(metric: str, n: int, p: int) -> str:
    """The metric to compute with: for n = p both gradients are skew(G X^H) X.

    On the manifold a square X has X X^H = I, so X skew(X^H G) = skew(G X^H) X: the Euclidean gradient is the canonical
    one. Off the manifold any A X with a skew-Hermitian A will do, and this one costs the fewest products.
    """
    return "canonical" if n == p else metric


def tangent_coefficients(
    Delta: Tensor, C: Tensor, metric: str, *, square: bool = False, out: Tensor | None = None
) -> tuple[Tensor, float]:
    """K, p x p, and the factor c of the tangent part T = c (X K + G S), for S = X^H X, Δ = S - I and C = X^H G.

    Canonical: T = ½ (G S - X C^H), eq. (5). Euclidean: T = G S - X C^H - X skew(C) S, which is
    G - X sym(X^H G) on the manifold; K = -(sym(C) + skew(C) Δ). Both are A X with a skew-Hermitian A, at any X. For
    n = p see `metric_of_shape`. In the square form, with C = G X^H, the canonical T is c K X.
    """
    if square:
        return torch.sub(C, C.mH, out=out), 0.5
    if metric == "canonical":
        return torch.neg(C.mH, out=out), 0.5
    W = skew(C)
    return torch.sub(W - C, W @ Delta, out=out), 1.0


@in_full_precision
def riemannian_gradient(X: Tensor, G: Tensor, *, metric: str = "canonical") -> Tensor:
    r"""Riemannian gradient, extended to any X: canonical skew(G X^H) X, eq. (5), or Euclidean (see below).

    Euclidean metric: (2 skew(G X^H) - X skew(X^H G) X^H) X, which is G - X sym(X^H G) on the manifold. The
    canonical one is half as long on the complement of span(X); for n = p both are the canonical one. Four products of
    cost O(n p²); two of cost O(n² p) for the canonical metric when n is close to p.

    Args:
        X: Iterate, shape (*batch, n, p) with n >= p. Need not be orthonormal.
        G: Euclidean gradient at X, same shape.
        metric: "canonical" or "euclidean".

    Examples:
        >>> X, G = torch.eye(2, 1), torch.ones(2, 1)
        >>> gs.formulas.riemannian_gradient(X, G, metric="euclidean").T
        tensor([[0., 1.]])
    """
    check_matrices(X=X, G=G)
    check_option("metric", metric, METRICS)
    n, p = X.shape[-2:]
    metric = metric_of_shape(metric, n, p)
    if metric == "canonical" and n <= SQUARE_GRADIENT_UP_TO * p:
        return skew(G @ X.mH) @ X
    return tangent_part(X, G, X.mH @ X, X.mH @ G, metric)


def tangent_part(X: Tensor, G: Tensor, S: Tensor, C: Tensor, metric: str) -> Tensor:
    """The Riemannian gradient, or some of its rows, from S = X^H X and C = X^H G."""
    K, factor = tangent_coefficients(subtract_identity_(S.clone()), C, metric)
    return (X @ K + G @ S) * factor


def without_normal_part(X: Tensor, G: Tensor) -> Tensor:
    """G - X sym(X^H G): tangent on the manifold, with the canonical tangent part of G at any X. Two products."""
    return G - X @ sym(X.mH @ G)


@in_full_precision
def skew_field(X: Tensor, A: Tensor, *, attraction: float) -> Tensor:
    """Field F(X, A) = A X + λ X (X^H X - I), eq. (13), for a skew-Hermitian A.

    Args:
        X: Iterate, shape (*batch, n, p) with n >= p.
        A: Skew-Hermitian matrices, shape (*batch, n, n); skewness is the caller's promise.
        attraction: Weight λ > 0 of the pull towards the manifold.

    Examples:
        >>> A = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
        >>> gs.formulas.skew_field(torch.eye(2, 1), A, attraction=1.0).T
        tensor([[0., 1.]])
    """
    check_matrices(X=X)
    check_matrices(A=A)
    check_positive(attraction=attraction)
    expected = (*X.shape[:-1], X.shape[-2])
    if A.shape != expected:
        raise ValueError(f"A must have shape (*batch, n, n) = {expected} for this X; got {tuple(A.shape)}")
    return A @ X + attraction * penalty_gradient(X)


@in_full_precision
def landing_field(X: Tensor, G: Tensor, *, attraction: float, metric: str = "canonical") -> Tensor:
    r"""Landing field skew(G X^H) X + λ X (X^H X - I), eq. (10); the tangent part follows `metric`.

    Four products of cost O(n p²), or three of cost O(n² p) when n is close to p: (skew(G X^H) + λ (X X^H - I)) X.

    Args:
        X: Iterate, shape (*batch, n, p) with n >= p. Need not be orthonormal.
        G: Euclidean gradient at X, same shape; any estimate of it keeps the field's geometry.
        attraction: Weight λ > 0 of the pull towards the manifold.
        metric: "canonical" (the paper's) or "euclidean".

    Examples:
        >>> X, G = 2 * torch.eye(2, 1), torch.zeros(2, 1)
        >>> gs.formulas.landing_field(X, G, attraction=1.0).T
        tensor([[6., 0.]])
    """
    check_matrices(X=X, G=G)
    check_option("metric", metric, METRICS)
    check_positive(attraction=attraction)
    n, p = X.shape[-2:]
    metric = metric_of_shape(metric, n, p)
    if metric == "canonical" and n <= SQUARE_FIELD_UP_TO * p:
        return (skew(G @ X.mH) + attraction * subtract_identity_(X @ X.mH)) @ X
    S = X.mH @ X
    Delta = subtract_identity_(S.clone())
    K, factor = tangent_coefficients(Delta, X.mH @ G, metric)
    return (X @ (K + Delta * (attraction / factor)) + G @ S) * factor
