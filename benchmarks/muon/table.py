"""The table of recorded runs, in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.muon.methods import METHODS, Method

Record = Mapping[str, Any]
HEADINGS = (
    "method",
    "best lr",
    "validation loss",
    "range of seeds",
    "at the other rates",
    "distance",
    "products",
    "CPU ms",
)


def summary(runs: Mapping[str, Record], seeds: int) -> str:
    """A row for each method that was run with every rate and seed."""
    rows = [HEADINGS, ("---",) * len(HEADINGS)]
    for method in METHODS:
        found = {lr: [runs.get(f"{method.name} | {lr:g} | {seed}") for seed in range(seeds)] for lr in method.rates}
        if all(run for each in found.values() for run in each):
            rows.append(row_of(method, found))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def row_of(method: Method, found: Mapping[float, Sequence[Any]]) -> tuple[str, ...]:
    """Loss, distance and products at the rate with the best mean; the time is the median of all runs."""
    means = {lr: mean_loss(each) for lr, each in found.items()}
    best = min(means, key=lambda lr: means[lr])
    losses = [run["validation_loss"] for run in found[best]]
    others = ", ".join(f"{lr:g}: {mean:.3f}" for lr, mean in means.items() if lr != best)
    seconds = statistics.median(run["seconds_per_step"] for each in found.values() for run in each)
    return (
        method.name,
        f"{best:g}",
        f"{means[best]:.3f}",
        f"{min(losses):.3f} to {max(losses):.3f}",
        others,
        f"{max(run['distance_largest'] for run in found[best]):.0e}",
        f"{statistics.fmean(run['products_per_matrix'] for run in found[best]):.0f}",
        f"{1000 * seconds:.1f}",
    )


def mean_loss(each: Sequence[Record]) -> float:
    """Mean over seeds; infinite if one of them diverged, which a file has as null."""
    losses = [run["validation_loss"] for run in each]
    return float("inf") if None in losses else statistics.fmean(losses)
