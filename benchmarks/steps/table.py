"""A report as tables for a terminal, and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.steps.growth import growth
from benchmarks.steps.measure import Report, Result
from benchmarks.steps.methods import LANDING


def as_json(report: Report) -> dict[str, Any]:
    """Environment, medians and quartiles of all methods, allocations and exponents, for json.dump."""
    return {
        "environment": report.environment.as_json(),
        "interrupted": report.interrupted,
        "left_out": report.left_out,
        "workloads": [result.as_json() for result in report.results],
        "growth": [asdict(one) for one in growth(report)],
    }


def show(report: Report, console: Console) -> None:
    """Print all tables."""
    console.print()
    for line in report.environment.lines():
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if report.interrupted:
        console.print("Interrupted: what follows is what was measured until then.", style="bold")
    for result in report.results:
        console.print(workload_table(result))
    if any(result.allocated for result in report.results):
        console.print(memory_table(report))
    if report.left_out:
        console.print(f"Left out, the time was up: {', '.join(report.left_out)}.", highlight=False, soft_wrap=True)
    exponents = growth(report)
    if exponents:
        table = titled("Growth of the cost, fitted by least squares to logarithms", "method", "cost ~", "over")
        for one in exponents:
            variable, _, rest = one.variable.partition(" ")
            sizes = ", ".join(map(str, one.sizes))
            table.add_row(one.method, f"{variable}^{one.exponent:.2f} {rest}", f"{variable} = {sizes}")
        console.print(table)


def workload_table(result: Result) -> Table:
    """Medians and quartiles in milliseconds, in units of the bare products and of LandingSGD."""
    rounds = f"{result.rounds} round{'' if result.rounds == 1 else 's'}"
    title = f"{result.workload.name}: one step, median of {rounds}"
    table = titled(title, "method", "median ms", "quartiles ms", f"/ {result.floor}", f"/ {LANDING}")
    for name, outcome in result.outcomes.items():
        if outcome.timing is None:
            table.add_row(name, "-", outcome.problem or "not measured", "", "", style="dim")
            continue
        timing = outcome.timing
        quartiles = f"{milliseconds(timing.lower)} .. {milliseconds(timing.upper)}"
        ratios = (times(result.ratio(name, other)) for other in (result.floor, LANDING))
        table.add_row(name, milliseconds(timing.median), quartiles, *ratios, style="bold" if name == LANDING else "")
    return table


def memory_table(report: Report) -> Table:
    """What the second and third step of LandingSGD allocate beside what they keep."""
    sizes = ("bytes of one n x p", "bytes of all")
    headers = ("workload", *sizes, "new bytes in step 2", "in step 3", "largest at once", "by")
    table = titled(f"Allocations of {LANDING}", *headers)
    for result in report.results:
        if result.allocated:
            second, third = result.allocated
            numbers = (result.matrix_bytes, result.all_bytes, second.total, third.total, second.largest)
            table.add_row(result.workload.name, *(f"{number:,}" for number in numbers), second.largest_by)
    return table


def titled(title: str, *columns: str) -> Table:
    """An empty table; its numbers are to the right."""
    table = Table(title=title, title_justify="left", title_style="bold", header_style="")
    for i, column in enumerate(columns):
        numeric = any(word in column for word in ("ms", "bytes", "/ ", "step 3", "largest"))
        table.add_column(column, justify="right" if i and numeric else "left", overflow="fold")
    return table


def milliseconds(seconds: float) -> str:
    """Four digits."""
    value = seconds * 1e3
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def times(ratio: float | None) -> str:
    """A ratio with three digits."""
    return "" if ratio is None else f"{ratio:.0f}" if ratio >= 100 else f"{ratio:.3g}"
