"""How long a step may be: the lemma's safeguard (14), the exact one, and the lower bound that depends on no iterate."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from glideslope.formulas.arguments import AUTOMATIC, check_matrices, check_positive, check_radius, in_full_precision
from glideslope.formulas.field import sym
from glideslope.formulas.orthogonality import frobenius, per_matrix, residual

# Expansions of the quartic; they converge at least quadratically, and 8 reached float64 rounding from all starts tried.
EXPANSIONS = 8
# The automatic attraction follows step sizes between these two: squares of it must neither overflow nor vanish.
SMALLEST_STEP, LARGEST_STEP = 1e-12, 1e12
# A little less than one half: then 1/(2λ), however it is rounded, is no less than the step size.
LARGEST_PULL = 0.5 * (1 - 1e-6)


@in_full_precision
def safeguard_step(distance: Tensor, field_norm: Tensor, *, attraction: float | Tensor, safe_radius: float) -> Tensor:
    r"""Step-size safeguard η(X) = min{(b + √(b² + g² (ε - d))) / g², 1/(2λ)} with b = λ d (1 - d), eq. (14).

    No step up to η(X) along F(X, A) leaves the safe region. A zero field gives the cap 1/(2λ); d > ε gives 0,
    since the lemma certifies nothing there.

    Args:
        distance: d = ‖X^H X - I‖_F, one per matrix.
        field_norm: g = ‖F‖_F, one per matrix.
        attraction: Weight λ > 0, a number or one per matrix.
        safe_radius: ε in (0, 1).

    Examples:
        >>> distance, field_norm = torch.tensor(0.0), torch.tensor(10.0)
        >>> gs.formulas.safeguard_step(distance, field_norm, attraction=1.0, safe_radius=0.5)
        tensor(0.0707)
    """
    check_positive(attraction=attraction)
    check_radius(safe_radius)
    root: Tensor = largest_quadratic_step(pull_of(attraction, distance), field_norm, safe_radius - distance)
    return root.clamp(max=1 / (2 * attraction)).masked_fill(is_outside(distance, safe_radius), 0)


def attraction_of(attraction: float | str, step_size: Any) -> Any:
    """λ for a step of size η: the number given, or for "auto" λ = 1/(2η), for which the cap 1/(2λ) is η itself.

    The normal part of a whole step is then one Newton-Schulz step at X, η λ ∇N(X) = ½ X (X^H X - I), whatever η. So
    Δ⁺ = η² T^H T + O(Δ² + η ‖T‖ Δ), where a constant λ settles at about η ‖T^H T‖ / (2λ). Tensors or numbers.
    """
    if attraction != AUTOMATIC:
        return attraction
    if isinstance(step_size, Tensor):
        return LARGEST_PULL / step_size.clamp(SMALLEST_STEP, LARGEST_STEP)
    return LARGEST_PULL / min(max(step_size, SMALLEST_STEP), LARGEST_STEP)


def pull_of(attraction: Any, distance: Any) -> Any:
    """The pull b = λ d (1 - d): a step η along the attraction shortens d by 2 η b to first order."""
    return attraction * distance * (1 - distance)


def is_outside(distance: Tensor, safe_radius: float) -> Tensor:
    """Whether d > ε by more than the rounding of d itself; a step that lands on the boundary counts as inside."""
    return distance > safe_radius * (1 + 64 * torch.finfo(distance.dtype).eps)


def largest_quadratic_step(pull: Any, field_norm: Any, slack: Any) -> Any:
    """Largest η with η² g² - 2 η b <= s, for pull b of any sign, norm g >= 0 and slack s (negative counts as 0).

    Nothing is squared that could overflow; inf when g = 0 and b >= 0. Tensors, or numbers on the host.
    """
    if not isinstance(field_norm, Tensor):
        return _largest_quadratic_step(pull, field_norm, max(slack, 0.0))
    slack = slack.clamp(min=0)
    reach = torch.hypot(pull, field_norm * slack.sqrt())
    # The conjugate form for b < 0 has no cancellation.
    forwards = (pull + reach) / field_norm / field_norm
    backwards = slack / (reach - pull)
    root = torch.where(pull >= 0, forwards, backwards)
    return torch.where((field_norm == 0) & (pull >= 0), math.inf, root)


def _largest_quadratic_step(pull: float, field_norm: float, slack: float) -> float:
    reach = math.hypot(pull, field_norm * math.sqrt(slack))
    if pull < 0:
        return slack / (reach - pull)
    return (pull + reach) / field_norm / field_norm if field_norm else math.inf


@in_full_precision
def exact_safeguard_step(X: Tensor, F: Tensor, *, safe_radius: float) -> Tensor:
    r"""Largest η for which every step up to η along -F stays in the safe region, one per matrix.

    The smallest positive root of the quartic ‖Δ - 2 η sym(X^H F) + η² F^H F‖_F² = ε², an identity for any F.
    The lemma's bound replaces ‖F^H F‖ by ‖F‖², so this is never shorter. Three products of cost O(n p²). A zero
    field gives inf; d > ε gives 0.

    Args:
        X: Iterate, shape (*batch, n, p) with n >= p.
        F: Field, same shape.
        safe_radius: ε in (0, 1).

    Examples:
        >>> X, F = torch.eye(3, 1), 10 * torch.eye(3)[:, 1:2]
        >>> gs.formulas.exact_safeguard_step(X, F, safe_radius=0.5)
        tensor(0.0707)
    """
    check_matrices(X=X, F=F)
    check_radius(safe_radius)
    largest = torch.linalg.vector_norm(F, ord=math.inf, dim=(-2, -1))
    scale = torch.where(largest > 0, largest, 1)
    F = F / per_matrix(scale)
    return largest_quartic_step(residual(X), X.mH @ F, F.mH @ F, safe_radius) / scale


def largest_quartic_step(
    Delta: Tensor, slope: Tensor, field_gram: Tensor, radius: float, at_least: Tensor | None = None
) -> Tensor:
    """Smallest positive root of ‖Δ - 2 η sym(slope) + η² field_gram‖ = radius, from p x p matrices only.

    The polynomial is expanded at an admissible step, replaced by a convex majorant there (negative higher
    coefficients dropped), and the step is advanced to a lower bound of the majorant's root: every iterate is
    admissible, and the last ones converge like Newton's. `at_least` is a step known to be admissible.
    """
    norm = field_gram.diagonal(dim1=-2, dim2=-1).real.sum(-1).clamp(min=0).sqrt()
    scale = torch.where(norm > 0, norm, 1)
    first = sym(slope) * per_matrix(-2 / scale)
    second = field_gram / per_matrix(scale.square())

    def inner(left: Tensor, right: Tensor) -> Tensor:
        product: Tensor = torch.linalg.vecdot(left.flatten(-2), right.flatten(-2))
        return product.real

    coefficients = [
        inner(Delta, Delta) - radius**2,
        2 * inner(Delta, first),
        inner(first, first) + 2 * inner(Delta, second),
        2 * inner(first, second),
        inner(second, second),
    ]
    step = torch.zeros_like(norm) if at_least is None else at_least * scale
    for _ in range(EXPANSIONS):
        step = step + majorant_step(*shifted(coefficients, step))
    return torch.where(norm > 0, step / scale, math.inf).masked_fill(is_outside(frobenius(Delta), radius), 0)


def shifted(coefficients: list[Tensor], at: Tensor) -> list[Tensor]:
    """Coefficients of δ -> q(at + δ) for a quartic q given by its coefficients, constant first (Horner's scheme)."""
    taylor = list(coefficients)
    for lowest in range(4):
        for k in range(3, lowest - 1, -1):
            taylor[k] = torch.addcmul(taylor[k], taylor[k + 1], at)
    return taylor


def majorant_step(c0: Tensor, c1: Tensor, c2: Tensor, c3: Tensor, c4: Tensor) -> Tensor:
    """A δ >= 0 not beyond the first positive root of c0 + c1 δ + c2 δ² + c3 δ³ + c4 δ⁴, where c0 <= 0 (else 0)."""
    c0 = c0.clamp(max=0)
    c2, c3 = c2.clamp(min=0), c3.clamp(min=0)
    quartic = c4.clamp(min=torch.finfo(c4.dtype).tiny)
    # Lagrange's bound of the majorant's root, and the root with its highest terms dropped: both are upper bounds.
    lagrange = (-c0 / quartic).sqrt().sqrt() + (-c1.clamp(max=0) / quartic).pow(1 / 3)
    upper = torch.minimum(lagrange, largest_quadratic_step(-c1 / 2, c2.sqrt(), -c0))
    curvature = c2 + upper * (c3 + upper * c4)
    return torch.minimum(largest_quadratic_step(-c1 / 2, curvature.sqrt(), -c0), upper)


def safeguard_lower_bound(field_bound: float, *, attraction: float, safe_radius: float) -> float:
    r"""Lower bound η*(ã, ε, λ) = min{Q, 1/(2λ)} of the safeguard (14) over the safe region when ‖A X‖ <= ã.

    Q = inf K(λ, ε, a, d) over a in ]0, ã], d in ]0, ε]. K is quasiconcave in a and in d (a concave numerator over
    a convex denominator), so the infimum is at a corner: Q = min{√(ε/2) / ã, λ (1-ε) ε / (ã² + λ² (1+ε) ε²)}.

    Args:
        field_bound: ã > 0, a bound of the tangent part's norm.
        attraction: Weight λ > 0.
        safe_radius: ε in (0, 1).

    Examples:
        >>> gs.formulas.safeguard_lower_bound(1.0, attraction=1.0, safe_radius=0.5) > 0
        True
    """
    check_positive(field_bound=field_bound, attraction=attraction)
    check_radius(safe_radius)
    on_the_manifold = math.sqrt(safe_radius / 2) / field_bound
    on_the_boundary = (
        attraction
        * (1 - safe_radius)
        * safe_radius
        / (field_bound**2 + attraction**2 * (1 + safe_radius) * safe_radius**2)
    )
    return min(on_the_manifold, on_the_boundary, 1 / (2 * attraction))
