"""Records of a run: its iterates, the best of them, when to stop, and what to try next."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from glideslope.formulas.penalty import penalised_gradient, penalty
from glideslope.solve.checkpoint import Resumable, State
from glideslope.solve.problem import Problem
from glideslope.solve.solution import History, Record, Solution
from glideslope.solve.sources import Minibatch, Source
from glideslope.stiefel.geometry import scaled_norm

ADVICE = {
    "converged": "Gradient norm, relative to ‖∇f(X0)‖, and distance are within the tolerance.",
    "max_epochs": "The passes allowed are used up. ",
    "max_seconds": "The time allowed is used up. ",
    "callback": "The callback asked to stop.",
    "interrupted": "Stopped from the keyboard; this is the best point so far. Pass its X as X0 to go on.",
    "stalled": "No step lowers the function by more than rounding. Try float64, or a larger tolerance.",
    "diverged": "The iterates were no longer finite or ran away; this is the best point before. "
    "Try a smaller step_size.",
}


def advice(reason: str, source: Source, schedule_is_constant: bool, n_steps: int, shortened: int) -> str:
    """Why the run ended, in words, and what to try next."""
    if reason not in ("max_epochs", "max_seconds"):
        return ADVICE[reason]
    if 2 * shortened > n_steps:
        return (
            f"{ADVICE[reason]}The safeguard shortened {shortened} of {n_steps} steps: they are too long to settle. "
            "Try a smaller step_size."
        )
    if isinstance(source, Minibatch) and schedule_is_constant:
        return (
            f"{ADVICE[reason]}With minibatches and a constant step the gradient stays noisy: "
            "try gradient='saga', or schedule='1/sqrt'."
        )
    return (
        f"{ADVICE[reason]}Try a larger {reason}, or another step_size. If the value no longer falls, the function may "
        "have kinks (abs, relu, max), where its gradient does not vanish: smooth them."
    )


class Measured(NamedTuple):
    """The numbers of one point that a record is made of."""

    value: float
    gradient_norm: float
    distance: float
    whole_norm: float
    """‖∇f‖_F."""
    score: float
    """By which points are compared: lower is better."""


# Beyond this distance the iterates of the penalty method have run away.
RUNAWAY = 1e6
# An orthonormal matrix of p columns has a computed distance below this multiple of eps √p.
ROUNDING = 10
# Records without a lower gradient norm or value after which an automatic search has met the floor of its type.
STALLED_AFTER = 200


@dataclass
class Watch(Resumable):
    """Evaluates iterates, keeps the history and the best point, and says when to stop."""

    problem: Problem
    penalty_weight: float | None
    metric: str
    tolerance: float
    record_every: int
    callback: Callable[[Record], object] | None
    progress: bool
    history: History = field(default_factory=History)
    _best: tuple[float, Tensor, Record] | None = None
    _mu: float | None = None
    _scale: float | None = None
    """‖∇f‖_F at the start. It scales with f and, other than its tangent part, is rarely small at a solution."""
    _lowest: tuple[float, float] = (math.inf, math.inf)
    _since_lowest: int = 0
    kept = ("_mu", "_scale", "_lowest", "_since_lowest")

    def state(self) -> State:
        """The records and the best point."""
        best = None if self._best is None else (self._best[0], self._best[1], tuple(self._best[2]))
        return {**super().state(), "records": [tuple(record) for record in self.history], "best": best}

    def resume(self, state: State, device: torch.device) -> None:
        """Take over a state."""
        self.history.records = [Record(*record) for record in state.pop("records")]
        best = state.pop("best")
        self._best = None if best is None else (best[0], best[1].to(device), Record(*best[2]))
        super().resume(state, device)

    def record(
        self,
        X: Tensor,
        known: tuple[Tensor, Tensor] | Measured | None,
        *,
        step: int,
        passes: float,
        seconds: float,
        step_size: float,
        shortened: int,
    ) -> str | None:
        """Evaluate X and keep the record; the reason to stop, if there is one."""
        found = known if isinstance(known, Measured) else self._measured(X, known)
        record = Record(step, passes, seconds, *found[:3], step_size, shortened)
        if not (record.distance < RUNAWAY and record.gradient_norm < math.inf and abs(record.value) < math.inf):
            return "diverged"
        if self._scale is None:
            self._scale = found.whole_norm
        converged = self._within_tolerance(X, record, self._scale)
        self.history.records.append(record)
        self._keep_best(X, found.score, record, converged)
        if self.progress:
            line = (
                f"step {step}  passes {passes:.1f}  value {record.value:.8g}  "
                f"gradient {record.gradient_norm:.2e}  distance {record.distance:.2e}"
            )
            sys.stderr.write(f"\r{line:<100}")
            sys.stderr.flush()
        if self.callback is not None and self.problem.geometry.any(bool(self.callback(record))):
            return "callback"
        return "converged" if converged else None

    def _measured(self, X: Tensor, known: tuple[Tensor, Tensor] | None) -> Measured:
        """The numbers of X. Points are compared by the merit function, for which an infeasible X gains nothing."""
        value, G = self.problem.value_and_gradient(X) if known is None else known
        geometry = self.problem.geometry
        whole = geometry.norm(G)
        if not (whole < math.inf and abs(float(value)) < math.inf):
            return Measured(float(value), whole, math.inf, whole, math.inf)
        if self.penalty_weight is None:
            norm = geometry.norm(geometry.tangent(X, G, self.metric))
            if self._mu is None:
                self._mu = 4 * scaled_norm(geometry.cross(X, G)) + whole or 1.0
            score = geometry.merit(X, value.to(X.real.dtype).to(X.device), G, self._mu)
        else:
            norm = geometry.norm(penalised_gradient(X, G, penalty_weight=self.penalty_weight))
            score = float(value) + self.penalty_weight * float(penalty(X))
        return Measured(float(value), norm, geometry.distance(X), whole, score)

    def _within_tolerance(self, X: Tensor, record: Record, scale: float) -> bool:
        """Whether gradient norm, relative to a scale, and distance are small; the penalty method has a distance."""
        rounding = ROUNDING * torch.finfo(X.dtype).eps * X.shape[1] ** 0.5
        feasible = record.distance <= max(self.tolerance, rounding) or self.penalty_weight is not None
        return record.gradient_norm <= self.tolerance * scale and feasible

    def settle(self, X: Tensor, steepest: float) -> str:
        """The reason where no step from X, the point of the last record, gets lower: "converged" or "stalled".

        At an exact fit ‖∇f‖ vanishes with its tangent part. The gradients of points close by are a scale there too.
        """
        record = self.history[-1]
        if not self._within_tolerance(X, record, max(self._scale or 0.0, steepest)):
            return "stalled"
        self._best = (-math.inf, X.clone(), record)
        return "converged"

    @property
    def last_step(self) -> int | None:
        """The step of the last record."""
        return self.history[-1].step if len(self.history) else None

    def forget(self) -> None:
        """Values so far are those of another f: the next record is better than the best before it."""
        if self._best is not None:
            self._best = (math.inf, *self._best[1:])
        self._lowest, self._since_lowest = (math.inf, math.inf), 0

    def stalled(self, resolution: float) -> str | None:
        """Count the last record; "stalled" where neither gradient norm nor value went lower for a long time."""
        last, (norm, value) = self.history[-1], self._lowest
        lower = last.gradient_norm < norm or last.value < value - resolution * abs(last.value)
        self._lowest = (min(norm, last.gradient_norm), min(value, last.value))
        self._since_lowest = 0 if lower else self._since_lowest + 1
        return "stalled" if self._since_lowest > STALLED_AFTER else None

    def _keep_best(self, X: Tensor, score: float, record: Record, converged: bool) -> None:
        """Keep X if its score is lower, or the same up to rounding and its gradient norm is lower."""
        if self._best is not None and not converged:
            lowest, _, best = self._best
            rounding = 10 * torch.finfo(X.dtype).eps * abs(score)
            if score > lowest + rounding or (score > lowest - rounding and record.gradient_norm > best.gradient_norm):
                return
            score = min(score, lowest)
        self._best = (score, X.clone(), record)

    def solution(self, reason: str, source: Source, seconds: float, n_steps: int, shortened: int) -> Solution:
        """The best point and the reason."""
        n_gradients = source.terms_used
        if self.progress:
            sys.stderr.write("\n")
        if self._best is None:
            if reason == "interrupted":  # before there was anything to return
                raise KeyboardInterrupt
            raise ValueError(
                "f or its gradient is not finite at X0; check the function, e.g. gs.check_gradient(problem)"
            )
        _, X, record = self._best
        return Solution(
            X=X,
            value=record.value,
            gradient_norm=record.gradient_norm,
            distance=record.distance,
            converged=reason == "converged",
            stop_reason=reason,
            advice=advice(reason, source, len(set(self.history.step_size)) <= 1, n_steps, shortened),
            n_steps=n_steps,
            n_gradients=n_gradients,
            n_passes=n_gradients / self.problem.n_terms,
            seconds=seconds,
            n_shortened=shortened,
            history=self.history,
        )
