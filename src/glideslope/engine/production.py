"""The landing step in production: as a function for users, and with its outcome for optimizers and solvers."""

from __future__ import annotations

import torch
from torch import Tensor

from glideslope.engine.batch import step_of_batch
from glideslope.engine.gradient import Factored
from glideslope.engine.one_matrix import has_host_step, step_on_host
from glideslope.engine.products import Pair, Workspace, is_on_host
from glideslope.engine.rule import StepOutcome, StepRule
from glideslope.formulas.arguments import HALF_TYPES, check_matrices, check_step_size


@torch.no_grad()
def landing_step(
    X: Tensor,
    G: Tensor,
    *,
    step_size: float | Tensor,
    attraction: float | str = "auto",
    safe_radius: float = 0.5,
    metric: str = "euclidean",
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
        attraction: For normal_step="landing": weight λ > 0 of the pull towards the manifold. "auto" is 1/(2η): every
            whole step contains one Newton-Schulz step, whatever η.
        safe_radius: ε in (0, 1).
        metric: "euclidean", or "canonical", eq. (5).
        normal_step: "landing": F = T + λ X (X^H X - I), four products (three if n = p). "newton-schulz": a step
            along T, then one Newton-Schulz step, six (five for a tall one on the CPU). "polar": then the exact polar
            factor, by p x p products.
        safeguard: "lemma", "exact" (for "landing" two products more) or None (no guarantee).
        out: Where to write the result; may be X itself. Default: a new tensor.

    Examples:
        >>> X, G = gs.random_stiefel(50, 5), torch.randn(50, 5)
        >>> X = gs.landing_step(X, G, step_size=0.1)
        >>> bool(gs.formulas.distance(X) <= 0.5)
        True
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
    products: Pair | None = None,
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
        products: X^H X and X^H G, or X X^H and G X^H where the rule has a square form, if the caller knows them;
            overwritten.
    """
    workspace, rule = workspace or Workspace(), rule.for_shape(*X.shape[-2:])
    if X.ndim == 2 and is_on_host(X) and has_host_step(rule):
        outcome = step_on_host(X, G, step_size, rule, out, workspace, active, products)
        if outcome is not None:
            return outcome
        products = None  # they may be overwritten; such cases are rare
    return step_of_batch(X, G, step_size, rule, out, workspace, active, products)
