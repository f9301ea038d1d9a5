"""The tables of recorded runs: an overview of all kinds of work, then one table for each."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.defaults.option_sets import OPTION_SETS
from benchmarks.defaults.works import SEEDS, Work

Record = Mapping[str, Any]
DISTANCES = ("distance_early", "distance_halfway", "distance")


class Row(NamedTuple):
    """One option set at one kind of work, as text; all but `results` at the best learning rate, `time` over all."""

    results: list[str]
    best: str
    result: str
    distances: list[str]
    shortened: str
    time: str


def summary(works: Sequence[Work], runs: Mapping[str, Record]) -> str:
    """The overview, and a block for each kind of work of which there are runs, as Markdown."""
    rows = {work.name: found for work in works if (found := rows_of(work, runs))}
    blocks = [block(work, rows[work.name]) for work in works if work.name in rows]
    return "\n\n".join([*overview(rows), *blocks])


def overview(rows: Mapping[str, Mapping[str, Row]]) -> list[str]:
    """Result, distance at the end and time of a step of each option set (rows) at each kind of work (columns)."""
    titles: dict[str, Callable[[Row], str]] = {
        "Result at the best learning rate": lambda row: row.result,
        "Distance at the end, at that learning rate": lambda row: row.distances[-1],
        "Time of a step": lambda row: row.time,
    }
    tables = []
    for title, cell in titles.items():
        lines = [
            [options.name, *(cell(found[options.name]) if options.name in found else "" for found in rows.values())]
            for options in OPTION_SETS
        ]
        tables.append(f"**{title}**\n\n{markdown(['options', *rows], lines)}")
    return tables


def block(work: Work, rows: Mapping[str, Row]) -> str:
    """One kind of work: mean and spread (half of the range over seeds) of the results at every learning rate."""
    header = [*("options", *(f"lr {lr:g}" for lr in work.rates)), "best lr", "distance: first steps, half, end"]
    lines = [
        [name, *row.results, row.best, ", ".join(row.distances), row.shortened, row.time] for name, row in rows.items()
    ]
    about = f"{work.measure}; {work.optimizer}, {work.steps} steps, {work.schedule.__name__} lr"
    return f"**{work.name}** ({about})\n\n{markdown([*header, 'shortened', 'time'], lines)}"


def markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, ["---"] * len(header), *lines])


def rows_of(work: Work, runs: Mapping[str, Record]) -> dict[str, Row]:
    """The rows of the option sets that were run with every learning rate; times relative to the first of them."""
    rows: dict[str, Row] = {}
    first_seconds = 0.0
    for options in OPTION_SETS:
        found = {lr: records(work, options.name, lr, runs) for lr in work.rates}
        if not all(found.values()):
            continue
        seconds = statistics.median(run["seconds_per_step"] for each in found.values() for run in each)
        first_seconds = first_seconds or seconds
        best = best_rate(work, found)
        rows[options.name] = Row(
            results=[mean_and_spread(each) for each in found.values()],
            best=f"{best:g}",
            result=mean_and_spread(found[best]),
            distances=[largest(key, found[best]) for key in DISTANCES],
            shortened=f"{statistics.fmean(run['shortened'] for run in found[best]):.0%}",
            time=f"{seconds / first_seconds:.2f}",
        )
    return rows


def records(work: Work, options: str, lr: float, runs: Mapping[str, Record]) -> list[Record]:
    """The runs of all seeds."""
    names = [f"{work.name} | {options} | {lr:g} | {seed}" for seed in range(SEEDS)]
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
