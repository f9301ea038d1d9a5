"""The options of a landing step, and what one step did."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glideslope.formulas.arguments import (
    METRICS,
    NORMAL_STEPS,
    SAFEGUARDS,
    check_attraction,
    check_option,
    check_radius,
)
from glideslope.formulas.field import metric_of_shape
from glideslope.formulas.normal import newton_schulz_radius, newton_schulz_reach

# Columns of X may be shorter than 1 by this radius. Up to 0.9 the polar factor was exact to ten roundings, float32 and
# float64; from 0.97 on it loses digits.
LARGEST_POLAR_RADIUS = 0.9
# The options of the paper's runs, for `LandingSGD(..., **gs.PAPER_OPTIONS)` and whatever else takes a step. The
# defaults below, which every signature repeats, are those that won in benchmarks/defaults.
PAPER_OPTIONS: dict[str, Any] = {
    "attraction": 1.0,
    "safe_radius": 0.5,
    "metric": "canonical",
    "normal_step": "landing",
    "safeguard": "lemma",
}


@dataclass(frozen=True)
class StepRule:
    """The options of a landing step, checked once."""

    attraction: float | str = "auto"
    safe_radius: float = 0.5
    metric: str = "euclidean"
    normal_step: str = "landing"
    safeguard: str | None = "lemma"

    def __post_init__(self) -> None:
        check_attraction(self.attraction)
        check_radius(self.safe_radius)
        for name in ("attraction", "safe_radius"):
            if type(getattr(self, name)) not in (float, int, str):  # NumPy's, whose comparisons are no Python bools
                object.__setattr__(self, name, float(getattr(self, name)))
        check_option("metric", self.metric, METRICS)
        check_option("normal_step", self.normal_step, NORMAL_STEPS)
        check_option("safeguard", self.safeguard, SAFEGUARDS)
        if self.normal_step == "polar" and self.safe_radius > LARGEST_POLAR_RADIUS:
            raise ValueError(
                f'normal_step="polar" needs safe_radius <= {LARGEST_POLAR_RADIUS}, because inverse roots of nearly '
                f'singular matrices lose digits; got {self.safe_radius!r}. Lower it, or use "newton-schulz"'
            )

    def for_shape(self, n: int, p: int) -> StepRule:
        """The rule to compute an n x p matrix with."""
        metric = metric_of_shape(self.metric, n, p)
        if metric == self.metric:
            return self
        if torch.compiler.is_compiling():  # which traces the constructor, and warns of caches
            return StepRule(self.attraction, self.safe_radius, metric, self.normal_step, self.safeguard)
        return with_metric(self, metric)

    @property
    def options(self) -> tuple[float | str | None, ...]:
        """The options in their order."""
        return (self.attraction, self.safe_radius, self.metric, self.normal_step, self.safeguard)

    @property
    def lands(self) -> bool:
        """Whether the attraction is part of the field, instead of a normal step after it."""
        return self.normal_step == "landing"

    @property
    def is_spectral(self) -> bool:
        """Whether the safe region is ‖X^H X - I‖_2 <= ε, and not the paper's Frobenius ball."""
        return not self.lands or self.safeguard == "exact"

    @property
    def reach(self) -> float:
        """The distance a step may reach before its normal part: ε, or what the normal part brings back inside."""
        if self.normal_step == "newton-schulz":
            return newton_schulz_radius(self.safe_radius)
        return self.safe_radius if self.lands else 1.0

    @property
    def upper_reach(self) -> float:
        """The largest eigenvalue of Y^H Y - I after a tangent step that its normal step mends.

        Newton-Schulz has a tenth of the radius in hand, for `drift_budget`.
        """
        return newton_schulz_reach(0.9 * self.safe_radius) if self.normal_step == "newton-schulz" else 1.0

    @property
    def drift_budget(self) -> float:
        """How much drift, step times bound, a step that is shortened after its tangent part may have."""
        return min(self.safe_radius / 16, (self.reach - self.safe_radius) / 8)

    def has_square_form(self, n: int, p: int) -> bool:
        """Whether F = (skew(G X^H) + λ (X X^H - I)) X, three products, gives distance and field of a square X."""
        return n == p and not self.is_spectral


@functools.lru_cache
def with_metric(rule: StepRule, metric: str) -> StepRule:
    """The same rule with another metric, made once."""
    return replace(rule, metric=metric)


class StepOutcome(NamedTuple):
    """The new iterates and what happened to each matrix; Python bools where it is the same for all, on the host."""

    X: Tensor
    """The new iterates."""
    distance: Tensor | float
    """‖X^H X - I‖_F before the step."""
    shortened: Tensor | bool
    """The safeguard allowed less than the step size asked for."""
    recovered: Tensor | bool
    """The matrix was outside the safe region and took a pure Newton-Schulz step."""
    skipped: Tensor | bool
    """The gradient was not finite, or its products overflowed: the matrix stayed where it was."""
