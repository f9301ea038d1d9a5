"""The result of `minimize`: the point, how good it is, why the run stopped, what to try next, and the way there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np


class Record(NamedTuple):
    """The state of a run at one step; seconds without the time spent on evaluation."""

    step: int
    passes: float
    seconds: float
    value: float
    gradient_norm: float
    distance: float
    step_size: float
    shortened: int


@dataclass
class History:
    """Records in order; each column of `Record` is an array: history.value, history.seconds, ..."""

    records: list[Record] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __getitem__(self, i: int) -> Record:
        return self.records[i]

    def __getattr__(self, name: str) -> np.ndarray:
        if name in Record._fields:
            return np.array([getattr(record, name) for record in self.records])
        raise AttributeError(f"a history has {', '.join(Record._fields)}; not {name!r}")


@dataclass
class Solution:
    """The result of `minimize`."""

    X: Any
    """The best point found: a torch tensor, or a NumPy array where NumPy went in."""
    value: float
    """f(X)."""
    gradient_norm: float
    """‖grad f(X)‖_F, the tangent part in the metric chosen; of f + λ N for method="penalty". Not divided by anything,
    while `tolerance` is relative to ‖∇f(X0)‖_F."""
    distance: float
    """‖X^H X - I‖_F."""
    converged: bool
    stop_reason: str
    """"converged", "max_epochs", "max_seconds", "callback", "interrupted", "stalled" or "diverged"."""
    advice: str
    """Why the run ended, in words, and what to try next."""
    n_steps: int
    n_gradients: int
    """Gradients of single terms evaluated."""
    n_passes: float
    """The same divided by N."""
    seconds: float
    """Without the time spent on evaluation for the history."""
    n_shortened: int
    """Steps that the safeguard shortened."""
    history: History = field(repr=False)

    def __str__(self) -> str:
        return (
            f"{self.stop_reason} after {self.n_steps} steps, {self.n_passes:.4g} passes, {self.seconds:.3g} s\n"
            f"  value {self.value:.8g}, gradient norm {self.gradient_norm:.2e}, distance {self.distance:.2e}\n"
            f"  {self.advice}"
        )
