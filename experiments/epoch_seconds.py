"""Seconds of an epoch of the networks: steps of all methods in turn, in one process that has the machine.

The long runs share their machine, so that their seconds are no measurement. Where these are recorded, they are the time
of every figure, table and verdict.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.study import Study

FOLDER = "seconds"
WARM_UP = 2
STEPS = 15
LONGEST = 60.0
"""Seconds after which a method takes no more steps."""


def step_seconds(study: Study, benchmarks: Path) -> tuple[dict[str, Iterator[float]], int]:
    """For every method the seconds of its steps, as they are taken; and how many make an epoch."""
    from benchopt.benchmark import Benchmark

    benchmark = Benchmark(benchmarks / study.benchmark)
    datasets = {kind.name: kind for kind in benchmark.get_datasets()}
    data = datasets[study.dataset].get_instance(**study.dataset_parameters).get_data()
    objective = benchmark.get_benchmark_objective().get_instance(**study.parameters, seed=study.seeds[0])
    objective.set_data(**data)
    task = objective.get_objective()["task"]
    solvers = {kind.name: kind for kind in benchmark.get_solvers()}
    found = {}
    for name in study.methods:
        solver = solvers[name].get_instance(step_size=min(study.grid))
        solver.set_objective(task)
        found[name] = solver.step_seconds()
    return found, math.ceil(len(task.images.train) / task.batch_size)


def measure(study: Study, benchmarks: Path) -> Any:
    """One row per method: median, lowest and highest seconds of a step, and the median times the steps of an epoch."""
    sources, steps_per_epoch = step_seconds(study, benchmarks)
    taken: dict[str, list[float]] = {name: [] for name in sources}
    for _ in range(WARM_UP + STEPS):
        for name, source in sources.items():
            if sum(taken[name]) < LONGEST:
                taken[name].append(next(source))
    rows = []
    for name, seconds in taken.items():
        timed = seconds[WARM_UP:] or seconds
        median = statistics.median(timed)
        rows.append(
            {
                "study": study.name,
                "method": name,
                "steps": len(timed),
                "step_seconds": median,
                "step_seconds_lowest": min(timed),
                "step_seconds_highest": max(timed),
                "steps_per_epoch": steps_per_epoch,
                "epoch_seconds": median * steps_per_epoch,
            }
        )
    return pd.DataFrame(rows)


def place(folder: Path, name: str) -> Path:
    """The file of a study's seconds, beside the folder of its records."""
    return folder / FOLDER / f"{name}.parquet"


def with_measured_seconds(records: Any, path: Path) -> Any:
    """Records with the measured seconds of their epochs in place of their own; nan where not measured."""
    if not path.exists():
        return records
    per_epoch = pd.read_parquet(path).set_index("method")["epoch_seconds"]
    return records.assign(seconds=records["epoch"] * records["method"].map(per_epoch))
