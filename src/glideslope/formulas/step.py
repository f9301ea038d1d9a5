"""One landing step: field, safeguard and normal part in the fewest products and passes over n x p memory.

The field is computed divided by a scale σ and the step size multiplied by it, so that no gradient overflows.
Matrices outside the safe region, or whose gradient is not finite, are told apart by masks on per-matrix numbers:
there is no host synchronisation and no branch on data. One matrix on the CPU is already on the host: there the
numbers are Python floats, which saves a hundred operations on tensors of one entry, in all cases but those two.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glideslope.formulas.alike import LARGEST_SIZE, look_alike
from glideslope.formulas.arguments import HALF_TYPES, check_matrices, check_step_size
from glideslope.formulas.factored import Factored, add_product_
from glideslope.formulas.field import tangent_coefficients
from glideslope.formulas.host import step_on_host
from glideslope.formulas.length import Weights, choose_length, start_of, way_back, weights_of_any
from glideslope.formulas.measure import Point, measure
from glideslope.formulas.orthogonality import frobenius, per_matrix
from glideslope.formulas.plan import Plan
from glideslope.formulas.rounding import zero_where_not_finite_
from glideslope.formulas.rule import StepOutcome, StepRule
from glideslope.formulas.workspace import Workspace, is_on_host, product


@torch.no_grad()
def landing_step(
    X: Tensor,
    G: Tensor,
    *,
    step_size: float | Tensor,
    attraction: float = 1.0,
    safe_radius: float = 0.5,
    metric: str = "canonical",
    normal_step: str = "landing",
    safeguard: str | None = "lemma",
    out: Tensor | None = None,
) -> Tensor:
    r"""One step X - min(η, η(X)) F from X, eq. (19) with the safeguard (14); with an estimate as G, eq. (20).

    From inside the safe region the result is inside, for any finite G and any step size: ‖X^H X - I‖_F <= ε for the
    paper's step, ‖X^H X - I‖_2 <= ε for the other normal steps and for "exact". From outside it is one Newton-Schulz
    step; a matrix whose gradient is not finite is returned as it was.

    Args:
        X: Iterate, shape (*batch, n, p) with n >= p.
        G: Euclidean gradient at X or any estimate of it, same shape.
        step_size: η >= 0, a number or a tensor that broadcasts to (*batch), whose negative values count as 0.
        attraction: Weight λ > 0 of the pull towards the manifold (for normal_step="landing").
        safe_radius: ε in (0, 1).
        metric: "canonical", eq. (5), or "euclidean".
        normal_step: "landing": F = T + λ X (X^H X - I), four products (three if n = p). "newton-schulz": a step
            along T, then one Newton-Schulz step, six (five for a tall one on the CPU). "polar": then the exact polar
            factor, by p x p products.
        safeguard: "lemma", "exact" (for "landing" two products more) or None (no guarantee).
        out: Where to write the result; may be X itself. Default: a new tensor.
    """
    rule = StepRule(attraction, safe_radius, metric, normal_step, safeguard)
    check_matrices(X=X, G=G)
    check_step_size(step_size, X.shape[:-2])
    if out is not None:
        check_matrices(X=X, out=out)
    batch, half = X.shape[:-2], X.dtype in HALF_TYPES
    if isinstance(step_size, Tensor):
        step_size = step_size.expand(batch).flatten() if batch else step_size
    compute = torch.float32 if half else X.dtype
    rows = (-1, *X.shape[-2:]) if batch else X.shape
    flat_X, flat_G = X.to(compute).reshape(rows), G.to(compute).reshape(rows)
    result = take_step(flat_X, flat_G, step_size, rule).X.reshape(X.shape).to(X.dtype)
    return result if out is None else out.copy_(result)


def take_step(
    X: Tensor,
    G: Tensor | Factored,
    step_size: float | Tensor,
    rule: StepRule,
    *,
    out: Tensor | None = None,
    workspace: Workspace | None = None,
    active: Tensor | None = None,
    cross: Tensor | None = None,
) -> StepOutcome:
    """`landing_step` with its diagnosis, for (n, p) or (batch, n, p) in float32 or wider, under torch.no_grad().

    Args:
        X: Iterate.
        G: Gradient, or its factors at this X.
        step_size: η, a number or a real tensor of shape () or (batch,).
        rule: The step's options.
        out: Where to write the new X; may be X. Default: the workspace.
        workspace: Scratch that steps of this shape reuse; allocated when absent.
        active: Which matrices may move, one bool each; the others count as skipped. Default: all.
        cross: X^H G, or G X^H where the rule has a square form, if the caller knows it.
    """
    workspace = workspace or Workspace()
    if X.ndim == 2 and is_on_host(X):
        outcome = step_on_host(X, G, step_size, rule, out, workspace, active, cross)
        if outcome is not None:
            return outcome
    return _step_of_all(X, G, step_size, rule, out, workspace, active, cross)


def _step_of_all(
    X: Tensor,
    G: Tensor | Factored,
    step_size: float | Tensor,
    rule: StepRule,
    out: Tensor | None,
    workspace: Workspace,
    active: Tensor | None,
    cross: Tensor | None,
) -> StepOutcome:
    """The step of every matrix, whatever its case."""
    at = measure(X, G, rule, workspace, cross)
    natural = 1.0 if rule.metric == "euclidean" else 0.5  # of the tangent part without a share
    alike = look_alike(X, at, rule, step_size, active)
    F = norms = None
    if alike is not None:
        F = scaled_field(X, G, at, Weights(None, rule.attraction / natural, None), rule, workspace)
        if alike.moving is not None:
            F.masked_fill_(per_matrix(alike.moving.logical_not()), 0)
        norms = frobenius(F)
        if alike.admits(norms.amax().item() * natural, rule):
            along = X.new_full((), alike.step_size * natural)
            skipped = False if alike.moving is None else alike.moving.logical_not()
            return StepOutcome(_move(X, F, along, out, lands=True), at.distance, False, False, skipped)
    start = start_of(X, at, rule, step_size)
    plan, lands = start.plan, rule.lands
    regular = alike is not None or _is_regular(X, at, plan, start.outside, rule)
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
    if alike is not None:  # a matrix moves by the same bits whether or not another one is shortened
        along = torch.where(length.shortened, along, alike.step_size * natural)
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
    if not is_on_host(X) or rule.safeguard == "exact":
        return False
    usual = outside.logical_not() & (at.size < LARGEST_SIZE) & (plan.share * plan.scale > 1e-3)
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
