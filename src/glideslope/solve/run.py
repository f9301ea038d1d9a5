"""One run of `minimize`: the loop, its clock, its checkpoints, and when it stops."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from glideslope.solve.checkpoint import Checkpoint, State
from glideslope.solve.history import Measured, Watch
from glideslope.solve.interruption import CtrlC
from glideslope.solve.methods import Method
from glideslope.solve.recognition import fingerprint, refuse_another_problem
from glideslope.solve.search import Search
from glideslope.solve.solution import Solution
from glideslope.solve.sources import Full, Source

Result = TypeVar("Result")


class Run:
    """The loop over steps.

    Args:
        X: First iterate, changed in place by `iterate`.
        source: Where gradients come from.
        watch: Evaluates and records.
        steps_per_pass: Steps between two calls of `problem.refresh`.
        max_passes: Passes over the data after which to stop.
        max_seconds: Seconds after which to stop, if not None.
        checkpoint: Where to resume from and write to, if anywhere.
    """

    def __init__(
        self,
        X: Tensor,
        source: Source,
        watch: Watch,
        steps_per_pass: int,
        *,
        max_passes: float,
        max_seconds: float | None,
        checkpoint: Checkpoint | None,
    ) -> None:
        self.X, self.source, self.watch, self.steps_per_pass = X, source, watch, steps_per_pass
        self.max_passes, self.max_seconds = max_passes, max_seconds
        self.checkpoint = checkpoint
        self.problem = source.problem
        self.seconds = 0.0
        self.step = 0
        self.ctrl_c = CtrlC()
        # The fingerprint and the state of the problem before the first step.
        self.start: tuple[dict[str, float], State] = ({}, {})

    def iterate(self, method: Method, step_size_at: Callable[[int], float]) -> Solution:
        """Steps of a method until a reason to stop comes up."""
        reason, used = None, 0.0
        try:
            if not self._resumed(method):
                self._timed(self.problem.refresh, self.X)
                self._timed(self.source.start, self.X)
            while reason is None:
                self._save(method)
                used = float(step_size_at(self.step))
                reason = self._one(method, used)
        except KeyboardInterrupt:
            self.ctrl_c.caught()
            reason = "interrupted"
        return self._ended(reason, None, used, method.shortened)

    def _ended(self, reason: str, known: Measured | None, step_size: float, shortened: int) -> Solution:
        """Evaluate what came after the last record, which may be better, and return the best."""
        if reason in ("interrupted", "max_epochs", "max_seconds") and self.watch.last_step != self.step:
            try:
                found = self._record(known, step_size, shortened)
                reason = reason if reason == "interrupted" or found is None else found
            except KeyboardInterrupt:
                self.ctrl_c.caught()
                reason = "interrupted"
        self.ctrl_c.run_ended()
        return self.watch.solution(reason, self.source, self.seconds, self.step, shortened)

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

    def _save(self, mover: Method | Search) -> None:
        """Write a checkpoint where one is due."""
        if self.checkpoint is not None and self.checkpoint.is_due(self.step):
            parts = (self.source, self.watch, self.problem, mover)
            numbers = {"step": self.step, "seconds": self.seconds, "X": self.X, "start": self.start}
            self.checkpoint.write({**numbers, "parts": [part.state() for part in parts]})

    def _resumed(self, mover: Method | Search) -> bool:
        """Take over the checkpoint if there is one."""
        if self.checkpoint is None:
            return False
        state = self.checkpoint.resume()
        if state is None:
            self.start = (fingerprint(self.problem, self.X), copy.deepcopy(self.problem.state()))
            return False
        self.start = state["start"]
        self.problem.resume(dict(self.start[1]), self.X.device)  # which may have changed f since
        refuse_another_problem(self.problem, self.X, self.start[0], self.checkpoint.path)
        self.X.copy_(state["X"])
        self.step, self.seconds = state["step"], state["seconds"]
        *parts, last = state["parts"]
        for part, saved in zip((self.source, self.watch, self.problem), parts, strict=True):
            part.resume(saved, self.X.device)
        if isinstance(mover, Method):
            mover.resume_at(self.X, last)
        else:
            mover.resume(last, self.X.device)
        return True

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
        if self.source.terms_used >= self.max_passes * self.problem.n_terms:
            return "max_epochs"
        if self.max_seconds is not None and self.problem.geometry.any(self.seconds >= self.max_seconds):
            return "max_seconds"
        return None

    def _record(self, known: tuple[Tensor, Tensor] | Measured | None, step_size: float, shortened: int) -> str | None:
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
            if not self._resumed(search):
                self._timed(self.problem.refresh, self.X)
                self._timed(search.start, self.X)
            while reason is None:
                self.X = search.at.X
                self._save(search)
                known = search.measured()
                self.source.terms_used = search.evaluations * self.problem.n_terms
                reason = self._over() or (None if moved else "stalled")
                if (self.step % self.watch.record_every == 0 or reason) and self.watch.last_step != self.step:
                    found = self._record(known, search.unscaled_step, 0)
                    reason = found or reason or self.watch.stalled(search.resolution)
                if reason == "stalled":
                    reason = self.watch.settle(self.X, search.steepest * search.unit)
                if reason is None:
                    moved = self._timed(search.step)
                    self.step += moved
                    if self._timed(self.problem.refresh, search.at.X):
                        self._timed(search.start, search.at.X)
                        self.watch.forget()
        except KeyboardInterrupt:
            self.ctrl_c.caught()
            reason = "interrupted"
            self.source.terms_used = search.evaluations * self.problem.n_terms
        return self._ended(reason, known, search.unscaled_step, 0)
