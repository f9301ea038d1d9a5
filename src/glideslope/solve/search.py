"""Steps without tuning for the full gradient: limited-memory quasi-Newton directions and a non-monotone test.

From X the search goes along D = -H T, made tangent, to Y = X + η D, and lands on X⁺ = Y (YᴴY)^{-½}, the orthonormal
matrix nearest to Y. As D is tangent, YᴴY = XᴴX + η² DᴴD, so a trial lands by p x p products and one of cost O(n p²).
A step of η = 1 is tried first; its evaluation of f and the gradient is the one the next step starts from. X⁺ is
orthonormal up to rounding, where the merit function is f itself: f decides whether a trial is accepted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from glideslope.engine.eigenvalues import upper_eigenvalue
from glideslope.engine.inverse_root import inverse_square_root_series
from glideslope.formulas.field import skew
from glideslope.formulas.orthogonality import subtract_identity_
from glideslope.formulas.penalty import penalty
from glideslope.solve.checkpoint import Resumable, State, on_device
from glideslope.solve.history import Measured
from glideslope.solve.methods import retracted
from glideslope.solve.problem import Problem
from glideslope.solve.quasi_newton import Pairs
from glideslope.stiefel.geometry import InRows, scaled_norm

SUFFICIENT_DECREASE = 1e-4
# Weight of the past in the reference value of Zhang and Hager: 0 is monotone, 1 the mean of all values.
MEMORY = 0.85
MOST_TRIALS = 30
# The first step, along the gradient, has this length.
FIRST_LENGTH = 0.1
# Most that a step may stretch X: ‖YᴴY - I‖_2. Principal angles of a step are then below 45°.
LONGEST = 1.0


# From this stretch on, YᴴY is divided by the middle of its eigenvalues before its root is computed.
CENTRED = 0.01


@dataclass
class Evaluation:
    """One point with all a step from it needs, in units of f, see `Search.unit`."""

    X: Tensor
    Delta: Tensor
    """X^H X - I."""
    distance: float
    T: Tensor
    """The tangent part of the gradient, in the Euclidean metric; for method="penalty" the gradient of f + λ N."""
    f: float
    """The value of f itself."""
    value: float
    """f in its unit, plus λ N for method="penalty"."""
    norm: float
    """‖T‖."""
    measured_norm: float
    """The norm of the tangent part in the metric chosen."""
    multiplier: Tensor | None
    """-sym(XᴴG), the multiplier of the constraint, which curves f along the manifold; None for method="penalty"."""


class Search(Resumable):
    """L-BFGS with a non-monotone Armijo test.

    Args:
        problem: What to minimise.
        X: First iterate.
        method: "landing", "riemannian" or "penalty".
        metric: "canonical" or "euclidean", in which the gradient norm is measured; directions do not depend on it.
        retraction: For method="riemannian".
        penalty_weight: λ for method="penalty".
    """

    def __init__(
        self, problem: Problem, X: Tensor, *, method: str, metric: str, retraction: str, penalty_weight: float | None
    ) -> None:
        self.problem, self.method, self.metric = problem, method, metric
        self.geometry = problem.geometry
        self.n_rows = self.geometry.rows if isinstance(self.geometry, InRows) else X.shape[0]
        self.retraction, self.penalty_weight = retraction, penalty_weight
        self.pairs = Pairs(X, problem.geometry)
        self.evaluations, self.step_size = 0, 0.0
        self.unit, self.steepest = 1.0, 0.0
        # The smallest change of f that means anything.
        self.resolution = 10 * torch.finfo(X.dtype).eps

    at: Evaluation
    step_size: float
    """‖X⁺ - X‖ / ‖T‖ of the last step."""
    unit: float
    """A power of two near ‖∇f‖ at the start. All is computed for f divided by it, so that no square overflows."""
    steepest: float
    """The largest gradient norm at points on the manifold that were tried and not taken."""
    first_norm: float
    """‖∇f‖ at the start, in its unit."""
    kept = ("evaluations", "step_size", "unit", "steepest", "first_norm", "reference", "_weight")

    @property
    def unscaled_step(self) -> float:
        """The step size in terms of f itself."""
        return self.step_size / self.unit

    def measured(self) -> Measured:
        """The numbers of the current point for the history."""
        at = self.at
        return Measured(at.f, at.measured_norm * self.unit, at.distance, self.first_norm * self.unit, at.value)

    def state(self) -> State:
        """The point, the pairs, and what else the next step remembers of those before it."""
        return {**super().state(), "at": dict(vars(self.at)), "pairs": self.pairs.state()}

    def resume(self, state: State, device: torch.device) -> None:
        """Take over a state."""
        self.at = Evaluation(**on_device(state.pop("at"), device))
        self.pairs.resume(state.pop("pairs"), device)
        super().resume(state, device)

    def start(self, X: Tensor) -> None:
        """Evaluate f at X, or at the orthonormal matrix nearest to it, and begin; or begin again with another f."""
        if self.method != "penalty":
            Delta = subtract_identity_(self.geometry.gram(X))
            X = land(X, Delta, scaled_norm(Delta))
        value, G = self._evaluate(X)
        norm = self.geometry.norm(G)
        self.unit = power_of_two(norm, G.dtype)
        self.first_norm = norm / self.unit
        self.at = self._evaluation(X, value, G)
        self.step_size = 0.0
        self._forget()
        self.reference, self._weight = self.at.value, 1.0

    def _forget(self) -> None:
        """Go on along the gradient, by a short step."""
        self.pairs.forget(FIRST_LENGTH / self.at.norm if self.at.norm else 1.0)

    def _evaluate(self, X: Tensor) -> tuple[float, Tensor]:
        self.evaluations += 1
        version = None if X.is_inference() else X._version
        value, G = self.problem.value_and_gradient(X)
        if version is not None and X._version != version:
            raise ValueError(
                f"{type(self.problem).__name__}.value_and_gradient changed X in place; work on X.clone() there"
            )
        return float(value), G

    def _value(self, X: Tensor, f: float) -> float:
        """What is to fall: f in its unit, plus λ N for method="penalty"."""
        if self.penalty_weight is None:
            return f / self.unit
        return f / self.unit + self.penalty_weight / self.unit * float(penalty(X))

    def _evaluation(self, X: Tensor, f: float, G: Tensor) -> Evaluation:
        geometry, share = self.geometry, 1 / self.unit
        Delta = subtract_identity_(geometry.gram(X))
        if self.penalty_weight is not None:
            T = torch.addmm(G, X, Delta, beta=share, alpha=self.penalty_weight * share)
            norm = measured = geometry.norm(T)
            multiplier = None
        else:
            C = geometry.cross(X, G)
            multiplier = (C + C.mH).mul_(-share / 2)
            T = torch.addmm(G, X, multiplier, beta=share)
            norm = measured = geometry.norm(T)
            if self.metric == "canonical" and self.n_rows > X.shape[1]:
                # Of the part that is orthogonal to X the canonical gradient has one half.
                measured = math.hypot(norm, math.sqrt(3) * share * scaled_norm(skew(C))) / 2
        return Evaluation(X, Delta, scaled_norm(Delta), T, f, self._value(X, f), norm, measured, multiplier)

    def step(self) -> bool:
        """Move to a point that passes the test; False where none does, because rounding hides any decrease."""
        while True:
            D, slope = self.pairs.descent(self.at.T, self.at.norm)
            if 0 < slope < math.inf and self._descend(D, slope):
                return True
            if not len(self.pairs):
                return False
            self._forget()

    def _descend(self, D: Tensor, slope: float) -> bool:
        """Try steps along D, where f falls at the rate `slope`, from one downwards; move to the first that passes."""
        at, step_size = self.at, 1.0
        if self.method == "penalty":
            square, stretch = D, self.geometry.norm(D) ** 2
        else:
            square = self._made_tangent_(D)
            stretch = scaled_norm(square)
            if not stretch <= LONGEST:
                # Once more: how far X is from orthonormal leaves a normal part that is as much longer as D was.
                square = self._made_tangent_(D)
                stretch = float(upper_eigenvalue(square, LONGEST, square=True))
                step_size = min(1.0, math.sqrt(LONGEST / stretch))
        noise = self.resolution * abs(self.reference)
        for _ in range(MOST_TRIALS):
            X = self._moved(D, square, step_size, stretch)
            f, G = self._evaluate(X)
            value = self._value(X, f)
            if -math.inf < value <= self.reference - SUFFICIENT_DECREASE * step_size * slope + noise:
                trial = self._evaluation(X, f, G)
                if trial.norm < math.inf:
                    self._accept(trial)
                    return True
            elif self.method != "penalty" and (steep := self.geometry.norm(G) / self.unit) < math.inf:
                self.steepest = max(self.steepest, steep)
            # The minimiser of the parabola through f, its slope and the trial, within bounds.
            bend = value - at.value + step_size * slope
            shorter = step_size**2 * slope / (2 * bend) if bend > 0 else 0.0
            step_size = min(max(shorter, 0.1 * step_size), 0.5 * step_size)
            if step_size * math.sqrt(stretch) < self.resolution:  # X would hardly change
                break
        return False

    def _made_tangent_(self, D: Tensor) -> Tensor:
        """Take the normal part from D, and return DᴴD."""
        C = self.geometry.cross(self.at.X, D)
        D.addmm_(self.at.X, C + C.mH, alpha=-0.5)
        return self.geometry.gram(D)

    def _moved(self, D: Tensor, square: Tensor, step_size: float, stretch: float) -> Tensor:
        """The point that a step along D leads to, given DᴴD and a bound of its eigenvalues, which "penalty" ignores."""
        if self.method == "riemannian":
            return retracted(self.at.X, D * step_size, self.retraction)
        Y = torch.add(self.at.X, D, alpha=step_size)
        if self.method == "penalty":
            return Y
        E, far = torch.add(self.at.Delta, square, alpha=step_size**2), step_size**2 * stretch
        if far <= CENTRED:
            return land(Y, E, far + self.at.distance)
        # Up to rounding the eigenvalues of YᴴY are between 1 and 1 + e. Divided by 1 + e/2 they are closest to 1.
        middle = 1 + far / 2
        E = E.div_(middle)
        E.diagonal().add_(1 / middle - 1)
        return land(Y, E, far / 2 / middle + self.at.distance, middle**-0.5)

    def _accept(self, trial: Evaluation) -> None:
        at = self.at
        length = self.pairs.add(at.X, at.T, trial.X, trial.T, trial.multiplier)
        self.step_size = length / at.norm
        weight = MEMORY * self._weight + 1
        self.reference = (MEMORY * self._weight * self.reference + trial.value) / weight
        self._weight, self.at = weight, trial


def power_of_two(norm: float, dtype: torch.dtype) -> float:
    """The power of two below a norm, within the range of its type; 1 if the norm is 0 or not finite."""
    if not 0 < norm < math.inf:
        return 1.0
    limits = torch.finfo(dtype)
    return math.ldexp(1.0, math.frexp(min(max(norm, 64 * limits.tiny), limits.max / 64))[1] - 1)


def land(Y: Tensor, E: Tensor, far: float, shrink: float = 1.0) -> Tensor:
    """Y (shrink (I + E)^{-½}): for Y^H Y = shrink^{-2} (I + E) the orthonormal matrix nearest to Y. Cost O(n p²).

    `far` bounds ‖E‖_2 and is below 1. Where it is rounding, Y stays as it is.
    """
    rounding = torch.finfo(E.dtype).eps * E.shape[-1]
    if far <= rounding:
        return Y
    return Y @ inverse_square_root_series(E, far, rounding, shrink)
