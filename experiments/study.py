"""A study: one benchmark on one data set, with its methods, grid of step sizes, seeds and budget."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Study:
    """What Benchopt is asked for.

    The step size of every method is searched first, with one seed and the budget of `search`; then the method runs
    with the one chosen and every seed.
    """

    experiment: str
    """"pca", "ica" or "cnn"."""
    name: str
    """Name of its file of records."""
    title: str
    benchmark: str
    """Folder of the benchmark."""
    objective: str
    """Name of the benchmark's objective."""
    dataset: str
    """Name of the benchmark's data set."""
    dataset_parameters: dict[str, Any]
    parameters: dict[str, Any]
    """Of the objective, in the runs."""
    search: dict[str, Any]
    """What differs in the search for step sizes."""
    methods: tuple[str, ...]
    grid: tuple[float, ...]
    seeds: tuple[int, ...]
    n_records: int
    """More than a run can have, for the display of progress."""
    criterion: str = "value"
    """Column by which a step size is chosen; the lowest wins."""
    criterion_name: str = "f - f* at the projected point"
    """What the report calls it."""
    without_step_size: tuple[str, ...] = ()
    """Methods that have none: they run, and are not searched."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Sizes, as columns of the records."""

    def dataset_pattern(self) -> dict[str, dict[str, list[Any]]]:
        """For Benchopt."""
        return {self.dataset: {name: [value] for name, value in self.dataset_parameters.items()}}

    def objective_pattern(self, *, search: bool) -> dict[str, dict[str, list[Any]]]:
        """For Benchopt: the budget of the search with one seed, or the whole with all."""
        parameters = {**self.parameters, **(self.search if search else {})}
        chosen = {name: [value] for name, value in parameters.items()}
        chosen["seed"] = list(self.seeds[:1] if search else self.seeds)
        return {self.objective: chosen}
