"""How a checkpoint recognises its problem: by X0 to the last bit, and by f and its gradient at one point next to X0."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from glideslope.engine.gradient import dense
from glideslope.files import sha256
from glideslope.solve.problem import FiniteSum, Problem, RowSum
from glideslope.stiefel.geometry import InRows, gaussian_rows

# Terms of a sum that are evaluated: the cost must not grow with N.
TERMS = 32
# How far from X0 they are: f may have a domain, and another f may agree with it at X0 itself.
MOVED = 0.05
SEED = 1


def start_in_words(X: Tensor, given: bool) -> str:
    """A random start, which the seed determines, or the digest of this rank's rows of the one given."""
    if not given:
        return "random, by the seed"
    return "SHA-256 " + sha256([X.detach().cpu().contiguous().numpy().tobytes()])[:16]


def fingerprint(problem: Problem, X: Tensor) -> dict[str, float]:
    """The value of f, the norm of its gradient and its part along a fixed direction, at a point next to X.

    One evaluation, for a sum of a few of its terms. On many ranks all have the same numbers.

    Args:
        problem: What is minimised.
        X: The first iterate, or this rank's rows of it.
    """
    geometry = problem.geometry
    held = geometry.held(geometry.rows if isinstance(geometry, InRows) else X.shape[0])
    away, along = (gaussian_rows(held, X.shape[1], SEED + i, X.dtype).to(X.device) for i in range(2))
    index = torch.randint(problem.n_terms, (TERMS,), generator=torch.Generator().manual_seed(SEED))
    value, G = some_terms(problem, X + away * (MOVED / geometry.norm(away)), index.to(X.device))
    return {
        "value": float(value),
        "gradient norm": geometry.norm(G),
        "gradient along a fixed direction": geometry.inner(along / geometry.norm(along), G),
    }


def some_terms(problem: Problem, X: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """Value and gradient of some terms of a sum, or of all there is; the value 0 where only gradients have parts."""
    if problem.n_terms == 1:
        return problem.value_and_gradient(X)
    if isinstance(problem, RowSum):
        A, Y, scores = problem.batch_scores(X, index)
        return problem.loss(Y, index), A.mH @ problem.weigh(scores)
    value = problem.function(X, index) if isinstance(problem, FiniteSum) else torch.zeros(())
    return value, dense(problem.batch_gradient(X, index))


def difference(saved: Mapping[str, float], own: Mapping[str, float], X: Tensor) -> str | None:
    """The first difference between two fingerprints that is more than rounding, in words; None if there is none.

    Rounding depends on the machine and the number of threads: half of the digits have to agree.
    """
    size = max(saved["gradient norm"], own["gradient norm"])
    rounding = math.sqrt(torch.finfo(X.dtype).eps)
    for name, was in saved.items():
        now = own[name]
        scale = max(abs(was), abs(now), size * X.shape[1] ** 0.5) if name == "value" else size
        both_undefined = math.isnan(was) and math.isnan(now)
        if not (was == now or abs(was - now) <= rounding * scale or both_undefined):
            return f"the {name} of f next to X0 was {was:.10g}, and is {now:.10g}"
    return None


def refuse_another_problem(problem: Problem, X: Tensor, saved: Mapping[str, float], path: Any) -> None:
    """Raise a ValueError, on all ranks, unless a problem has the fingerprint that was saved with a checkpoint."""
    found = difference(saved, fingerprint(problem, X), X)
    if problem.geometry.any(found is not None):
        raise ValueError(
            f"checkpoint {str(path)!r} is of another problem: {found or 'another rank finds a difference'}. "
            "Give the function and the data of that run, or another file"
        )
