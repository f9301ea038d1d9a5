"""The table of recorded runs: one block per kind of work, one row per option set."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.defaults.option_sets import OPTION_SETS
from benchmarks.defaults.works import Work

Record = Mapping[str, Any]
DISTANCES = ("distance_early", "distance_halfway", "distance")


def summary(works: Sequence[Work], runs: Mapping[str, Record]) -> str:
    """All blocks of which there are runs, as Markdown tables."""
    blocks = [block(work, runs) for work in works]
    return "\n\n".join(text for text in blocks if text)


def block(work: Work, runs: Mapping[str, Record]) -> str:
    """Mean and spread (half of the range over seeds) of the results; the rest at the best learning rate."""
    header = [
        "options",
        *(f"lr {lr:g}" for lr in work.rates),
        "best lr",
        "distance: first steps, half, end",
        "shortened",
        "time",
    ]
    rows, first_seconds = [], None
    for options in OPTION_SETS:
        found = {lr: records(work, options.name, lr, runs) for lr in work.rates}
        if not all(found.values()):
            continue
        seconds = statistics.median(run["seconds_per_step"] for each in found.values() for run in each)
        first_seconds = first_seconds or seconds
        best = best_rate(work, found)
        at_best = found[best]
        rows.append(
            [
                options.name,
                *(mean_and_spread(each) for each in found.values()),
                f"{best:g}",
                ", ".join(largest(key, at_best) for key in DISTANCES),
                f"{statistics.fmean(run['shortened'] for run in at_best):.0%}",
                f"{seconds / first_seconds:.2f}",
            ]
        )
    if not rows:
        return ""
    lines = ["| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows]]
    counts = (
        f"{work.optimizer}, {work.steps} steps, {work.schedule.__name__} lr; time 1 is {first_seconds:.2g} s a step"
    )
    return "\n".join([f"**{work.name}** ({work.measure}; {counts})", "", *lines])


def records(work: Work, options: str, lr: float, runs: Mapping[str, Record]) -> list[Record]:
    """The runs of all seeds."""
    names = [f"{work.name} | {options} | {lr:g} | {seed}" for seed in range(work.seeds)]
    return [runs[name] for name in names if name in runs]


def number(value: float | None) -> float:
    """What a file has as null was not finite."""
    return float("nan") if value is None else value


def largest(key: str, each: Sequence[Record]) -> str:
    """The largest of the numbers recorded under a key; some records have no early distance."""
    return f"{max((number(run[key]) for run in each if key in run), default=float('nan')):.0e}"


def best_rate(work: Work, found: Mapping[float, Sequence[Record]]) -> float:
    """The learning rate with the best mean result; one that diverged is never the best."""
    worst = float("-inf") if work.more_is_better else float("inf")
    means = {
        lr: statistics.fmean(worst if run["result"] is None else run["result"] for run in each)
        for lr, each in found.items()
    }
    return (max if work.more_is_better else min)(means, key=lambda lr: means[lr])


def mean_and_spread(each: Sequence[Record]) -> str:
    """Mean ± half of the range, three digits of the mean."""
    results = [number(run["result"]) for run in each]
    mean, spread = statistics.fmean(results), (max(results) - min(results)) / 2
    return f"{mean:.3g} ± {spread:.1g}" if len(results) > 1 else f"{mean:.3g}"
