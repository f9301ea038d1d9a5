"""Step sizes without tuning for the full gradient: Barzilai-Borwein steps, accepted by a non-monotone test.

The step moves along the tangent part to Y = X - η T and on to X⁺ = Y (3/2 I - ½ Y^H Y). So f(X⁺) + μ N(Y) is the
gradient-free merit function Ψ(Y), and its test costs no evaluation of f besides the one the next step needs. Where one
Newton-Schulz step leaves a distance, more follow, in p x p products: f is lower off the manifold, and a value bought
so is one that no later step can match.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from glideslope.formulas.normal import inverse_square_root, newton_schulz_iterations, newton_schulz_radius
from glideslope.formulas.orthogonality import frobenius, subtract_identity_
from glideslope.formulas.penalty import penalised_gradient, penalty
from glideslope.solve.checkpoint import Resumable, State, on_device
from glideslope.solve.methods import retracted
from glideslope.solve.problem import Problem

SUFFICIENT_DECREASE = 1e-4
# Weight of the past in the reference value of Zhang and Hager: 0 is monotone, 1 the mean of all values.
MEMORY = 0.85
MOST_TRIALS = 30


@dataclass
class Evaluation:
    """One point with all a step from it needs."""

    X: Tensor
    f: float
    value: float
    """f, plus λ N for method="penalty"; like all that follows in units of f, see `Search.unit`."""
    G: Tensor
    T: Tensor
    slope: float
    """Re<G, T>, the rate at which f falls along -T."""


class Search(Resumable):
    """Barzilai-Borwein with a non-monotone Armijo test.

    Args:
        problem: What to minimise.
        X: First iterate.
        method: "landing", "riemannian" or "penalty".
        metric: "canonical" or "euclidean".
        safe_radius: ε.
        retraction: For method="riemannian".
        penalty_weight: λ for method="penalty".
    """

    def __init__(
        self,
        problem: Problem,
        X: Tensor,
        *,
        method: str,
        metric: str,
        safe_radius: float,
        retraction: str,
        penalty_weight: float | None,
    ) -> None:
        self.problem, self.method, self.metric = problem, method, metric
        self.geometry = problem.geometry
        self.retraction, self.penalty_weight = retraction, penalty_weight
        self.reach = newton_schulz_radius(safe_radius)
        self.evaluations, self.step_size = 0, 0.0
        self.unit, self.steepest = 1.0, 0.0
        # The smallest change of f that means anything.
        self.resolution = 10 * torch.finfo(X.dtype).eps

    at: Evaluation
    unit: float
    """A power of two near ‖∇f‖ at the start. All is computed for f divided by it, so that no square overflows."""
    steepest: float
    """The largest gradient norm at points on the manifold that were tried and not taken."""
    kept = ("evaluations", "step_size", "unit", "steepest", "reference", "mu", "_weight", "_odd")

    @property
    def unscaled_step(self) -> float:
        """The step size in terms of f itself."""
        return self.step_size / self.unit

    def known(self) -> tuple[Tensor, Tensor]:
        """The value and the gradient of f at the current point."""
        return torch.as_tensor(self.at.f, dtype=torch.float64), self.at.G * self.unit

    def state(self) -> State:
        """The point, and what the next step remembers of those before it."""
        return {**super().state(), "at": dict(vars(self.at))}

    def resume(self, state: State, device: torch.device) -> None:
        """Take over a state."""
        self.at = Evaluation(**on_device(state.pop("at"), device))
        super().resume(state, device)

    def start(self, X: Tensor) -> None:
        """Evaluate f at X, or at the orthonormal matrix nearest to it, and begin; or begin again with another f."""
        X = X if self.method == "penalty" else land(X, self.geometry.gram(X))[0]
        value, G = self.problem.value_and_gradient(X)
        self.unit = power_of_two(self.geometry.norm(G), G.dtype)
        self.at = self._evaluation(X, value, G)
        self.step_size = 0.0
        self.reference, self._weight, self._odd = self.at.value, 1.0, False
        # μ of the merit function must outweigh the curvature of the constraint, ‖sym(X^H G)‖.
        self.mu = float(torch.linalg.vector_norm(self.geometry.cross(X, self.at.G))) / X.shape[-1] ** 0.5

    def _evaluate(self, X: Tensor) -> Evaluation:
        return self._evaluation(X, *self.problem.value_and_gradient(X))

    def _evaluation(self, X: Tensor, value: Tensor, G: Tensor) -> Evaluation:
        f, G = float(value), G / self.unit
        self.evaluations += 1
        if self.method == "penalty":
            assert self.penalty_weight is not None
            weight = self.penalty_weight / self.unit
            T = penalised_gradient(X, G, penalty_weight=weight)
            norm = float(frobenius(T))
            return Evaluation(X, f, f / self.unit + weight * float(penalty(X)), G, T, norm * norm)
        T = self.geometry.tangent(X, G, self.metric)
        return Evaluation(X, f, f / self.unit, G, T, self.geometry.inner(G, T))

    def _move(self, step_size: float) -> tuple[Tensor, float]:
        """The next iterate, and the penalty N(Y) of the point before its normal step."""
        X, T = self.at.X, self.at.T
        if self.method == "riemannian":
            return retracted(X, T * -step_size, self.retraction), 0.0
        Y = torch.sub(X, T, alpha=step_size)
        if self.method == "penalty":
            return Y, 0.0
        X, far = land(Y, self.geometry.gram(Y))
        return X, far**2 / 4

    def _longest(self, norm: float) -> float:
        """The longest step that Newton-Schulz brings back into the safe region: η² ‖T‖² = ½ reach."""
        return float("inf") if self.method == "penalty" else math.sqrt(self.reach / 2) / max(norm, 1e-300)

    def step(self) -> bool:
        """Move to a point that passes the test; False where none does, because rounding hides any decrease."""
        at, norm = self.at, self.geometry.norm(self.at.T)
        longest = self._longest(norm)
        step_size = min(self.step_size or 0.1 / max(norm, 1e-300), longest)
        for _ in range(MOST_TRIALS):
            X, excess = self._move(step_size)
            trial = self._evaluate(X)
            merit = trial.value + self.mu * excess
            noise = self.resolution * abs(self.reference)
            if merit <= self.reference - SUFFICIENT_DECREASE * step_size * at.slope + noise:
                self._accept(trial, step_size)
                return True
            if self.method != "penalty" and (steep := self.geometry.norm(trial.G)) < math.inf:
                self.steepest = max(self.steepest, steep)
            # The minimiser of the parabola through f, its slope and the trial, within bounds.
            bend = merit - at.value + step_size * at.slope
            shorter = step_size**2 * at.slope / (2 * bend) if bend > 0 else 0.0
            step_size = min(max(shorter, 0.1 * step_size), 0.5 * step_size)
        return False

    def _accept(self, trial: Evaluation, step_size: float) -> None:
        at = self.at
        s, y = trial.X - at.X, trial.T - at.T
        along, norm = abs(self.geometry.inner(s, y)), self.geometry.norm(s if self._odd else y)
        numbers = (norm * norm, along) if self._odd else (along, norm * norm)
        self._odd = not self._odd
        self.step_size = numbers[0] / numbers[1] if min(numbers) > 0 else step_size
        weight = MEMORY * self._weight + 1
        self.reference = (MEMORY * self._weight * self.reference + trial.value) / weight
        self._weight, self.at = weight, trial


def power_of_two(norm: float, dtype: torch.dtype) -> float:
    """The power of two below a norm, within the range of its type; 1 if the norm is 0 or not finite."""
    if not 0 < norm < math.inf:
        return 1.0
    limits = torch.finfo(dtype)
    return math.ldexp(1.0, math.frexp(min(max(norm, 64 * limits.tiny), limits.max / 64))[1] - 1)


def land(Y: Tensor, S: Tensor) -> tuple[Tensor, float]:
    """The orthonormal matrix nearest to Y up to rounding, by Newton-Schulz steps, and ‖S - I‖ for S = Y^H Y.

    One product of cost O(n p²). The distance must be below 1; from 1 or above Y stays as it is.
    """
    far = float(frobenius(subtract_identity_(S.clone())))
    iterations = newton_schulz_iterations(far, torch.finfo(S.dtype).eps * S.shape[-1])
    return (Y @ inverse_square_root(S, iterations=iterations) if iterations else Y), far
