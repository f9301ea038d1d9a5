"""One landing step: field, safeguard and normal part in the fewest products and passes over n x p memory.

The field is computed divided by a scale σ and the step size multiplied by it, so that no gradient overflows.
Matrices outside the safe region, or whose gradient is not finite, are told apart by masks on per-matrix numbers:
there is no host synchronisation and no branch on data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from glideslope.formulas.arguments import (
    HALF_TYPES,
    METRICS,
    NORMAL_STEPS,
    REAL_TYPE,
    SAFEGUARDS,
    check_matrices,
    check_option,
    check_positive,
    check_radius,
    check_step_size,
)
from glideslope.formulas.field import tangent_coefficients
from glideslope.formulas.normal import (
    inverse_square_root,
    newton_schulz_factor,
    newton_schulz_radius,
    recovery_factor,
    recovery_weights,
)
from glideslope.formulas.orthogonality import frobenius, per_matrix, subtract_identity_
from glideslope.formulas.rounding import (
    distance_margin,
    drift_rate,
    overflow_free_norm,
    zero_where_not_finite_,
)
from glideslope.formulas.safeguard import is_outside, largest_quadratic_step, largest_quartic_step


@dataclass(frozen=True)
class StepRule:
    """The options of a landing step, checked once."""

    attraction: float = 1.0
    safe_radius: float = 0.5
    metric: str = "canonical"
    normal_step: str = "landing"
    safeguard: str | None = "lemma"

    def __post_init__(self) -> None:
        check_positive(attraction=self.attraction)
        check_radius(self.safe_radius)
        check_option("metric", self.metric, METRICS)
        check_option("normal_step", self.normal_step, NORMAL_STEPS)
        check_option("safeguard", self.safeguard, SAFEGUARDS)

    @property
    def reach(self) -> float:
        """The distance a step may reach before its normal part: ε, or what the normal part brings back inside."""
        if self.normal_step == "newton-schulz":
            return newton_schulz_radius(self.safe_radius)
        return self.safe_radius if self.normal_step == "landing" else 1.0

    def has_square_form(self, n: int, p: int) -> bool:
        """Whether F = (skew(G X^H) + λ (X X^H - I)) X, three products, gives distance and field of a square X."""
        return n == p and self.metric == "canonical" and self.normal_step == "landing"


class StepOutcome(NamedTuple):
    """What one step did to each matrix."""

    X: Tensor
    """The new iterates."""
    distance: Tensor
    """‖X^H X - I‖_F before the step."""
    shortened: Tensor
    """The safeguard allowed less than the step size asked for."""
    recovered: Tensor
    """The matrix was outside the safe region and took a pure Newton-Schulz step."""
    skipped: Tensor
    """The gradient was not finite, or its products overflowed: the matrix stayed where it was."""


class _Point(NamedTuple):
    """X and G in terms of p x p matrices: S = X^H X, Δ = S - I and C = X^H G (X X^H and G X^H in the square form)."""

    S: Tensor
    Delta: Tensor
    C: Tensor
    distance: Tensor
    outside: Tensor
    scale: Tensor
    """σ: the field is computed divided by it."""
    share: Tensor
    """What the gradient is multiplied with: 1/σ, less where its drift is not affordable."""
    drift: Tensor
    """Bound of ‖sym(X^H T)‖ for the computed, scaled tangent part."""


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

    From inside the safe region the result is inside, for any finite G and any step size; from outside it is one
    Newton-Schulz step; a matrix whose gradient is not finite is returned as it was.

    Args:
        X: Iterate, shape (*batch, n, p) with n >= p.
        G: Euclidean gradient at X or any estimate of it, same shape.
        step_size: η >= 0, a number or a tensor that broadcasts to (*batch), whose negative values count as 0.
        attraction: Weight λ > 0 of the pull towards the manifold (for normal_step="landing").
        safe_radius: ε in (0, 1).
        metric: "canonical", eq. (5), or "euclidean".
        normal_step: "landing": F = T + λ X (X^H X - I), four products (three if n = p). "newton-schulz": a step
            along T, then one Newton-Schulz step, six. "polar": then the exact polar factor, by p x p products.
        safeguard: "lemma", "exact" (two products more) or None (no guarantee).
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
    G: Tensor,
    step_size: float | Tensor,
    rule: StepRule,
    *,
    out: Tensor | None = None,
    workspace: Tensor | None = None,
    active: Tensor | None = None,
) -> StepOutcome:
    """`landing_step` with its diagnosis, for (n, p) or (batch, n, p) in float32 or wider, under torch.no_grad().

    Args:
        X: Iterate.
        G: Gradient.
        step_size: η, a number or a real tensor of shape () or (batch,).
        rule: The step's options.
        out: Where to write the new X; may be X. Default: the workspace.
        workspace: Scratch of the shape of X, not X, G or out; allocated when absent.
        active: Which matrices may move, one bool each; the others count as skipped. Default: all.
    """
    n, p = X.shape[-2:]
    lands, square = rule.normal_step == "landing", rule.has_square_form(n, p)
    reach = rule.reach - min(distance_margin(X), rule.safe_radius / 4)
    if isinstance(step_size, Tensor):
        step_size = step_size.to(REAL_TYPE[X.dtype]).clamp(min=0)
    at = _measure(X, G, rule, square, reach, step_size)
    wanted = step_size * at.scale
    attraction = rule.attraction / at.scale
    cap = 1 / (2 * attraction) if lands else torch.full_like(at.scale, math.inf)
    pull = attraction * at.distance * (1 - at.distance) if lands else torch.zeros_like(at.scale)

    F = _scaled_field(X, G, at, attraction, rule, square, workspace)
    floor = math.sqrt(n * p * torch.finfo(X.dtype).tiny)  # below it the squares in the norm underflow
    field_norm = frobenius(F).clamp(min=floor)
    slack = reach - at.distance
    bound = torch.minimum(largest_quadratic_step(pull - at.drift, field_norm, slack), cap)
    if rule.safeguard == "exact":
        slope, field_gram = (F @ X.mH, F @ F.mH) if square else (X.mH @ F, F.mH @ F)
        exact = largest_quartic_step(at.Delta, slope, field_gram, reach, at_least=bound)
        # Beyond 1/(2λ) the attraction alone would overshoot the manifold, inside the region as that may be.
        bound = torch.where(field_norm > 1e4 * floor, torch.maximum(bound, exact), bound).minimum(cap)
    if rule.normal_step == "polar":
        # Only drift lowers the eigenvalues of the Gram matrix: from 1 - ε to (1 - ε)/2 at most.
        bound = torch.minimum(bound, (1 - rule.safe_radius) / (4 * at.drift))
    step = wanted if rule.safeguard is None else torch.minimum(wanted, bound)
    shortened = (step < wanted) & at.outside.logical_not()
    step = torch.where(at.outside, 1.0 if lands else 0.0, step)
    finite = torch.isfinite((step * field_norm).square() + at.distance)
    finite = finite if active is None else finite & active
    skipped = finite.logical_not()
    step = step.masked_fill(skipped, 0)

    zero_where_not_finite_(F)
    target = X if lands and out is X else F
    if torch.compiler.is_compiling():  # which knows no out= with strides
        moved = target.copy_(torch.addcmul(X, F, per_matrix(step), value=-1))
    else:
        moved = torch.addcmul(X, F, per_matrix(step), value=-1, out=target)
    if not lands:
        moved = product(moved, _normal_factor(moved, at, skipped, rule), out=out)
    elif out is not None and out is not X:
        moved = out.copy_(moved)
    return StepOutcome(moved, at.distance, shortened & finite, at.outside & finite, skipped)


def _measure(X: Tensor, G: Tensor, rule: StepRule, square: bool, reach: float, step_size: float | Tensor) -> _Point:
    S = X @ X.mH if square else X.mH @ X
    C = G @ X.mH if square else X.mH @ G
    Delta = subtract_identity_(S.clone())
    distance = overflow_free_norm(Delta)
    size = overflow_free_norm(C)
    # In the square form A = skew(G X^H) is skew to the last bit, so there is no drift.
    drift = size * (0.0 if square else drift_rate(X, rule.metric))
    shrink = torch.ones_like(size)
    if rule.safeguard is not None and rule.normal_step == "landing":
        shrink = _affordable_share(drift, distance, rule, reach, step_size)
    scale = (size * shrink).clamp(min=1)
    # A gradient times a subnormal number is no longer tangent: the largest of all are not followed.
    share = shrink / scale
    share = share.masked_fill(share < torch.finfo(share.dtype).tiny, 0)
    outside = is_outside(distance, rule.safe_radius)
    return _Point(S, Delta, C, distance, outside, scale, share, drift * share)


def _affordable_share(
    drift: Tensor, distance: Tensor, rule: StepRule, reach: float, step_size: float | Tensor
) -> Tensor:
    """The share in [0, 1] of a gradient whose drift neither uses up half of the slack nor half of the pull."""
    tiny = torch.finfo(drift.dtype).tiny
    slack = (reach - distance).clamp(min=0)
    longest = (torch.zeros_like(drift) + step_size).clamp(tiny, 1 / (2 * rule.attraction))
    affordable = rule.attraction / 2 * distance * (1 - distance) + slack / longest / 4
    return (affordable / drift.clamp(min=tiny)).clamp(0, 1)


def _scaled_field(
    X: Tensor,
    G: Tensor,
    at: _Point,
    attraction: Tensor,
    rule: StepRule,
    square: bool,
    workspace: Tensor | None,
) -> Tensor:
    """F / σ inside the safe region; outside, X minus its recovered self, so that a step of 1 recovers it."""
    tangent = per_matrix(at.share.masked_fill(at.outside, 0))
    if square:
        coefficient = (at.C - at.C.mH).mul_(tangent / 2)
    else:
        K_X, K_G = tangent_coefficients(at.S, at.C, rule.metric)
        coefficient, K_G = K_X * tangent, K_G * tangent
    if rule.normal_step == "landing":
        # I - (α I - β S) = (1 - α + β) I + β Δ
        alpha, beta = recovery_weights(at.S, at.distance)
        on_identity = 1 - alpha + beta  # zero inside, where (α, β) = (1.5, 0.5)
        on_residual = torch.where(at.outside, beta, attraction)
        coefficient.addcmul_(at.Delta, per_matrix(on_residual))
        coefficient.diagonal(dim1=-2, dim2=-1).add_(on_identity.unsqueeze(-1))
    if square:
        return product(coefficient, X, out=workspace)
    F = product(X, coefficient, out=workspace)
    return F.addmm_(G, K_G) if F.ndim == 2 else F.baddbmm_(G, K_G)


def product(left: Tensor, right: Tensor, *, out: Tensor | None) -> Tensor:
    """The product left @ right, into `out` where there is one; a compiled step may have to copy it there."""
    if out is None or torch.compiler.is_compiling():
        result = left @ right
        return result if out is None else out.copy_(result)
    return torch.matmul(left, right, out=out)


def _normal_factor(moved: Tensor, at: _Point, skipped: Tensor, rule: StepRule) -> Tensor:
    """The p x p factor that brings the moved point back; the recovery's outside, the identity where skipped."""
    S = moved.mH @ moved
    if rule.normal_step == "polar":
        factor = inverse_square_root(S, (1 + rule.safe_radius) / 2)
    else:
        factor = newton_schulz_factor(S)
    # Without a safeguard the moved point itself may be beyond what one normal step can mend.
    distance = overflow_free_norm(subtract_identity_(S.clone())) if rule.safeguard is None else at.distance
    beyond = at.outside | (distance > rule.reach)
    factor = torch.where(per_matrix(beyond), recovery_factor(S, distance), factor)
    identity = torch.eye(S.shape[-1], dtype=S.dtype, device=S.device)
    return torch.where(per_matrix(skipped), identity, factor)
