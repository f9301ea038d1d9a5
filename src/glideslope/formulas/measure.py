"""Where a step starts: X and its gradient in terms of p x p matrices and three norms."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from glideslope.formulas.factored import Factored, cancelled_size, cross_gram
from glideslope.formulas.orthogonality import subtract_identity_
from glideslope.formulas.rounding import drift_rate, overflow_free_norm
from glideslope.formulas.rule import StepRule
from glideslope.formulas.workspace import Workspace, gram_product, product


class Point(NamedTuple):
    """X and G in terms of p x p matrices: Δ = X^H X - I and C = X^H G (X X^H and G X^H in the square form)."""

    Delta: Tensor
    C: Tensor
    distance: Tensor
    size: Tensor
    """‖C‖_F."""
    drift: Tensor
    """Bound of ‖sym(X^H T)‖ for the computed tangent part."""
    square: bool


def cross_of(X: Tensor, G: Tensor | Factored, *, square: bool, out: Tensor | None = None) -> Tensor:
    """C = X^H G; in the square form G X^H."""
    return product(G, X.mH, out=out) if square and isinstance(G, Tensor) else cross_gram(X, G, out=out)


def measure(
    X: Tensor, G: Tensor | Factored, rule: StepRule, workspace: Workspace, cross: Tensor | None = None
) -> Point:
    """The two p x p products a step begins with, and their norms; `cross` is the second one where it is known."""
    p = X.shape[-1]
    square = rule.has_square_form(*X.shape[-2:]) and isinstance(G, Tensor)
    pair = workspace.memory("pair", X.unsqueeze(0).expand(2, *X.shape), p, p)
    for_gram, for_cross = (None, None) if pair is None else pair.unbind(0)
    Delta = subtract_identity_(gram_product(X.mH if square else X, out=for_gram))
    if cross is not None:
        C = cross if for_cross is None else for_cross.copy_(cross)
    else:
        C = cross_of(X, G, square=square, out=for_cross)
    if pair is None:
        distance, size = overflow_free_norm(Delta), overflow_free_norm(C)
    else:
        distance, size = overflow_free_norm(pair).unbind(0)
    # In the square form A = skew(G X^H) is skew to the last bit, so there is no drift.
    rate = 0.0 if square else drift_rate(X, rule.metric)
    return Point(Delta, C, distance, size, cancelled_size(G, size) * rate, square)
