"""Where a step starts: X and its gradient in terms of p x p matrices and three norms."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from glideslope.engine.gradient import Factored, cancelled_size, cross_gram
from glideslope.engine.products import Pair, Workspace, gram_product, product
from glideslope.engine.rounding import drift_rate, overflow_free_norm
from glideslope.engine.rule import StepRule
from glideslope.formulas.orthogonality import subtract_identity_


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


def products_of(X: Tensor, G: Tensor | Factored, *, square: bool, workspace: Workspace) -> Pair:
    """The two p x p products a step begins with."""
    pair = workspace.pair(X)
    gram = gram_product(X.mH if square else X, out=None if pair is None else pair.gram)
    cross = cross_of(X, G, square=square, out=None if pair is None else pair.cross)
    return Pair(gram, cross) if pair is None else pair


def point_of(
    X: Tensor, G: Tensor | Factored, rule: StepRule, workspace: Workspace, products: Pair | None = None
) -> Point:
    """Where a step starts, from its two products, which are computed where they are not known, and overwritten."""
    square = rule.has_square_form(*X.shape[-2:]) and isinstance(G, Tensor)
    products = products_of(X, G, square=square, workspace=workspace) if products is None else products
    Delta, C = subtract_identity_(products.gram), products.cross
    if products.both is not None:
        distance, size = overflow_free_norm(products.both).unbind(0)
    else:
        distance, size = overflow_free_norm(Delta), overflow_free_norm(C)
    # In the square form A = skew(G X^H) is skew to the last bit, so there is no drift.
    rate = 0.0 if square else drift_rate(X, rule.metric)
    return Point(Delta, C, distance, size, cancelled_size(G, size) * rate, square)


def slope_and_square(Delta: Tensor, K: Tensor, cross: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    """X^H F and F^H F of a field F = X K + A M that is not formed, from cross = X^H A M and spread = M^H A^H A M.

    With them X - η F has the Gram matrix I + Δ - η (X^H F + F^H X) + η² F^H F.
    """
    slope = torch.addmm(cross + K, Delta, K)
    return slope, K.mH @ slope + cross.mH @ K + spread


def norm_of_square(square: Tensor, terms: float) -> float:
    """‖F‖ by the trace of F^H F, whose terms may cancel; `terms` is the sum of their squares, for the rounding."""
    trace: float = square.diagonal().real.sum().item()
    return math.sqrt(max(trace, 0.0) + 8 * torch.finfo(square.dtype).eps * max(terms, 0.0))
