"""A slope test of gradients: does f(X + t Z) - f(X) - t Re<G, Z> fall like t²?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glideslope.engine.gradient import dense
from glideslope.solve.minimize import first_iterate
from glideslope.solve.problem import Problem, as_problem

SIZES = 10.0 ** -np.arange(0, 9)


@dataclass(frozen=True)
class GradientCheck:
    """The result of `check_gradient`; true in a condition where the gradient is right."""

    passed: bool
    slope: float
    """Order of the error in t: 2 for a right gradient, 1 for a wrong one; inf where f is linear and the error zero."""
    batch_error: float
    """Relative difference between the gradient and the mean of the gradients of batches; 0 for one term."""
    sizes: np.ndarray
    errors: np.ndarray

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        verdict = "the gradient is right" if self.passed else "the gradient is WRONG"
        return f"{verdict}: error of order t^{self.slope:.2f} (2 expected), batches differ by {self.batch_error:.1e}"


@torch.no_grad()
def check_gradient(
    problem: Problem | Callable[[Tensor], Tensor], X0: Any = None, *, seed: int = 0, batch_size: int = 64
) -> GradientCheck:
    """Compare the gradient of a problem with its values along a random direction, and with that of its batches.

    The values are differences of large numbers: use float64 for a sharp test.

    Args:
        problem: One of gs.problems, one of your own, or a torch function of X.
        X0: Where to check. Default: a random orthonormal matrix.
        seed: Of the random point and direction.
        batch_size: Terms per batch in the comparison with batches.

    Examples:
        >>> problem = gs.problems.LinearProblem(torch.randn(8, 3, dtype=torch.float64))
        >>> gs.check_gradient(problem).passed
        True
    """
    problem = as_problem(problem)
    X = first_iterate(problem, X0, seed)
    problem.refresh(X)
    generator = torch.Generator().manual_seed(seed + 1)
    Z = torch.randn(X.shape, generator=generator, dtype=X.dtype).to(X.device)
    Z *= torch.linalg.vector_norm(X) / torch.linalg.vector_norm(Z)
    value, G = problem.value_and_gradient(X)
    f, along = float(value), float((G.conj() * Z).real.sum())
    errors = np.array([abs(float(problem.value(X + float(t) * Z)) - f - float(t) * along) for t in SIZES])
    finite = np.isfinite(errors)
    rounding = 100 * torch.finfo(X.dtype).eps * max(abs(f), abs(along), float(errors[finite].max(initial=0)))
    usable = finite & (errors > rounding)
    slope = float("inf")
    if usable.sum() >= 2:
        # The smallest steps that rounding leaves alone tell the order.
        logs = np.log10(errors[usable])[-3:]
        slope = float(np.polyfit(np.log10(SIZES[usable])[-3:], logs, 1)[0])
    batch_error = 0.0
    if problem.n_terms > 1:
        index = torch.split(torch.arange(problem.n_terms), batch_size)
        mean = torch.zeros_like(G)
        for one in index:
            mean.add_(dense(problem.batch_gradient(X, one.to(X.device))), alpha=len(one) / problem.n_terms)
        size = float(torch.linalg.vector_norm(G)) or 1.0
        batch_error = float(torch.linalg.vector_norm(mean - G)) / size
    agrees = batch_error <= 1e4 * torch.finfo(X.dtype).eps
    return GradientCheck(slope > 1.8 and agrees, slope, batch_error, SIZES, errors)
