"""One run of each solver, from the same start to the same gradient norm, with counted evaluations."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

import glideslope as gs
from benchmarks.solvers.problems import Case, Function
from glideslope.formulas.field import without_normal_part
from glideslope.solve.problem import as_problem

SOLVERS = ("minimize", "ConjugateGradient", "TrustRegions")
# After which a peer is stopped: seconds by the clock, and steps, of which none needs as many.
MOST_SECONDS, MOST_STEPS = 30.0, 1_000_000


def solve(case: Case, function: Function | gs.problems.Quadratic, solver: str, seed: int) -> dict[str, Any]:
    """Seconds, evaluations and what was reached. Value and gradient at the end are evaluated anew.

    Seconds are CPU time of the one thread, which other processes hardly change.
    """
    X0, problem = case.start(seed), as_problem(function)
    first_value, first = problem.value_and_gradient(X0)
    goal = case.reduction * tangent_norm(X0, first)
    if solver == "minimize":
        started = time.process_time()
        solution = gs.minimize(problem, X0, tolerance=goal / float(first.norm()), max_epochs=MOST_STEPS)
        seconds = time.process_time() - started
        X, counts = solution.X, {"values": solution.n_gradients, "gradients": solution.n_gradients, "hessians": 0}
    else:
        X, counts, seconds = by_pymanopt(case, function, solver, X0, goal)
    value, G = problem.value_and_gradient(X)
    norm = tangent_norm(X, G)
    return {
        "seconds": seconds,
        **counts,
        "first_value": float(first_value),
        "value": float(value),
        "gradient": norm * case.reduction / goal,
        "reached": norm <= goal * (1 + 1e-2 if case.dtype != torch.float32 else 1.5),
    }


def tangent_norm(X: Tensor, G: Tensor) -> float:
    """The norm of the Riemannian gradient in the Euclidean metric."""
    return float(without_normal_part(X, G).norm())


def by_pymanopt(
    case: Case, function: Function | gs.problems.Quadratic, solver: str, X0: Tensor, goal: float
) -> tuple[Tensor, dict[str, int], float]:
    """The last point, counts and seconds."""
    import pymanopt

    n, p = case.shape
    manifold = unitary_group(n) if case.dtype.is_complex else pymanopt.manifolds.Stiefel(n, p)
    evaluated = (Closed if isinstance(function, gs.problems.Quadratic) else Differentiated)(function, case.dtype)
    in_numpy = pymanopt.function.numpy(manifold)
    problem = pymanopt.Problem(
        manifold,
        in_numpy(lambda x: evaluated.value(x)),
        euclidean_gradient=in_numpy(lambda x: evaluated.gradient(x)),
        euclidean_hessian=in_numpy(lambda x, v: evaluated.hessian(x, v)) if solver == "TrustRegions" else None,
    )
    options = {
        "min_gradient_norm": goal,
        "max_iterations": MOST_STEPS,
        "max_time": MOST_SECONDS,
        "verbosity": 0,
    }
    if solver == "ConjugateGradient":
        options["min_step_size"] = 0.0
    started = time.process_time()
    result = getattr(pymanopt.optimizers, solver)(**options).run(problem, initial_point=X0.numpy())
    seconds = time.process_time() - started
    return torch.from_numpy(np.ascontiguousarray(result.point)).to(case.dtype), evaluated.counts, seconds


def unitary_group(n: int) -> Any:
    """Pymanopt's UnitaryGroup with what is wrong in version 2.2.1 put right, so that its solvers arrive.

    Its projection takes the transpose for the conjugate transpose, its inner products are complex and its zero is real.
    """
    import pymanopt

    class Unitary(pymanopt.manifolds.UnitaryGroup):  # type: ignore[misc]
        def projection(self, point: np.ndarray, vector: np.ndarray) -> np.ndarray:
            product = point.conj().T @ vector
            return np.asarray((product - product.conj().T) / 2)

        def inner_product(self, point: np.ndarray, left: np.ndarray, right: np.ndarray) -> float:
            return float(np.vdot(left, right).real)

        def zero_vector(self, point: np.ndarray) -> np.ndarray:
            return np.zeros_like(point)

    return Unitary(n)


class Evaluated:
    """What pymanopt asks for, in NumPy. Work that value, gradient and Hessian at one point share is done once."""

    def __init__(self, function: Any, dtype: torch.dtype) -> None:
        self.function, self.dtype = function, dtype
        self.counts = {"values": 0, "gradients": 0, "hessians": 0}
        self._at: np.ndarray | None = None

    def _moved(self, x: np.ndarray) -> bool:
        if self._at is not None and (self._at is x or np.array_equal(self._at, x)):
            return False
        self._at = x
        return True

    def _tensor(self, x: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(x)).to(self.dtype)


class Closed(Evaluated):
    """A quadratic: a value costs as much as value and gradient, which are kept; the Hessian is linear."""

    def _evaluate(self, x: np.ndarray) -> None:
        if self._moved(x):
            self._value, self._gradient = self.function.value_and_gradient(self._tensor(x))

    def value(self, x: np.ndarray) -> float:
        """The value at x."""
        self.counts["values"] += 1
        self._evaluate(x)
        return float(self._value)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """The Euclidean gradient at x."""
        self.counts["gradients"] += 1
        self._evaluate(x)
        return np.asarray(self._gradient.numpy())

    def hessian(self, x: np.ndarray, v: np.ndarray) -> np.ndarray:
        """The Euclidean Hessian at x times v."""
        self.counts["hessians"] += 1
        return np.asarray(self.function.value_and_gradient(self._tensor(v))[1].numpy())


class Differentiated(Evaluated):
    """A torch function: the graph of the value serves the gradient, and that of the gradient all Hessian products."""

    def _forward(self, x: np.ndarray) -> None:
        if self._moved(x):
            self._point = self._tensor(x).clone().requires_grad_()
            self._value = self.function(self._point)
            self._gradient: Tensor | None = None

    def value(self, x: np.ndarray) -> float:
        """The value at x."""
        self.counts["values"] += 1
        self._forward(x)
        return float(self._value.detach())

    def _backward(self, *, twice: bool) -> Tensor:
        if self._gradient is None or (twice and not self._gradient.requires_grad):
            (self._gradient,) = torch.autograd.grad(self._value, self._point, create_graph=twice, retain_graph=True)
        return self._gradient

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """The Euclidean gradient at x."""
        self.counts["gradients"] += 1
        self._forward(x)
        return np.asarray(self._backward(twice=False).detach().numpy())

    def hessian(self, x: np.ndarray, v: np.ndarray) -> np.ndarray:
        """The Euclidean Hessian at x times v."""
        self.counts["hessians"] += 1
        self._forward(x)
        G = self._backward(twice=True)
        (product,) = torch.autograd.grad(G, self._point, self._tensor(v), retain_graph=True)
        return np.asarray(product.numpy())
