"""A study: one benchmark on one data set, with its methods, grid of step sizes, seeds and budget."""

from __future__ import annotations

import json
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
    step_size_of: dict[str, str] = field(default_factory=dict)
    """Methods too slow to be searched -> the method whose step size they take."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Sizes, as columns of the records."""
    long: bool = False
    """Whether runs are recorded as soon as they are finished, and not all of them at the end."""
    in_the_time_of_others: tuple[str, ...] = ()
    """Methods that run last and get the seconds of the longest run of the others (long studies only)."""

    def __post_init__(self) -> None:
        for method, other in self.step_size_of.items():
            if other not in self.methods:
                raise ValueError(f"{method} takes the step size of {other}: name both in --methods")

    @property
    def searched(self) -> list[str]:
        """The methods whose step size is searched."""
        return [name for name in self.methods if name not in {*self.without_step_size, *self.step_size_of}]

    def dataset_pattern(self) -> dict[str, dict[str, list[Any]]]:
        """For Benchopt."""
        return {self.dataset: {name: [value] for name, value in self.dataset_parameters.items()}}

    def parameters_in(self, phase: str) -> dict[str, Any]:
        """Of the objective, in the search or in the runs, without the seed."""
        return {**self.parameters, **(self.search if phase == "search" else {})}

    def objective_pattern(self, phase: str, seeds: tuple[int, ...]) -> dict[str, dict[str, list[Any]]]:
        """For Benchopt: the budget of the search or of the runs, with these seeds."""
        chosen = {name: [value] for name, value in self.parameters_in(phase).items()}
        return {self.objective: {**chosen, "seed": list(seeds)}}

    def settings(self, phase: str) -> str:
        """What runs of one method must have in common to be of one study, as JSON: all but method, step size and seed.

        The place of the data is left out, the seconds allowed, which the records show, the precision, which the
        study's name has, and what changes rounding alone.
        """
        parameters = {**self.parameters_in(phase), **self.dataset_parameters}
        left_out = ("path", "max_seconds", "device", "precision", "compiled")
        common = {name: value for name, value in parameters.items() if name not in left_out}
        return json.dumps(common, sort_keys=True)
