"""Decisions of a step for batches, with masks for every case: start, weights of the field, length, way back.

All of it follows from p x p matrices and norms: it is the same for a matrix in one piece and in blocks of rows.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from glideslope.engine.decision import (
    Plan,
    admissible_share,
    admissible_step,
    landing_bound,
    plan_step,
    rounding_margin,
    trial_step,
)
from glideslope.engine.eigenvalues import spectral_bound, spectral_norm_at_least, upper_eigenvalue
from glideslope.engine.point import Point
from glideslope.engine.products import is_on_host
from glideslope.engine.rounding import overflow_free_norm, smallest_norm
from glideslope.engine.rule import StepOutcome, StepRule
from glideslope.formulas.arguments import REAL_TYPE
from glideslope.formulas.normal import (
    gentle_weights,
    inverse_square_root,
    newton_schulz_factor,
    normal_factor_of,
    recovery_weights,
)
from glideslope.formulas.orthogonality import per_matrix, subtract_identity_
from glideslope.formulas.safeguard import is_outside, largest_quartic_step, pull_of


class Start(NamedTuple):
    """Numbers of a step that are known before its field."""

    plan: Plan
    distance: Tensor
    """‖X^H X - I‖ in the norm of the safe region, or a bound of it."""
    outside: Tensor
    """Which matrices recover instead of taking a step: those outside of the safe region, and those that may be."""
    certainly: Tensor
    """Which of them are outside for certain."""
    step_size: float | Tensor
    margin: float
    """How far a step stays from the end of its reach, because of rounding."""
    floor: float
    """The norm of a field below which the squares in it underflow."""


class Length(NamedTuple):
    """How far to go along the scaled field, and what that means for each matrix; see `StepOutcome`."""

    step: Tensor
    """Zero where a matrix is skipped."""
    distance: Tensor
    shortened: Tensor
    recovered: Tensor
    skipped: Tensor
    certain: Tensor
    """Up to here a tangent step is known to be safe; a longer one is judged by where it leads."""

    def outcome(self, X: Tensor) -> StepOutcome:
        """The outcome, with the new iterates."""
        return StepOutcome(X, self.distance, self.shortened, self.recovered, self.skipped)


class Weights(NamedTuple):
    """Factors of the parts of the field, (*batch, 1, 1); None where a part is missing or has factor 1."""

    share: Tensor | None
    on_residual: Tensor | float | None
    on_identity: Tensor | None


def start_of(X: Tensor, at: Point, rule: StepRule, step_size: float | Tensor, *, rows: int | None = None) -> Start:
    """The plan of the step; `rows` is n where X is only a part of it."""
    margin = rounding_margin(X, rule, rows=rows)
    if isinstance(step_size, Tensor):
        step_size = step_size.to(REAL_TYPE[X.dtype]).clamp(min=0)
    distance = at.distance
    outside = certainly = is_outside(distance, rule.safe_radius)
    if rule.is_spectral:
        # A bound cannot tell a matrix that is just inside from one outside. Landing steps need it to be inside.
        distance = spectral_bound(at.Delta, rule.safe_radius, square=rule.lands)
        certainly = is_outside(spectral_norm_at_least(at.Delta), rule.safe_radius)
        outside = is_outside(distance, rule.safe_radius) if rule.lands else certainly
    plan = plan_step(distance, at.size, at.drift, rule, rule.reach - margin, step_size, torch.finfo(X.dtype).tiny)
    return Start(plan, distance, outside, certainly, step_size, margin, smallest_norm(X, rows=rows))


def weights_of_any(at: Point, start: Start, rule: StepRule) -> Weights:
    """The weights for matrices of all cases, those outside of the safe region too."""
    share = per_matrix(start.plan.share.masked_fill(start.outside, 0))
    if rule.normal_step != "landing":
        return Weights(share, None, None)
    # Outside, F is X minus its recovered self: I - (α I - β S) = (1 - α + β) I + β Δ; a step of 1 recovers.
    alpha, beta = recovery_of(at.Delta, at.distance, start)
    on_identity = torch.where(start.outside, 1 - alpha + beta, 0.0).unsqueeze(-1)
    return Weights(share, per_matrix(torch.where(start.outside, beta, start.plan.attraction)), on_identity)


def recovery_of(Delta: Tensor, distance: Tensor, start: Start) -> tuple[Tensor, Tensor]:
    """α, β of the recovery X (α I - β S): bold for a matrix that is certainly outside, else safe from inside too."""
    bold, gentle = recovery_weights(Delta, distance), gentle_weights(start.distance)
    alpha, beta = (torch.where(start.certainly, one, other) for one, other in zip(bold, gentle, strict=True))
    return alpha, beta


def choose_length(
    at: Point,
    start: Start,
    field_norm: Tensor,
    curvature: tuple[Tensor, Tensor] | None,
    rule: StepRule,
    active: Tensor | None,
) -> Length:
    """The longest step up to the step size that the safeguard admits; a recovery or none where that is called for.

    Args:
        at: X and G in p x p matrices.
        start: What is known before the field.
        field_norm: ‖F‖ of the scaled field.
        curvature: X^H F and F^H F, for the exact safeguard of a landing step.
        rule: The step's options.
        active: Which matrices may move; None for all.
    """
    plan, outside = start.plan, start.outside
    wanted = start.step_size * plan.scale
    if not rule.lands:
        certain, bound = trial_step(plan, start.distance, field_norm, at.Delta.shape[-1], rule, start.margin)
    elif curvature is not None:
        certain = bound = exact_bound(at, start, field_norm, *curvature, wanted, rule)
    else:
        certain = bound = admissible_step(plan, start.distance, field_norm, rule.reach - start.margin)
    step = wanted if rule.safeguard is None else torch.minimum(wanted, bound)
    shortened = (step < wanted) & outside.logical_not()
    step = torch.where(outside, 1.0 if rule.lands else 0.0, step)
    finite = torch.isfinite((step * field_norm).square() + at.distance)
    finite = finite if active is None else finite & active
    skipped = finite.logical_not()
    step = step.masked_fill(skipped, 0)
    return Length(step, at.distance, shortened & finite, outside & finite, skipped, certain)


def exact_bound(
    at: Point,
    start: Start,
    field_norm: Tensor,
    slope: Tensor,
    field_gram: Tensor,
    wanted: Tensor | float,
    rule: StepRule,
) -> Tensor:
    """The longest landing step for which Δ - 2 η sym(X^H F) + η² F^H F is known to stay in the spectral ball.

    The longest of four: the lemma's; the root of the quartic that ends in the Frobenius ball; the lemma in the spectral
    norm; and the wanted one, if where it leads is inside. At most 1/(2λ): beyond it the attraction alone overshoots.
    """
    plan, reach = start.plan, rule.reach - start.margin
    bound: Tensor = admissible_step(plan, at.distance, field_norm, reach).masked_fill(at.distance > reach, 0)
    exact = torch.maximum(bound, largest_quartic_step(at.Delta, slope, field_gram, reach, at_least=bound))
    spread = upper_eigenvalue(field_gram, 0.0).clamp(min=0).sqrt().clamp(min=start.floor)
    pull = pull_of(plan.attraction, start.distance) - plan.drift
    exact = torch.maximum(exact, landing_bound(pull, spread, reach - start.distance, plan.attraction))
    longest = torch.as_tensor(wanted).clamp(max=1 / (2 * plan.attraction))
    end = at.Delta - per_matrix(longest) * (slope + slope.mH) + per_matrix(longest.square()) * field_gram
    inside = spectral_bound(end, reach, square=True) <= reach
    exact = torch.where(inside, torch.maximum(exact, longest), exact)
    # Of a field whose squares underflow its Gram matrix says nothing.
    exact = torch.where(field_norm > 1e4 * start.floor, exact, bound)
    return torch.minimum(exact, 1 / (2 * plan.attraction))


def way_back(
    S: Tensor, Delta: Tensor, start: Start, length: Length, rule: StepRule
) -> tuple[Tensor | None, Tensor, Length]:
    """How a tangent step ends: the share of it to keep, the p x p factor of its normal step, and its length.

    The share is None if it is 1 for all, where that can be seen without waiting for a device.

    Args:
        S: Gram matrix of X after the tangent step.
        Delta: X^H X - I before it.
        start: What is known before the field.
        length: The length that was tried.
        rule: The step's options.
    """
    E, tried = subtract_identity_(S), length.step > length.certain
    if rule.safeguard is None or (is_on_host(S) and not bool(tried.any())):
        return None, normal_factor(E, start, length, rule), length
    reach = rule.upper_reach - start.margin
    before = upper_eigenvalue(Delta, 0.5 * reach)
    growth = upper_eigenvalue(E - Delta, reach - before, square=True)
    share = torch.where(tried, admissible_share(before, growth, reach), 1.0).to(length.step.dtype)
    E = torch.lerp(Delta, E, per_matrix(share).to(E.dtype))
    shortened = length.shortened | ((share < 1) & (start.outside | length.skipped).logical_not())
    root = share.sqrt()
    length = length._replace(step=length.step * root, shortened=shortened)
    return root, normal_factor(E, start, length, rule), length


def normal_factor(E: Tensor, start: Start, length: Length, rule: StepRule) -> Tensor:
    """The p x p factor that mends a moved point with Gram matrix I + E; the recovery's outside, I where skipped."""
    identity = torch.eye(E.shape[-1], dtype=E.dtype, device=E.device)
    if rule.normal_step == "polar":
        factor = inverse_square_root(E + identity, (1 + rule.safe_radius) / 2)
    else:
        factor = newton_schulz_factor(E + identity)
    if rule.safeguard is None:
        # The moved point itself may be beyond what one normal step can mend.
        distance = overflow_free_norm(E)
        beyond, weights = start.outside | (distance > rule.reach), recovery_weights(E, distance)
    else:
        # Where no part of the step could be kept, the start itself may be beyond that, or look as if it were.
        beyond = start.outside | (start.distance > rule.reach) & (length.step == 0)
        weights = recovery_of(E, length.distance, start)
    factor = torch.where(per_matrix(beyond), normal_factor_of(E, weights), factor)
    return torch.where(per_matrix(length.skipped), identity, factor)
