"""One step of each method of the paper, literally: the specification that the engine is tested against."""

from __future__ import annotations

import torch
from torch import Tensor

from glideslope.formulas.arguments import (
    NORMAL_STEPS,
    SAFEGUARDS,
    check_attraction,
    check_matrices,
    check_option,
    check_radius,
    check_step_size,
    in_full_precision,
)
from glideslope.formulas.field import riemannian_gradient
from glideslope.formulas.normal import newton_schulz_reach
from glideslope.formulas.orthogonality import distance, frobenius, per_matrix, residual, spectral_distance
from glideslope.formulas.penalty import penalised_gradient, penalty_gradient
from glideslope.formulas.retraction import polar_retraction, retract
from glideslope.formulas.safeguard import attraction_of, exact_safeguard_step, safeguard_step


@in_full_precision
def landing_step(
    X: Tensor,
    G: Tensor,
    *,
    step_size: float | Tensor,
    attraction: float | str = "auto",
    safe_radius: float = 0.5,
    metric: str = "euclidean",
    normal_step: str = "landing",
    safeguard: str | None = "lemma",
) -> Tensor:
    r"""One step X - min(η, η(X)) F from X, eq. (19) with the safeguard (14); with an estimate as G, eq. (20).

    Outside of the safe region it is one Newton-Schulz step instead. `glideslope.landing_step` does the same in fewer
    products, safe in floating point. It goes no further than this one, whose eigenvalues it replaces by bounds.

    Args:
        X: Iterate, shape (*batch, n, p) with n >= p.
        G: Euclidean gradient at X or any estimate of it, same shape.
        step_size: η >= 0, a number or one per matrix.
        attraction: Weight λ > 0 of the pull towards the manifold, for normal_step="landing"; "auto" is 1/(2η).
        safe_radius: ε in (0, 1).
        metric: "euclidean", or "canonical", eq. (5).
        normal_step: "landing": along F = T + λ X (X^H X - I). "newton-schulz": along T, then a Newton-Schulz step.
            "polar": along T, then the polar factor.
        safeguard: "lemma", "exact" or None.

    Examples:
        >>> X, G = torch.eye(4, 2), torch.ones(4, 2)
        >>> bool(gs.formulas.distance(gs.formulas.landing_step(X, G, step_size=1e6)) <= 0.5)
        True
    """
    check_matrices(X=X, G=G)
    check_step_size(step_size, X.shape[:-2])
    check_attraction(attraction)
    check_radius(safe_radius)
    check_option("normal_step", normal_step, NORMAL_STEPS)
    check_option("safeguard", safeguard, SAFEGUARDS)
    if normal_step != "landing":
        return _two_steps(X, riemannian_gradient(X, G, metric=metric), step_size, safe_radius, normal_step, safeguard)
    step = torch.zeros_like(distance(X)) + step_size
    weight = torch.zeros_like(step) + attraction_of(attraction, step)
    F = riemannian_gradient(X, G, metric=metric) + per_matrix(weight) * penalty_gradient(X)
    if safeguard == "lemma":
        step = step.minimum(safeguard_step(distance(X), frobenius(F), attraction=weight, safe_radius=safe_radius))
    elif safeguard == "exact":
        step = step.minimum(exact_safeguard_step(X, F, safe_radius=safe_radius)).minimum(1 / (2 * weight))
    return torch.where(per_matrix(distance(X) > safe_radius), newton_schulz_step(X), X - per_matrix(step) * F)


def _two_steps(
    X: Tensor, T: Tensor, step_size: float | Tensor, safe_radius: float, normal_step: str, safeguard: str | None
) -> Tensor:
    """Y = X - η T, then the way back. η is at most the step size, and such that Y^H Y - I has no eigenvalue above e.

    Y^H Y - I = Δ + η² T^H T. For the polar factor e = 1; for Newton-Schulz it is the one that ends at -ε.
    """
    reach = 1.0 if normal_step == "polar" else newton_schulz_reach(safe_radius)
    step = torch.zeros_like(distance(X)) + step_size
    if safeguard is not None:
        slack = (reach - torch.linalg.eigvalsh(residual(X)).amax(-1)).clamp(min=0)
        step = step.minimum((slack / torch.linalg.eigvalsh(T.mH @ T).amax(-1)).sqrt())
    Y = X - per_matrix(step) * T
    back = polar_retraction(Y, torch.zeros_like(Y)) if normal_step == "polar" else newton_schulz_step(Y)
    return torch.where(per_matrix(spectral_distance(X) > safe_radius), newton_schulz_step(X), back)


def newton_schulz_step(X: Tensor) -> Tensor:
    """X (1.5 I - ½ X^H X) = X - ½ ∇N(X): towards the polar factor, quadratically. Two products of cost O(n p²)."""
    return X - penalty_gradient(X) / 2


def riemannian_step(
    X: Tensor, G: Tensor, *, step_size: float, metric: str = "euclidean", retraction: str = "qr"
) -> Tensor:
    """One step R(X, -η grad f(X)), eqs. (3) and (9), shape (*batch, n, p).

    Args:
        X: Orthonormal matrices, shape (*batch, n, p) with n >= p.
        G: Euclidean gradient at X or an estimate of it, same shape.
        step_size: η >= 0.
        metric: "euclidean", or "canonical", eq. (5).
        retraction: "qr", "polar", "cayley" or "exponential".

    Examples:
        >>> X = gs.formulas.riemannian_step(torch.eye(4, 2), torch.ones(4, 2), step_size=0.1)
        >>> bool(gs.formulas.distance(X) < 1e-5)
        True
    """
    return retract(X, -step_size * riemannian_gradient(X, G, metric=metric), kind=retraction)


def penalty_step(X: Tensor, G: Tensor, *, step_size: float, penalty_weight: float) -> Tensor:
    """One step X - η (G + λ X (X^H X - I)) on f + λ N, section 3.4, shape (*batch, n, p).

    Args:
        X: Matrices, shape (*batch, n, p) with n >= p.
        G: Euclidean gradient of f at X or an estimate of it, same shape.
        step_size: η >= 0.
        penalty_weight: Weight λ > 0 of the penalty.

    Examples:
        >>> X, G = torch.eye(2, 1), torch.ones(2, 1)
        >>> gs.formulas.penalty_step(X, G, step_size=0.5, penalty_weight=1.0).T
        tensor([[ 0.5000, -0.5000]])
    """
    return X - step_size * penalised_gradient(X, G, penalty_weight=penalty_weight)
