"""The step of one matrix on the CPU, where the numbers that belong to a matrix are Python floats.

The same plan as on any device, without a hundred operations on tensors of one entry. What is rare (a start outside of
the safe region, a gradient that is not finite or almost normal) is left to the step of all matrices.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glideslope.formulas.factored import Factored, add_product_
from glideslope.formulas.field import skew
from glideslope.formulas.measure import Point, smallest_norm
from glideslope.formulas.normal import inverse_square_root, newton_schulz_factor
from glideslope.formulas.orthogonality import frobenius
from glideslope.formulas.plan import Plan, admissible_step, plan_step, polar_bound
from glideslope.formulas.rule import StepOutcome, StepRule
from glideslope.formulas.workspace import Workspace, gram_product, product


def step_on_host(
    X: Tensor,
    G: Tensor | Factored,
    at: Point,
    step_size: float | Tensor,
    rule: StepRule,
    reach: float,
    out: Tensor | None,
    workspace: Workspace,
    active: Tensor | None,
) -> StepOutcome | None:
    """The step of one matrix from inside the safe region along a finite gradient; None in any other case."""
    distance, size, drift = at.distance.item(), at.size.item(), at.drift.item()
    if not distance <= rule.safe_radius or not math.isfinite(size + drift) or (active is not None and not active):
        return None
    lands = rule.normal_step == "landing"
    if rule.safeguard == "exact" or (rule.safeguard is None and not lands):
        return None
    step_size = max(float(step_size), 0.0)
    plan = plan_step(distance, size, drift, rule, reach, step_size, torch.finfo(X.dtype).tiny)
    if plan.share * 1e3 < 1 / plan.scale:  # the drift of a gradient almost normal to the manifold
        return None
    F = field_on_host(X, G, at, plan, rule, workspace)
    field_norm = frobenius(F).item()
    wanted = step_size * plan.scale
    bound = math.inf
    if rule.safeguard is not None:
        bound = admissible_step(plan, distance, max(field_norm, smallest_norm(X)), rule, reach)
    if rule.normal_step == "polar":
        bound = min(bound, polar_bound(plan, rule))
    step = min(wanted, bound)
    if not step * field_norm * step * field_norm < torch.finfo(X.dtype).max:
        return None
    moved = torch.sub(X, F, alpha=step, out=X if lands and out is X else F)
    if not lands:
        p = X.shape[-1]
        S = gram_product(moved, out=workspace.memory("gram", X, p, p))
        polar = rule.normal_step == "polar"
        factor = inverse_square_root(S, (1 + rule.safe_radius) / 2) if polar else newton_schulz_factor(S)
        moved = product(moved, factor, out=out)
    elif out is not None and out is not X:
        moved = out.copy_(moved)
    return StepOutcome(moved, at.distance, step < wanted, False, False)


def field_on_host(
    X: Tensor, G: Tensor | Factored, at: Point, plan: Plan, rule: StepRule, workspace: Workspace
) -> Tensor:
    """The field of one matrix in the fewest operations: factors go into the products, not into p x p matrices."""
    n, p = X.shape
    factor = plan.share if rule.metric == "euclidean" else plan.share / 2
    K, F = workspace.memory("coefficient", X, p, p), workspace.memory("field", X, n, p)
    assert K is not None
    assert F is not None
    if at.square:
        torch.sub(at.C, at.C.mH, out=K)
    elif rule.metric == "canonical":
        torch.neg(at.C.mH, out=K)
    else:
        W = skew(at.C)
        torch.sub(W - at.C, W @ at.Delta, out=K)
    if rule.normal_step == "landing":
        K.add_(at.Delta, alpha=plan.attraction / factor)
    if at.square:
        return torch.addmm(F, K, X, beta=0, alpha=factor, out=F)
    torch.addmm(F, X, K, beta=0, alpha=factor, out=F)
    return add_product_(F, G, torch.add(at.Delta, workspace.identity(X), out=at.C), alpha=factor)
