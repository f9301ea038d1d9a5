"""One run of `minimize`: the loop, its clock, its records, and when it stops."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from glideslope.formulas.field import riemannian_gradient
from glideslope.formulas.merit import merit
from glideslope.formulas.orthogonality import distance, frobenius, penalty, penalty_gradient
from glideslope.solve.methods import Method
from glideslope.solve.problem import Problem
from glideslope.solve.search import Search
from glideslope.solve.solution import History, Record, Solution
from glideslope.solve.sources import Full, Minibatch, Source

ADVICE = {
    "converged": "Gradient norm and distance are within the tolerance.",
    "max_epochs": "The passes allowed are used up. ",
    "max_seconds": "The time allowed is used up. ",
    "callback": "The callback asked to stop.",
    "interrupted": "Stopped from the keyboard; this is the best point so far. Pass its X as X0 to go on.",
    "stalled": "No step lowers the function by more than rounding. Try float64, or a larger tolerance.",
    "diverged": "The iterates were no longer finite or ran away; this is the best point before. "
    "Try a smaller step_size.",
}


def advice(reason: str, source: Source, schedule_is_constant: bool, n_steps: int, shortened: int) -> str:
    """What happened in words, and what to try next."""
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
    return f"{ADVICE[reason]}Try a larger {reason}, or another step_size."


# Beyond this distance the iterates of the penalty method have run away.
RUNAWAY = 1e6
# Records without a lower gradient norm or value after which an automatic search has met the floor of its type.
STALLED_AFTER = 200

Result = TypeVar("Result")


@dataclass
class Budget:
    """What a run may use."""

    passes: float
    seconds: float | None


@dataclass
class Watch:
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
    _lowest: tuple[float, float] = (math.inf, math.inf)
    _since_lowest: int = 0

    def record(
        self,
        X: Tensor,
        known: tuple[Tensor, Tensor] | None,
        *,
        step: int,
        passes: float,
        seconds: float,
        step_size: float,
        shortened: int,
    ) -> str | None:
        """Evaluate X and keep the record; the reason to stop, if there is one."""
        value, G = self.problem.value_and_gradient(X) if known is None else known
        far = float(distance(X))
        if self.penalty_weight is None:
            slope = riemannian_gradient(X, G, metric=self.metric)
        else:
            slope = G + self.penalty_weight * penalty_gradient(X)
        norm = float(frobenius(slope))
        record = Record(step, passes, seconds, float(value), norm, far, step_size, shortened)
        if not (far < RUNAWAY and norm < float("inf") and abs(record.value) < float("inf")):
            return "diverged"
        feasible = far <= self.tolerance or self.penalty_weight is not None
        converged = norm <= self.tolerance and feasible
        self.history.records.append(record)
        self._keep_best(X, value, G, record, converged)
        if self.progress:
            line = (
                f"step {step}  passes {passes:.1f}  value {record.value:.8g}  gradient {norm:.2e}  distance {far:.2e}"
            )
            sys.stderr.write(f"\r{line:<100}")
            sys.stderr.flush()
        if self.callback is not None and self.callback(record):
            return "callback"
        return "converged" if converged else None

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

    def _keep_best(self, X: Tensor, value: Tensor, G: Tensor, record: Record, converged: bool) -> None:
        """Compare by the merit function, for which a lower f bought by infeasibility counts nothing."""
        if self._mu is None:
            self._mu = 1 + 4 * float(torch.linalg.vector_norm(X.mH @ G))
        if self.penalty_weight is None:
            score = float(merit(X, value.to(X.real.dtype).to(X.device), G, mu=self._mu))
        else:
            score = record.value + self.penalty_weight * float(penalty(X))
        if self._best is None or converged or score <= self._best[0]:
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


class Run:
    """The loop over steps.

    Args:
        X: First iterate, changed in place by `iterate`.
        source: Where gradients come from.
        watch: Evaluates and records.
        budget: When to stop at the latest.
        steps_per_pass: Steps between two calls of `problem.refresh`.
    """

    def __init__(self, X: Tensor, source: Source, watch: Watch, budget: Budget, steps_per_pass: int) -> None:
        self.X, self.source, self.watch, self.budget, self.steps_per_pass = X, source, watch, budget, steps_per_pass
        self.problem = source.problem
        self.seconds = 0.0
        self.step = 0

    def iterate(self, method: Method, step_size_at: Callable[[int], float]) -> Solution:
        """Steps of a method until a reason to stop comes up."""
        reason, used = None, 0.0
        try:
            self._timed(self.problem.refresh, self.X)
            self._timed(self.source.start, self.X)
            while reason is None:
                used = float(step_size_at(self.step))
                reason = self._one(method, used)
        except KeyboardInterrupt:
            reason = "interrupted"
        reason = self._last_record(reason, None, used, method.shortened)
        return self.watch.solution(reason, self.source, self.seconds, self.step, method.shortened)

    def _last_record(self, reason: str, known: tuple[Tensor, Tensor] | None, step_size: float, shortened: int) -> str:
        """Evaluate what came after the last record, which may be better; a second Ctrl-C leaves that out."""
        if reason not in ("interrupted", "max_epochs", "max_seconds") or self.watch.last_step == self.step:
            return reason
        try:
            found = self._record(known, step_size, shortened)
        except KeyboardInterrupt:
            return "interrupted"
        return reason if reason == "interrupted" or found is None else found

    def _one(self, method: Method, step_size: float) -> str | None:
        """Record where it is time, then one step."""
        known = None
        if isinstance(self.source, Full):
            G = self._timed(self.source.gradient, self.X)
            known = (self.source.last_value, G)
        due = self.step % self.watch.record_every == 0
        over = self._over()
        if due or (over and known is not None):
            reason = self._record(known, step_size, method.shortened)
            if reason is not None:
                return reason
        if over:
            return over
        self._timed(self._move, method, None if known is None else known[1], step_size)
        self.step += 1
        if self.step % self.steps_per_pass == 0 and self._timed(self.problem.refresh, self.X):
            self._timed(self.source.renew, self.X)
            self.watch.forget()
        return None

    def _move(self, method: Method, G: Tensor | None, step_size: float) -> None:
        self.X = method.step(self.X, self.source.gradient(self.X) if G is None else G, step_size)

    def _timed(self, function: Callable[..., Result], *arguments: object) -> Result:
        started = time.perf_counter()
        result = function(*arguments)
        if self.X.device.type == "cuda":
            torch.cuda.synchronize(self.X.device)
        self.seconds += time.perf_counter() - started
        return result

    def _over(self) -> str | None:
        if self.source.terms_used >= self.budget.passes * self.problem.n_terms:
            return "max_epochs"
        if self.budget.seconds is not None and self.seconds >= self.budget.seconds:
            return "max_seconds"
        return None

    def _record(self, known: tuple[Tensor, Tensor] | None, step_size: float, shortened: int) -> str | None:
        return self.watch.record(
            self.X,
            known,
            step=self.step,
            passes=self.source.terms_used / self.problem.n_terms,
            seconds=self.seconds,
            step_size=step_size,
            shortened=shortened,
        )

    def search(self, search: Search) -> Solution:
        """Steps of an automatic search until a reason to stop comes up."""
        reason, moved, known = None, True, None
        try:
            self._timed(self.problem.refresh, self.X)
            self._timed(search.start, self.X)
            while reason is None:
                self.X = search.at.X
                known = (torch.as_tensor(search.at.f, dtype=torch.float64), search.at.G)
                self.source.terms_used = search.evaluations * self.problem.n_terms
                reason = self._over() or (None if moved else "stalled")
                if (self.step % self.watch.record_every == 0 or reason) and self.watch.last_step != self.step:
                    reason = self._record(known, search.step_size, 0) or reason or self.watch.stalled(search.resolution)
                if reason is None:
                    moved = self._timed(search.step)
                    self.step += moved
                    if self._timed(self.problem.refresh, search.at.X):
                        self._timed(search.start, search.at.X)
                        self.watch.forget()
        except KeyboardInterrupt:
            reason = "interrupted"
            self.source.terms_used = search.evaluations * self.problem.n_terms
        reason = self._last_record(reason, known, search.step_size, 0)
        return self.watch.solution(reason, self.source, self.seconds, self.step, 0)
