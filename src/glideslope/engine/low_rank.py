"""Landing along gradients of low rank with a tracked residual: neither the gradient nor X^H X is formed in a step.

With G = A^H W, F = X K + A^H M for p x p and b x p matrices K and M, and so Δ = X^H X - I after the step follows from
Y = A X and the b x b matrix A A^H: cheaper than X^H X while b < p. Rounding makes the tracked residual drift, by less
than `distance_margin` a step: the step keeps that much more away from the boundary, and X^H X is computed anew after a
number of steps.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from glideslope.engine.decision import admissible_step, follows, plan_step, rounding_margin
from glideslope.engine.gradient import Factored, cancelled_size
from glideslope.engine.point import norm_of_square, slope_and_square
from glideslope.engine.products import gram_product
from glideslope.engine.rounding import distance_margin, drift_rate, smallest_norm
from glideslope.engine.rule import StepRule
from glideslope.formulas.field import tangent_coefficients
from glideslope.formulas.orthogonality import subtract_identity_

STEPS_BETWEEN_GRAMS = 32


def pays(G: Factored, X: Tensor, rule: StepRule) -> bool:
    """Whether a step can be tracked, and is cheaper for it: 2 n b² against 2 n p² operations, and p x p products."""
    plain = rule.lands and rule.safeguard == "lemma"
    return plain and X.device.type == "cpu" and 4 * len(G.W) <= 3 * X.shape[1] and 4 * X.shape[1] <= X.shape[0]


class TrackedLanding:
    """Steps of one matrix whose residual is known from the step before.

    Args:
        X: The first iterate; its memory and one more matrix take turns.
        rule: The step's options.
    """

    def __init__(self, X: Tensor, rule: StepRule) -> None:
        self.rule = rule
        self._other = torch.empty_like(X)
        self._gram = X.new_empty(X.shape[1], X.shape[1])
        self._identity = torch.eye(X.shape[1], dtype=X.dtype, device=X.device)
        self._of: Tensor | None = None
        self._age = 0

    def state(self) -> dict[str, Tensor | int] | None:
        """The residual of the last iterate and its age in steps; None where it must be computed anew."""
        return None if self._of is None else {"Delta": self._Delta, "age": self._age}

    def resume(self, X: Tensor, state: dict[str, Any]) -> None:
        """Go on at X, for which `state` was saved."""
        self._Delta = self._gram.copy_(state["Delta"])
        self._age, self._of = state["age"], X

    def step(self, X: Tensor, G: Factored, step_size: float) -> tuple[Tensor, bool] | None:
        """The next iterate, in other memory, and whether the step was shortened; None where it must be plain."""
        known, self._of = self._of is X, None
        if not known or self._age >= STEPS_BETWEEN_GRAMS:
            self._Delta = subtract_identity_(gram_product(X, out=self._gram))
            self._age = 0
        self._age += 1
        rule, Delta = self.rule, self._Delta
        reach = rule.reach - rounding_margin(X, rule, steps=self._age)
        C = G.Y.mH @ G.W
        distance, size = Delta.norm().item(), C.norm().item()
        drift = cancelled_size(G, C.norm()).item() * drift_rate(X, rule.metric) + size * self._age * distance_margin(X)
        if not distance <= reach or not math.isfinite(size + drift):
            return None
        plan = plan_step(distance, size, drift, rule, reach, step_size, torch.finfo(X.dtype).tiny)
        if not follows(plan):
            return None
        K, factor = tangent_coefficients(Delta, C, rule.metric)
        factor *= plan.share
        K.mul_(factor).add_(Delta, alpha=plan.attraction)
        M = torch.addmm(G.W, G.W, Delta).mul_(factor)
        slope, square = slope_and_square(Delta, K, G.Y.mH @ M, M.mH @ (gram_product(G.A.mH, out=None) @ M))
        terms = float(K.norm()) ** 2 + float(M.norm() * torch.linalg.vector_norm(G.A)) ** 2
        norm = norm_of_square(square, terms)
        if not math.isfinite(norm):
            return None
        wanted = step_size * plan.scale
        step = min(wanted, admissible_step(plan, distance, max(norm, smallest_norm(X)), reach))
        after = torch.addmm(self._other, X, torch.sub(self._identity, K, alpha=step), beta=0, out=self._other)
        after.addmm_(G.A.mH, M, alpha=-step)
        self._Delta = Delta.sub_(slope + slope.mH, alpha=step).add_(square + square.mH, alpha=step**2 / 2)
        self._other, self._of = X, after
        return after, step < wanted
