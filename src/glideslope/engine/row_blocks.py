"""A landing step of a matrix whose rows are in several places: p x p matrices and norms are summed over the places.

With X and G in blocks of rows, X^H X and X^H G are sums over the blocks, the field of a block needs nothing of the
others, and its norm is one more sum. So a step is a generator: it yields the terms of its own block, is sent their
sums over all blocks, and ends with the new block. Whoever runs it knows how to sum. All decisions follow from sums
alone, so all places come to the same ones; which sums are asked for depends on the rule and never on data.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from glideslope.engine.batch import keep_share, scaled_field
from glideslope.engine.batch_decision import choose_length, start_of, way_back, weights_of_any
from glideslope.engine.point import Point
from glideslope.engine.products import Pair, Workspace, cross_product, gram_product, product
from glideslope.engine.rounding import drift_rate, overflow_free_norm, zero_where_not_finite_
from glideslope.engine.rule import StepOutcome, StepRule
from glideslope.formulas.arguments import REAL_TYPE
from glideslope.formulas.field import metric_of_shape, sym, tangent_part
from glideslope.formulas.orthogonality import per_matrix, subtract_identity_

Result = TypeVar("Result")
# Yields the terms of one block of rows, and is sent their sums over all blocks.
Summed = Generator[list[Tensor], list[Tensor], Result]


def step_of_rows(
    X: Tensor,
    G: Tensor,
    step_size: float | Tensor,
    rule: StepRule,
    *,
    rows: int,
    out: Tensor | None = None,
    active: Tensor | None = None,
    products: Pair | None = None,
) -> Summed[StepOutcome]:
    """`take_step` of one block of rows: two sums, of 2 p² numbers and of one, per matrix.

    "newton-schulz" and "polar" sum p² numbers more, the exact safeguard of landing 2 p² more. Every block of rows may
    be empty.

    Args:
        X: Rows of the iterates, (block, p) or (batch, block, p).
        G: The same rows of the gradients.
        step_size: η.
        rule: The step's options.
        rows: n, the rows of all blocks.
        out: Where to write the new rows; may be X. Default: new memory.
        active: Which matrices may move, the same in every place; None for all.
        products: X^H X and X^H G, summed over all blocks, if they are known; the first sum is then left out.
    """
    workspace, rule = Workspace(), rule.for_shape(rows, X.shape[-1])
    gram, cross = (yield row_products(X, G)) if products is None else products[:2]
    Delta = subtract_identity_(gram)
    distance, size = overflow_free_norm(Delta), overflow_free_norm(cross)
    at = Point(Delta, cross, distance, size, size * drift_rate(X, rule.metric, rows=rows), square=False)
    start = start_of(X, at, rule, step_size, rows=rows)
    F = scaled_field(X, G, at, weights_of_any(at, start, rule), rule, workspace)
    terms = [squared_norm(F)]
    if rule.lands and rule.safeguard == "exact":
        terms += [X.mH @ F, F.mH @ F]
    square, *curvature = yield terms
    field_norm = square.sqrt().to(REAL_TYPE[X.dtype]).clamp(min=start.floor)
    slope_and_gram = (curvature[0], curvature[1]) if curvature else None
    length = choose_length(at, start, field_norm, slope_and_gram, rule, active)
    zero_where_not_finite_(F)
    moved = torch.addcmul(X, F, per_matrix(length.step), value=-1, out=X if rule.lands and out is X else F)
    if not rule.lands:
        (gram,) = yield [product(moved.mH, moved, out=None)]
        root, factor, length = way_back(gram, Delta, start, length, rule)
        moved = product(keep_share(X, moved, root), factor, out=out)
    elif out is not None and out is not X:
        moved = out.copy_(moved)
    return length.outcome(moved)


def row_products(X: Tensor, G: Tensor) -> list[Tensor]:
    """The terms of X^H X and X^H G that one block of rows contributes."""
    return [gram_product(X, out=_empty_gram(X)), cross_product(X, G, out=_empty_gram(X))]


def tangent_rows(X: Tensor, G: Tensor, count: Tensor) -> Summed[tuple[Tensor, Tensor]]:
    """`without_normal_part` of one block of rows, G - X sym(X^H G), and the sum of a count: p² numbers and those."""
    cross, total = yield [product(X.mH, G, out=None), count]
    return G - X @ sym(cross), total


def riemannian_rows(X: Tensor, G: Tensor, metric: str, *, rows: int) -> Summed[Tensor]:
    """`riemannian_gradient` of one block of the n rows: one sum of 2 p² numbers."""
    gram, cross = yield [product(X.mH, X, out=None), product(X.mH, G, out=None)]
    return tangent_part(X, G, gram, cross, metric_of_shape(metric, rows, X.shape[-1]))


def squared_norm(M: Tensor) -> Tensor:
    """‖M‖_F² of each matrix in float64, which holds the square of any float32."""
    return overflow_free_norm(M).double().square()


def run_together(
    steps: Sequence[Summed[Result]], summed: Callable[[dict[int, list[Tensor]]], dict[int, list[Tensor]]]
) -> list[Result]:
    """Run several steps side by side, so that what they ask for in a round is summed in one go; their results.

    Args:
        steps: The generators.
        summed: Takes what the steps ask for, by their positions, and returns the sums by the same.
    """
    results: dict[int, Result] = {}
    asked: dict[int, list[Tensor]] = {}

    def advance(position: int, sums: list[Tensor] | None) -> None:
        try:
            asked[position] = steps[position].send(sums)  # type: ignore[arg-type]  # None starts it
        except StopIteration as end:
            results[position] = end.value

    try:
        for position in range(len(steps)):
            advance(position, None)
        while asked:
            sums = summed(asked)
            asked = {}
            for position, tensors in sums.items():
                advance(position, tensors)
    finally:  # where one raised, the others still have to put back what they borrowed
        for step in steps:
            step.close()
    return [results[position] for position in range(len(steps))]


def _empty_gram(X: Tensor) -> Tensor:
    return X.new_empty((*X.shape[:-2], X.shape[-1], X.shape[-1]))
