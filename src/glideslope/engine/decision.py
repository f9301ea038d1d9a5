"""How long a step is: the numbers of a landing step that belong to a matrix, from three norms.

Every function takes tensors with one number per matrix, or, for one matrix on the host, Python floats.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glideslope.engine.rounding import distance_margin
from glideslope.engine.rule import StepRule
from glideslope.formulas.safeguard import attraction_of, largest_quadratic_step, pull_of

# A tensor with one number per matrix, or a float.
Number = Any
# Keeps a division by a drift of zero finite.
TINY = 1e-30
# Gradients up to this size need no scale.
LARGEST_SIZE = 1e15


class Plan(NamedTuple):
    """Numbers known before the field: its scale σ, the factor of the gradient, drift and attraction."""

    scale: Number
    """σ: the field is computed divided by it, so that no gradient overflows."""
    share: Number
    """Factor of the gradient: 1/σ, less where its drift is not affordable."""
    drift: Number
    """Bound of ‖sym(X^H T)‖ for the computed, scaled tangent part."""
    attraction: Number
    """λ / σ."""


def at_least(number: Number, least: float) -> Number:
    """The larger of the two."""
    return number.clamp(min=least) if isinstance(number, Tensor) else max(number, least)


def smaller(one: Number, other: Number) -> Number:
    """The smaller of the two, both tensors or both floats."""
    return torch.minimum(one, other) if isinstance(one, Tensor) else min(one, other)


def larger(one: Number, other: Number) -> Number:
    """The larger of the two, both tensors or both floats."""
    return torch.maximum(one, other) if isinstance(one, Tensor) else max(one, other)


def rounding_margin(X: Tensor, rule: StepRule, *, rows: int | None = None, steps: int = 1) -> float:
    """How far a step stays from the end of its reach because of the rounding of this many steps.

    `rows` is n where X is only a part of it.
    """
    return min(steps * distance_margin(X, rows=rows), rule.safe_radius / 4)


def follows(plan: Plan) -> Any:
    """Whether a step follows at least a thousandth of its gradient: not where that is almost normal to the manifold."""
    return plan.share * plan.scale > 1e-3


def plan_step(
    distance: Number, size: Number, drift: Number, rule: StepRule, reach: float, step_size: float | Tensor, tiny: float
) -> Plan:
    """The plan of a step from d = ‖X^H X - I‖, ‖X^H G‖ and the drift of the unscaled tangent part.

    Args:
        distance: d.
        size: ‖X^H G‖_F.
        drift: Bound of ‖sym(X^H T)‖.
        rule: The step's options.
        reach: The distance a step may reach before its normal part.
        step_size: η.
        tiny: The smallest normal number of the type of X.
    """
    attraction = attraction_of(rule.attraction, step_size)
    shrink = size * 0 + 1 if isinstance(size, Tensor) else 1.0
    if rule.safeguard is not None and rule.lands:
        shrink = affordable_share(drift, distance, attraction, reach, step_size, tiny)
    scale = at_least(size * shrink, 1.0)
    # A gradient times a subnormal number is no longer tangent: the largest of all are not followed.
    share = shrink / scale
    if isinstance(share, Tensor):
        share = share.masked_fill(share < tiny, 0)
    elif share < tiny:
        share = 0.0
    return Plan(scale, share, drift * share, attraction / scale)


def affordable_share(
    drift: Number, distance: Number, attraction: Number, reach: float, step_size: float | Tensor, tiny: float
) -> Number:
    """The share in [0, 1] of a gradient whose drift neither uses up half of the slack nor half of the pull."""
    slack = at_least(reach - distance, 0.0)
    longest = 1 / (2 * attraction)
    within = at_least(step_size, tiny)
    within = within.clamp(max=longest) if isinstance(within, Tensor) else min(within, longest)
    affordable = pull_of(attraction, distance) / 2 + slack / within / 4
    share = affordable / at_least(drift, tiny)
    return share.clamp(0, 1) if isinstance(share, Tensor) else min(max(share, 0.0), 1.0)


def admissible_step(plan: Plan, distance: Number, field_norm: Number, reach: float) -> Number:
    """The longest landing step along the scaled field that the lemma admits, drift included; at most σ/(2λ)."""
    pull = pull_of(plan.attraction, distance) - plan.drift
    return landing_bound(pull, field_norm, reach - distance, plan.attraction)


def landing_bound(pull: Number, field_norm: Number, slack: Number, attraction: Number) -> Number:
    """The longest landing step: by the lemma, and at most 1/(2λ)."""
    return smaller(largest_quadratic_step(pull, field_norm, slack), 1 / (2 * attraction))


def trial_step(
    plan: Plan, distance: Number, field_norm: Number, columns: int, rule: StepRule, margin: float
) -> tuple[Number, Number]:
    """Two lengths of a tangent step X - η T that a normal step follows: one known to be safe, and one worth trying.

    Y^H Y - I = Δ + η² T^H T. Up to the first length ‖Δ‖ + η² ‖T‖_F² is within reach, drift included. The second one
    may be p^½ times as long: beyond it the largest eigenvalue of η² T^H T, at least its mean, is out of reach. Whether
    and how far to shorten it, `admissible_share` says from the eigenvalues of Y^H Y.
    """
    safe = largest_quadratic_step(-plan.drift, field_norm, rule.reach - margin - distance)
    flat = math.sqrt(columns * rule.upper_reach) / field_norm
    # A step that is shortened after the trial has a Gram matrix that is known up to its drift. The polar factor is to
    # be exact, so it gets little of that; the bound is some 200 times what was measured.
    budget = rule.drift_budget if rule.normal_step == "newton-schulz" else min(rule.drift_budget, 64 * margin)
    longest = smaller(flat, budget / at_least(plan.drift, TINY))
    if rule.normal_step == "polar":
        safe, longest = (smaller(step, polar_bound(plan, rule)) for step in (safe, longest))
    return safe, larger(safe, longest)


def admissible_share(before: Number, growth: Number, reach: Number) -> Number:
    """The share r² in [0, 1] of a tangent step's square that keeps the largest eigenvalue of Δ + r² (E - Δ) in reach.

    Args:
        before: Upper bound of the eigenvalues of Δ.
        growth: Upper bound of those of E - Δ, E = Y^H Y - I.
        reach: What the largest eigenvalue may be.
    """
    if not isinstance(growth, Tensor):
        if before + growth <= reach:
            return 1.0
        return max(reach - before, 0.0) / growth if growth > 0 else 0.0
    share = torch.where(growth > 0, (reach - before).clamp(min=0) / growth, 0.0)
    return torch.where(before + growth <= reach, 1.0, share)


def polar_bound(plan: Plan, rule: StepRule) -> Number:
    """The step up to which drift leaves the eigenvalues of the Gram matrix above (1 - ε)/2.

    Only drift lowers them: from 1 - ε to (1 - ε)/2 at most.
    """
    if isinstance(plan.drift, Tensor) or plan.drift > 0:
        return (1 - rule.safe_radius) / (4 * plan.drift)
    return math.inf
