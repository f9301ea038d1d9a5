"""The normal part of a step as p x p factors: Newton-Schulz, recovery from outside, and the exact polar factor."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glideslope.formulas.orthogonality import per_matrix


def newton_schulz_factor(S: Tensor) -> Tensor:
    """1.5 I - ½ S: one Newton-Schulz step is X (1.5 I - ½ X^H X)."""
    factor = S / -2
    factor.diagonal(dim1=-2, dim2=-1).add_(1.5)
    return factor


def largest_eigenvalue_bound(Delta: Tensor, distance: Tensor) -> Tensor:
    """Bound m + s √(p-1) of the eigenvalues of I + Δ by their mean m and spread s, from d = ‖Δ‖_F and the trace.

    Nothing is squared that could overflow to NaN; never more than 1 + d.
    """
    p = Delta.shape[-1]
    excess = Delta.diagonal(dim1=-2, dim2=-1).real.sum(-1) / p
    root_mean_square = distance / math.sqrt(p)
    spread = ((root_mean_square - excess.abs()).clamp(min=0) * (root_mean_square + excess.abs())).sqrt()
    return torch.minimum(1 + distance, 1 + excess + spread * math.sqrt(p - 1))


def recovery_weights(Delta: Tensor, distance: Tensor) -> tuple[Tensor, Tensor]:
    """α, β such that X (α I - β S), S = X^H X = I + Δ, is closer to the manifold for any X of full rank.

    Newton-Schulz, (1.5, 0.5), while a bound of ‖X‖_2² is well in its basin; of ν X where that brings it there; and
    only a division by 16 from very far, where one step of ν X would lose digits.
    """
    squared_norm = largest_eigenvalue_bound(Delta, distance)
    nu = torch.where(squared_norm > 2.75, (1.5 / squared_norm).sqrt(), 1)
    far = nu < 1 / 16
    return torch.where(far, 1 / 16, 1.5 * nu), torch.where(far, 0, nu**3 / 2)


def gentle_weights(largest: Tensor) -> tuple[Tensor, Tensor]:
    """α, β of a damped Newton-Schulz step X ((1 + η) I - η S), given a bound of the eigenvalues of S - I.

    From inside any safe region it ends inside, and it shrinks what is too long, also where the bound is far too large.
    η = ½, Newton-Schulz itself, while the bound is in its basin.
    """
    damping = torch.where(largest <= 1.75, 0.5, 0.5 / (1 + largest))
    return 1 + damping, damping


def normal_factor_of(Delta: Tensor, weights: tuple[Tensor, Tensor]) -> Tensor:
    """α I - β S = (α - β) I - β Δ, the p x p factor of a recovery."""
    on_identity, on_gram = weights
    factor = Delta * per_matrix(-on_gram)
    factor.diagonal(dim1=-2, dim2=-1).add_((on_identity - on_gram).unsqueeze(-1))
    return factor


def inverse_square_root(S: Tensor, radius: float = 0.5, *, iterations: int | None = None) -> Tensor:
    """S^{-1/2} for a Hermitian S with eigenvalues in [1 - radius, 2], by Newton-Schulz iterations: products only.

    `iterations`, at least 1, is how many are enough where more is known of S than that.
    """
    factor = newton_schulz_factor(S)
    for _ in range((iterations or polar_iterations(radius, torch.finfo(S.dtype).eps)) - 1):
        # S and its polynomials commute, so the Gram matrix of X M is M S M.
        correction = newton_schulz_factor(factor @ S @ factor)
        factor = factor @ correction
    return factor


def polar_iterations(radius: float, rounding: float) -> int:
    """How many Newton-Schulz iterations bring eigenvalues of S from [1 - radius, 2] to 1 up to the rounding."""
    # An eigenvalue 1 + e becomes 1 - ¾ e² + ¼ e³: 2 becomes ½, and none is above 1 after the first iteration.
    return 1 + newton_schulz_iterations(max(0.5, radius**2 * (3 + radius) / 4), rounding)


def newton_schulz_iterations(error: float, rounding: float) -> int:
    """How many Newton-Schulz iterations bring ‖S - I‖ from an error below 1 to the rounding; none from 1 or above."""
    iterations = 0
    while rounding < error < 1:
        error, iterations = error**2 * (3 + error) / 4, iterations + 1
    return iterations


def newton_schulz_reach(safe_radius: float) -> float:
    """The e in (0, 1] with ¾ e² - ¼ e³ = ε, or 1: eigenvalues of S - I up to e are within ε after a Newton-Schulz step.

    An eigenvalue e becomes -e² (3 - e) / 4. With e = 1 + 2 cos φ the cubic is cos 3φ = 1 - 2 ε.
    """
    return min(1.0, 1 + 2 * math.cos((math.acos(1 - 2 * safe_radius) + 4 * math.pi) / 3))


def newton_schulz_radius(safe_radius: float) -> float:
    """The e with ¾ e² + ¼ e³ = ε: ‖E‖ <= e before a Newton-Schulz step is inside the safe region after it.

    With e = 2 cos φ - 1 the cubic is cos 3φ = 2 ε - 1.
    """
    return 2 * math.cos(math.acos(2 * safe_radius - 1) / 3) - 1
