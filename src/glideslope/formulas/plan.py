"""How long a step is: the numbers of a landing step that belong to a matrix, from three norms.

Every function takes tensors with one number per matrix, or, for one matrix on the host, Python floats.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glideslope.formulas.rounding import distance_margin
from glideslope.formulas.rule import StepRule
from glideslope.formulas.safeguard import largest_quadratic_step, pull_of

# A tensor with one number per matrix, or a float.
Number = Any


class Plan(NamedTuple):
    """What is known before the field: its scale σ, what the gradient is multiplied with, and the bounds of the step."""

    scale: Number
    """σ: the field is computed divided by it, so that no gradient overflows."""
    share: Number
    """What the gradient is multiplied with: 1/σ, less where its drift is not affordable."""
    drift: Number
    """Bound of ‖sym(X^H T)‖ for the computed, scaled tangent part."""
    attraction: Number
    """λ / σ."""


def at_least(number: Number, least: float) -> Number:
    """The larger of the two."""
    return number.clamp(min=least) if isinstance(number, Tensor) else max(number, least)


def smaller(one: Number, other: Number) -> Number:
    """The smaller of the two."""
    return torch.minimum(one, other) if isinstance(one, Tensor) else min(one, other)


def safe_reach(X: Tensor, rule: StepRule, *, rows: int | None = None) -> float:
    """The distance a step may reach before its normal part, less what rounding may add; `rows` as in `drift_rate`."""
    return rule.reach - min(distance_margin(X, rows=rows), rule.safe_radius / 4)


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
    shrink = size * 0 + 1 if isinstance(size, Tensor) else 1.0
    if rule.safeguard is not None and rule.normal_step == "landing":
        shrink = affordable_share(drift, distance, rule, reach, step_size, tiny)
    scale = at_least(size * shrink, 1.0)
    # A gradient times a subnormal number is no longer tangent: the largest of all are not followed.
    share = shrink / scale
    if isinstance(share, Tensor):
        share = share.masked_fill(share < tiny, 0)
    elif share < tiny:
        share = 0.0
    return Plan(scale, share, drift * share, rule.attraction / scale)


def affordable_share(
    drift: Number, distance: Number, rule: StepRule, reach: float, step_size: float | Tensor, tiny: float
) -> Number:
    """The share in [0, 1] of a gradient whose drift neither uses up half of the slack nor half of the pull."""
    slack = at_least(reach - distance, 0.0)
    longest = 1 / (2 * rule.attraction)
    if isinstance(step_size, Tensor):
        within: Number = step_size.clamp(tiny, longest)
    else:
        within = min(max(step_size, tiny), longest)
    affordable = pull_of(rule.attraction, distance) / 2 + slack / within / 4
    share = affordable / at_least(drift, tiny)
    return share.clamp(0, 1) if isinstance(share, Tensor) else min(max(share, 0.0), 1.0)


def admissible_step(plan: Plan, distance: Number, field_norm: Number, rule: StepRule, reach: float) -> Number:
    """The longest step along the scaled field that the lemma admits, drift included; at most σ/(2λ) for landing."""
    slack = reach - distance
    if rule.normal_step != "landing":
        return largest_quadratic_step(-plan.drift, field_norm, slack)
    return landing_bound(pull_of(plan.attraction, distance) - plan.drift, field_norm, slack, plan.attraction)


def landing_bound(pull: Number, field_norm: Number, slack: Number, attraction: Number) -> Number:
    """The longest landing step: by the lemma, and at most 1/(2λ)."""
    return smaller(largest_quadratic_step(pull, field_norm, slack), 1 / (2 * attraction))


def polar_bound(plan: Plan, rule: StepRule) -> Number:
    """The step up to which drift leaves the eigenvalues of the Gram matrix above (1 - ε)/2.

    Only drift lowers them: from 1 - ε to (1 - ε)/2 at most.
    """
    if isinstance(plan.drift, Tensor) or plan.drift > 0:
        return (1 - rule.safe_radius) / (4 * plan.drift)
    return math.inf
