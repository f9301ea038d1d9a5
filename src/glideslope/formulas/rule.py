"""The options of a landing step, and what one step did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from glideslope.formulas.arguments import (
    METRICS,
    NORMAL_STEPS,
    SAFEGUARDS,
    check_option,
    check_positive,
    check_radius,
)
from glideslope.formulas.normal import newton_schulz_radius


@dataclass(frozen=True)
class StepRule:
    """The options of a landing step, checked once."""

    attraction: float = 1.0
    safe_radius: float = 0.5
    metric: str = "canonical"
    normal_step: str = "landing"
    safeguard: str | None = "lemma"

    def __post_init__(self) -> None:
        check_positive(attraction=self.attraction)
        check_radius(self.safe_radius)
        check_option("metric", self.metric, METRICS)
        check_option("normal_step", self.normal_step, NORMAL_STEPS)
        check_option("safeguard", self.safeguard, SAFEGUARDS)

    @property
    def options(self) -> tuple[float | str | None, ...]:
        """The options in their order."""
        return (self.attraction, self.safe_radius, self.metric, self.normal_step, self.safeguard)

    @property
    def reach(self) -> float:
        """The distance a step may reach before its normal part: ε, or what the normal part brings back inside."""
        if self.normal_step == "newton-schulz":
            return newton_schulz_radius(self.safe_radius)
        return self.safe_radius if self.normal_step == "landing" else 1.0

    def has_square_form(self, n: int, p: int) -> bool:
        """Whether F = (skew(G X^H) + λ (X X^H - I)) X, three products, gives distance and field of a square X."""
        return n == p and self.metric == "canonical" and self.normal_step == "landing"


class StepOutcome(NamedTuple):
    """What one step did to each matrix; Python bools where that is the same for all, on the host."""

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
