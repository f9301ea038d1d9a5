"""What a step decides for every matrix, whatever its case: where it starts, what its field is made of, how far it goes.

All of it follows from p x p matrices and norms: it is the same for a matrix in one piece and in blocks of rows.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from glideslope.formulas.arguments import REAL_TYPE
from glideslope.formulas.measure import Point
from glideslope.formulas.normal import inverse_square_root, newton_schulz_factor, recovery_factor, recovery_weights
from glideslope.formulas.orthogonality import per_matrix, subtract_identity_
from glideslope.formulas.plan import Plan, admissible_step, plan_step, polar_bound, safe_reach
from glideslope.formulas.rounding import overflow_free_norm, smallest_norm
from glideslope.formulas.rule import StepOutcome, StepRule
from glideslope.formulas.safeguard import is_outside, largest_quartic_step


class Start(NamedTuple):
    """What is known before the field."""

    plan: Plan
    outside: Tensor
    """Which matrices are outside of the safe region."""
    step_size: float | Tensor
    reach: float
    """The distance a step may reach before its normal part, less what rounding may add."""
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

    def outcome(self, X: Tensor) -> StepOutcome:
        """The outcome, with the new iterates."""
        return StepOutcome(X, *self[1:])


class Weights(NamedTuple):
    """What the parts of the field are multiplied with, (*batch, 1, 1); None where a part is missing or has weight 1."""

    share: Tensor | None
    on_residual: Tensor | float | None
    on_identity: Tensor | None


def start_of(X: Tensor, at: Point, rule: StepRule, step_size: float | Tensor, *, rows: int | None = None) -> Start:
    """The plan of the step; `rows` is n where X is only a part of it."""
    reach = safe_reach(X, rule, rows=rows)
    if isinstance(step_size, Tensor):
        step_size = step_size.to(REAL_TYPE[X.dtype]).clamp(min=0)
    outside = is_outside(at.distance, rule.safe_radius)
    plan = plan_step(at.distance, at.size, at.drift, rule, reach, step_size, torch.finfo(X.dtype).tiny)
    return Start(plan, outside, step_size, reach, smallest_norm(X, rows=rows))


def weights_of_any(at: Point, start: Start, rule: StepRule) -> Weights:
    """The weights for matrices of all cases, those outside of the safe region too."""
    share = per_matrix(start.plan.share.masked_fill(start.outside, 0))
    if rule.normal_step != "landing":
        return Weights(share, None, None)
    # Outside, F is X minus its recovered self: I - (α I - β S) = (1 - α + β) I + β Δ; a step of 1 recovers.
    alpha, beta = recovery_weights(at.Delta, at.distance)
    on_identity = (1 - alpha + beta).unsqueeze(-1)  # zero inside, where (α, β) = (1.5, 0.5)
    return Weights(share, per_matrix(torch.where(start.outside, beta, start.plan.attraction)), on_identity)


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
        curvature: X^H F and F^H F, for the exact safeguard.
        rule: The step's options.
        active: Which matrices may move; None for all.
    """
    plan, outside, lands = start.plan, start.outside, rule.normal_step == "landing"
    bound: Tensor = admissible_step(plan, at.distance, field_norm, rule, start.reach)
    if curvature is not None:
        exact = largest_quartic_step(at.Delta, *curvature, start.reach, at_least=bound)
        bound = torch.where(field_norm > 1e4 * start.floor, torch.maximum(bound, exact), bound)
        if lands:  # Beyond 1/(2λ) the attraction alone would overshoot the manifold, inside the region as that may be.
            bound = torch.minimum(bound, 1 / (2 * plan.attraction))
    if rule.normal_step == "polar":
        bound = torch.minimum(bound, polar_bound(plan, rule))
    wanted = start.step_size * plan.scale
    step = wanted if rule.safeguard is None else torch.minimum(wanted, bound)
    shortened = (step < wanted) & outside.logical_not()
    step = torch.where(outside, 1.0 if lands else 0.0, step)
    finite = torch.isfinite((step * field_norm).square() + at.distance)
    finite = finite if active is None else finite & active
    skipped = finite.logical_not()
    return Length(step.masked_fill(skipped, 0), at.distance, shortened & finite, outside & finite, skipped)


def normal_factor(S: Tensor, start: Start, length: Length, rule: StepRule) -> Tensor:
    """The p x p factor that brings a moved point with Gram matrix S back; the recovery's outside, I where skipped."""
    Delta, distance = subtract_identity_(S.clone()), length.distance
    if rule.normal_step == "polar":
        factor = inverse_square_root(S, (1 + rule.safe_radius) / 2)
    else:
        factor = newton_schulz_factor(S)
    # Without a safeguard the moved point itself may be beyond what one normal step can mend.
    if rule.safeguard is None:
        distance = overflow_free_norm(Delta)
    beyond = start.outside | (distance > rule.reach)
    factor = torch.where(per_matrix(beyond), recovery_factor(Delta, distance), factor)
    identity = torch.eye(S.shape[-1], dtype=S.dtype, device=S.device)
    return torch.where(per_matrix(length.skipped), identity, factor)
