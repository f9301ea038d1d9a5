"""Growth of cost with the sizes of a matrix, as fitted exponents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.steps.measure import Report


@dataclass(frozen=True)
class Growth:
    """Cost of a method ~ size^exponent, fitted by least squares to logarithms over `sizes`."""

    method: str
    variable: str
    sizes: tuple[int, ...]
    exponent: float


def fitted_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Slope of log(seconds) over log(size), by least squares."""
    x, y = [math.log(size) for size in sizes], [math.log(second) for second in seconds]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - mean_x) ** 2 for a in x)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread


def growth(report: Report, fewest: int = 3) -> list[Growth]:
    """Exponents in p at the n, and in n at the p, that have at least `fewest` single matrices of different sizes."""
    shapes = {
        result.workload.shapes[0]: result
        for result in report.results
        if result.workload.family in ("single", "growth") and not result.workload.square
    }
    found = []
    for axis, variable in ((1, "p"), (0, "n")):
        for fixed in dict.fromkeys(shape[1 - axis] for shape in shapes):
            along = sorted(shape for shape in shapes if shape[1 - axis] == fixed)
            if len(along) < fewest:
                continue
            label = f"{variable} at {'np'[1 - axis]} = {fixed}"
            for method in dict.fromkeys(name for shape in along for name in shapes[shape].outcomes):
                medians = {shape[axis]: shapes[shape].median(method) for shape in along}
                known = {size: median for size, median in medians.items() if median is not None}
                if len(known) >= fewest:
                    exponent = fitted_exponent(list(known), list(known.values()))
                    found.append(Growth(method, label, tuple(known), exponent))
    return found
