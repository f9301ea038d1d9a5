"""The result of `minimize`: the point, how good it is, why the run stopped, what to try next, and the way there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from glideslope.formulas.arguments import check_option


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


@dataclass(repr=False)
class History:
    """Records in order; each column of `Record` is an array: history.value, history.seconds, ..."""

    records: list[Record] = field(default_factory=list)

    def __repr__(self) -> str:
        ends = f", from {self.records[0]} to {self.records[-1]}" if self.records else ""
        return f"History of {len(self.records)} records{ends}"

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __getitem__(self, i: int) -> Record:
        return self.records[i]

    def to_pandas(self) -> Any:
        """A pandas DataFrame with a row per record."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("history.to_pandas() needs pandas (extra 'pandas'): pip install pandas") from error
        return pandas.DataFrame(self.records, columns=Record._fields)

    def __getattr__(self, name: str) -> np.ndarray:
        if name in Record._fields:
            return np.array([getattr(record, name) for record in self.records])
        raise AttributeError(f"a history has {', '.join(Record._fields)}; not {name!r}")


@dataclass(repr=False)
class Solution:
    """The result of `minimize`; prints in five lines.

    Examples:
        >>> solution = gs.minimize(lambda X: X.sum(), gs.random_stiefel(4, 1))
        >>> solution.converged, len(str(solution).splitlines())
        (True, 5)
    """

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
    history: History

    def __str__(self) -> str:
        return (
            f"value          {self.value:.10g}\n"
            f"gradient norm  {self.gradient_norm:.2e}\n"
            f"distance       {self.distance:.2e}\n"
            f"stopped        {self.stop_reason} after {self.n_steps} steps, {self.n_passes:.4g} passes, "
            f"{self.seconds:.3g} s\n"
            f"what to try    {self.advice}"
        )

    def __repr__(self) -> str:
        return (
            f"Solution({self.stop_reason}: value={self.value:.8g}, gradient_norm={self.gradient_norm:.2e}, "
            f"distance={self.distance:.2e}, n_steps={self.n_steps}, X of shape {tuple(self.X.shape)})"
        )

    def plot(self, against: str = "seconds") -> Any:
        """Draw value, gradient norm and distance, one panel each; needs matplotlib.

        The value is drawn above the lowest one, on a logarithmic scale like the others.

        Args:
            against: "seconds" or "passes".

        Returns:
            The matplotlib figure.
        """
        check_option("against", against, ("seconds", "passes"))
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise ImportError("solution.plot() needs matplotlib (extra 'plot'): pip install matplotlib") from error
        figure, axes = pyplot.subplots(1, 3, figsize=(10, 3), layout="constrained")
        history, across = self.history, getattr(self.history, against)
        panels = {
            f"value above {self.history.value.min():.6g}": history.value - history.value.min(),
            "gradient norm": history.gradient_norm,
            "distance": history.distance,
        }
        for axis, (title, numbers) in zip(axes, panels.items(), strict=True):
            axis.plot(across, np.where(numbers > 0, numbers, np.nan), marker="." if len(history) < 30 else None)
            axis.set(title=title, xlabel=against, yscale="log" if (numbers > 0).any() else "linear")
            axis.grid(alpha=0.3)
        return figure
