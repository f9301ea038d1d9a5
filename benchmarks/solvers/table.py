"""The table of recorded runs, as the page has it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.solvers.peers import SOLVERS
from benchmarks.solvers.problems import CASES, Case

Runs = Mapping[str, Mapping[str, Any]]
HEADER = (
    "problem",
    "n x p",
    "`minimize`",
    "conjugate gradients",
    "trust regions",
    "times faster than the better one",
)
BEGIN, END = "<!-- table -->", "<!-- end of table -->"
# Two values are the same if they differ by less than this share of what the run gained.
SAME = 1e-6


def records(runs: Runs, case: Case, solver: str) -> list[Mapping[str, Any]]:
    """The runs of one solver on one problem, by start."""
    return [run for name, run in runs.items() if name.startswith(f"{case.name} | {solver} | ")]


def median_seconds(found: Sequence[Mapping[str, Any]]) -> float:
    """The median over starts."""
    return float(statistics.median(run["seconds"] for run in found))


def speedup(runs: Runs, case: Case) -> float | None:
    """Median seconds of the faster peer over ours, among those that arrive from some start; None if none does."""
    ours, *peers = (records(runs, case, solver) for solver in SOLVERS)
    arrived = [median_seconds(found) for found in peers if any(run["reached"] for run in found)]
    return min(arrived) / median_seconds(ours) if arrived else None


def higher(runs: Runs, case: Case) -> int:
    """Starts from which `minimize` ended higher than a peer."""
    ours, *peers = (records(runs, case, solver) for solver in SOLVERS)
    count = 0
    for start, run in enumerate(ours):
        lowest = min(found[start]["value"] for found in peers)
        count += run["value"] > lowest + SAME * (run["first_value"] - min(lowest, run["value"]))
    return count


def cell(found: Sequence[Mapping[str, Any]]) -> str:
    """Seconds, evaluations, and how often the goal was reached where it was not always."""
    counted = [statistics.median(run[key] for run in found) for key in ("values", "gradients", "hessians")]
    reached = sum(run["reached"] for run in found)
    evaluations = f"{counted[0]:.0f}" if counted[0] == counted[1] else " / ".join(f"{c:.0f}" for c in counted if c)
    missing = "" if reached == len(found) else f", reached {reached} of {len(found)}"
    return f"{median_seconds(found):.2g} s ({evaluations}){missing}"


def complete(runs: Runs) -> list[Case]:
    """Problems that all solvers have runs of."""
    return [case for case in CASES if all(records(runs, case, solver) for solver in SOLVERS)]


def with_table(page: str, text: str) -> str:
    """The page with a table between its two marks."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}"


def table(runs: Runs) -> str:
    """A row per problem, and the geometric mean of the ratios."""
    lines: list[Sequence[str]] = [HEADER, ["---"] * len(HEADER)]
    cases = complete(runs)
    for case in cases:
        cells = [cell(records(runs, case, solver)) for solver in SOLVERS]
        ratio = speedup(runs, case)
        times = "no peer arrives" if ratio is None else f"{ratio:.2f}"
        lines.append([case.name, f"{case.shape[0]} x {case.shape[1]}", *cells, times])
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    mean = math.exp(statistics.fmean(math.log(ratio) for case in cases if (ratio := speedup(runs, case))))
    ends = sum(higher(runs, case) for case in cases), sum(len(records(runs, case, SOLVERS[0])) for case in cases)
    return (
        f"{text}\n\nGeometric mean where a peer arrives: {mean:.2f}. "
        f"`minimize` ended at a higher value than a peer from {ends[0]} of {ends[1]} starts."
    )
