"""The tables of recorded runs, in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.muon.methods import METHODS, Method

Runs = Mapping[float, Sequence[Mapping[str, Any]]]  # of one method: for each learning rate, a record per seed
REFERENCE = "Muon + landing"
HEADINGS = (
    *("method", "best lr", "validation loss", "over seeds", "minus Muon + landing"),
    *("largest distance", "signs", "products", "CPU ms"),
)


def summary(runs: Mapping[str, Any], seeds: int) -> str:
    """Two tables of the methods that were run with every rate and seed: at the best rate, and the loss at all rates."""
    complete = {method: found for method in METHODS if (found := runs_of(method, runs, seeds))}
    reference = next((losses_at_best(found) for method, found in complete.items() if method.name == REFERENCE), None)
    best = [row_at_best(method, found, reference) for method, found in complete.items()]
    every = [row_of_rates(method, found) for method, found in complete.items()]
    titles = ("method", *(f"rate {position + 1}" for position in range(len(METHODS[0].rates))))
    return f"{markdown(HEADINGS, best)}\n\n{markdown(titles, every)}"


def runs_of(method: Method, runs: Mapping[str, Any], seeds: int) -> Runs | None:
    """The records of a method, None if one is missing."""
    names = {lr: [f"{method.name} | {lr:g} | {seed}" for seed in range(seeds)] for lr in method.rates}
    if not all(name in runs for each in names.values() for name in each):
        return None
    return {lr: [runs[name] for name in each] for lr, each in names.items()}


def row_at_best(method: Method, found: Runs, reference: Sequence[float] | None) -> tuple[str, ...]:
    """Everything at the rate with the best mean loss, but for the time, which is the median of all runs."""
    best, losses = best_rate(found), losses_at_best(found)
    differences = [] if reference is None else [one - other for one, other in zip(losses, reference, strict=True)]
    seconds = statistics.median(run["seconds_per_step"] for each in found.values() for run in each)
    signs = statistics.fmean(run.get("signs_per_matrix", method.signs) for run in found[best])
    return (
        method.name,
        f"{best:g}",
        f"{statistics.fmean(losses):.3f}",
        f"{min(losses):.3f} to {max(losses):.3f}",
        f"{min(differences):+.3f} to {max(differences):+.3f}" if any(differences) else "",
        f"{max(run['distance_largest'] for run in found[best]):.0e}",
        f"{signs:.3g}",
        f"{statistics.fmean(run['products_per_matrix'] for run in found[best]):.3g}",
        f"{1000 * seconds:.1f}",
    )


def row_of_rates(method: Method, found: Runs) -> tuple[str, ...]:
    """The mean loss at every rate."""
    return (method.name, *(f"{lr:g}: {mean_loss(each):.3f}" for lr, each in found.items()))


def best_rate(found: Runs) -> float:
    """The rate with the best mean loss."""
    return min(found, key=lambda lr: mean_loss(found[lr]))


def losses_at_best(found: Runs) -> list[float]:
    """The validation loss of every seed at the best rate."""
    return [run["validation_loss"] for run in found[best_rate(found)]]


def mean_loss(each: Sequence[Mapping[str, Any]]) -> float:
    """Mean over seeds; infinite if one of them diverged, which a file has as null."""
    losses = [run["validation_loss"] for run in each]
    return float("inf") if None in losses else statistics.fmean(losses)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows])
