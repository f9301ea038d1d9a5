"""One landing step: field, safeguard and normal part in the fewest products and passes over n x p memory.

The field is computed divided by a scale σ and the step size multiplied by it, so that no gradient overflows.
Masks on per-matrix numbers handle matrices outside the safe region and gradients that are not finite, so there is no
host synchronisation and no branch on data. `one_matrix` serves a single matrix on the CPU in all cases but those two.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glideslope.engine.batch_decision import Weights, choose_length, start_of, way_back, weights_of_any
from glideslope.engine.common_bound import common_bound
from glideslope.engine.decision import LARGEST_SIZE, Plan, follows
from glideslope.engine.gradient import Factored, add_product_
from glideslope.engine.point import Point, point_of
from glideslope.engine.products import Pair, Workspace, is_on_host, product
from glideslope.engine.rounding import zero_where_not_finite_
from glideslope.engine.rule import StepOutcome, StepRule
from glideslope.formulas.field import tangent_coefficients
from glideslope.formulas.orthogonality import frobenius, per_matrix


def step_of_batch(
    X: Tensor,
    G: Tensor | Factored,
    step_size: float | Tensor,
    rule: StepRule,
    out: Tensor | None,
    workspace: Workspace,
    active: Tensor | None,
    products: Pair | None,
) -> StepOutcome:
    """The step of every matrix, whatever its case."""
    at = point_of(X, G, rule, workspace, products)
    natural = 1.0 if rule.metric == "euclidean" else 0.5  # of the tangent part without a share
    common = common_bound(X, at, rule, step_size, active)
    F = norms = None
    if common is not None:
        F = scaled_field(X, G, at, Weights(None, common.attraction / natural, None), rule, workspace)
        if common.moving is not None:
            F.masked_fill_(per_matrix(common.moving.logical_not()), 0)
        norms = frobenius(F)
        if common.admits(norms.amax().item() * natural):
            along = X.new_full((), common.step_size * natural)
            skipped = False if common.moving is None else common.moving.logical_not()
            return StepOutcome(_move(X, F, along, out, lands=True), at.distance, False, False, skipped)
    start = start_of(X, at, rule, step_size)
    plan, lands = start.plan, rule.lands
    regular = common is not None or _is_regular(X, at, plan, start.outside, rule)
    # Where nothing is rare the field is computed in units of its share, which saves passes over p x p matrices.
    unit: Tensor | float = plan.share * natural if regular else 1.0
    if F is None or norms is None:
        if regular:
            weights = Weights(None, per_matrix(plan.attraction / unit) if lands else None, None)
        else:
            weights = weights_of_any(at, start, rule)
        F = scaled_field(X, G, at, weights, rule, workspace)
        norms = frobenius(F)
    field_norm = (norms * unit).clamp(min=start.floor)
    curvature = None
    if lands and rule.safeguard == "exact":
        curvature = (F @ X.mH, F @ F.mH) if at.square else (X.mH @ F, F.mH @ F)
    length = choose_length(at, start, field_norm, curvature, rule, active)

    if not regular or not math.isfinite(field_norm.sum().item()):
        zero_where_not_finite_(F)
    along = length.step * unit
    if common is not None:  # a matrix moves by the same bits whether or not another one is shortened
        along = torch.where(length.shortened, along, common.step_size * natural)
    moved = _move(X, F, per_matrix(along.masked_fill(length.skipped, 0)), out, lands=lands)
    if not lands:
        root, factor, length = way_back(moved.mH @ moved, at.Delta, start, length, rule)
        moved = product(keep_share(X, moved, root), factor, out=out)
    return length.outcome(moved)


def keep_share(X: Tensor, moved: Tensor, root: Tensor | None) -> Tensor:
    """X + r (moved - X), in the memory of the moved point; None for r = 1."""
    if root is None:
        return moved
    into = None if torch.compiler.is_compiling() else moved
    return torch.lerp(X, moved, per_matrix(root).to(X.dtype), out=into)


def _move(X: Tensor, F: Tensor, along: Tensor, out: Tensor | None, *, lands: bool) -> Tensor:
    """X - along F; into `out`, if that is the end of the step, else into F."""
    target = X if lands and out is X else F
    if torch.compiler.is_compiling():  # which knows no out= with strides
        moved = target.copy_(torch.addcmul(X, F, along, value=-1))
    else:
        moved = torch.addcmul(X, F, along, value=-1, out=target)
    return out.copy_(moved) if lands and out is not None and out is not X else moved


def _is_regular(X: Tensor, at: Point, plan: Plan, outside: Tensor, rule: StepRule) -> bool:
    """Whether, on the host, where it costs nothing to look, no matrix is outside, huge or almost without a share."""
    if not is_on_host(X) or (rule.lands and rule.safeguard == "exact"):
        return False
    usual = outside.logical_not() & (at.size < LARGEST_SIZE) & follows(plan)
    # A gradient that is not finite is masked in any case, and must not change the rounding of the other matrices.
    return bool((usual | torch.isfinite(at.size).logical_not()).all())


def scaled_field(
    X: Tensor, G: Tensor | Factored, at: Point, weights: Weights, rule: StepRule, workspace: Workspace
) -> Tensor:
    """The tangent part times `share`, plus X (on_residual Δ + on_identity I) where they are given.

    Without a share the canonical tangent part comes twice as long, as G S - X C^H. Rows of X and G give those of F.
    """
    share, on_residual, on_identity = weights
    n, p = X.shape[-2:]
    field = workspace.memory("field", X, n, p)
    coefficient = workspace.memory("coefficient", X, p, p)
    coefficient, factor = tangent_coefficients(at.Delta, at.C, rule.metric, square=at.square, out=coefficient)
    if share is not None:
        share = share * factor
        coefficient.mul_(share)
    if isinstance(on_residual, Tensor):
        coefficient.addcmul_(at.Delta, on_residual)
    elif on_residual is not None:
        coefficient.add_(at.Delta, alpha=on_residual)
    if on_identity is not None:
        coefficient.diagonal(dim1=-2, dim2=-1).add_(on_identity)
    if at.square:
        return product(coefficient, X, out=field)
    K_G = torch.mul(at.Delta, 1.0 if share is None else share, out=workspace.memory("gram", X, p, p))
    K_G.diagonal(dim1=-2, dim2=-1).add_(1.0 if share is None else share.squeeze(-1))
    return add_product_(product(X, coefficient, out=field), G, K_G)
