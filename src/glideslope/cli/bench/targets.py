"""The targets as data, and the verdict of a run on them; growth of cost as fitted exponents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from glideslope.cli.bench.methods import FOUR_PRODUCTS, GEOOPT, LANDING, POGO, THREE_PRODUCTS
from glideslope.cli.bench.peers import PER_KERNEL
from glideslope.cli.bench.workloads import SINGLE

if TYPE_CHECKING:
    from glideslope.cli.bench.measure import Report

NEWTON_SCHULZ = f"{LANDING} newton-schulz"
ADAMW = "torch AdamW"


@dataclass(frozen=True)
class Target:
    """On a workload, the time of a method in units of another's is to be at most or at least a number."""

    workload: str
    method: str
    to: str
    relation: str
    bound: float

    @property
    def methods(self) -> tuple[str, str]:
        """The methods it compares."""
        return self.method, self.to

    @property
    def sentence(self) -> str:
        """{method} / {other} <= 1.15."""
        sign = "<=" if self.relation == "at most" else ">="
        return f"{self.method} / {self.to} {sign} {self.bound:g}"

    def is_met(self, ratio: float) -> bool:
        """Whether a measured ratio meets it."""
        return ratio <= self.bound if self.relation == "at most" else ratio >= self.bound


@dataclass(frozen=True)
class Verdict:
    """A target's sentence, what was measured for it, and whether it is met; None where it was not measured."""

    workload: str
    sentence: str
    measured: str
    met: bool | None
    by_products_alone: float | None = None
    """What a step that cost nothing beside its matrix products would measure, where that is a ratio to a peer."""
    possible: bool = True
    """Whether such a step would meet it."""


def slower(workload: str, geoopt: float, pogo: float) -> list[Target]:
    """How many times slower than LandingSGD geoopt and pogo-torch are to be."""
    return [
        Target(workload, GEOOPT, LANDING, "at least", geoopt),
        Target(workload, POGO, LANDING, "at least", pogo),
    ]


LARGE = tuple((f"{n} x {p}", n == p) for n, p in SINGLE if p >= 100)
TARGETS: tuple[Target, ...] = (
    *(Target(name, LANDING, THREE_PRODUCTS if square else FOUR_PRODUCTS, "at most", 1.15) for name, square in LARGE),
    *(Target(name, NEWTON_SCHULZ, FOUR_PRODUCTS, "at most", 1.6) for name, _ in LARGE),
    *slower("5000 x 100", 2.3, 3.5),
    *slower("5000 x 200", 2.3, 3.5),
    *slower("5000 x 500", 1.35, 1.9),
    *slower("5000 x 1000", 1.35, 1.9),
    *slower("30000 x 50", 3, 3),
    *slower("1000 of 16 x 16", 20, 20),
    *slower("1000 of 32 x 32", 12, 12),
    Target("1000 of 16 x 16", LANDING, ADAMW, "at most", 1),
    Target("1000 of 32 x 32", LANDING, ADAMW, "at most", 1),
    *slower("218 of 768 x 16", 3, 3),
    *slower("batch of 1000 x 32 x 32", 4, 2),
    Target("ResNet18 kernels", GEOOPT, LANDING, "at least", 1.5),
    Target("ResNet18 kernels", PER_KERNEL, LANDING, "at least", 10),
)


def verdicts(report: Report, targets: Sequence[Target] = TARGETS) -> list[Verdict]:
    """The verdicts on the workloads a report has, those on allocations last."""
    found = []
    for target in targets:
        result = report.named(target.workload)
        if result is None:
            continue
        ratio = result.ratio(target.method, target.to)
        missing = next((name for name in target.methods if result.median(name) is None), "")
        outcome = result.outcomes.get(missing)
        why = f"{missing} {outcome.problem if outcome else 'not measured'}"
        measured = why if ratio is None else f"{ratio:.3g}"
        met = None if ratio is None else target.is_met(ratio)
        best = result.ratio(target.method, result.floor) if target.to == LANDING else None
        possible = best is None or target.is_met(best)
        found.append(Verdict(target.workload, target.sentence, measured, met, best, possible))
    for result in report.results:
        if result.workload.family == "single" and result.allocated:
            second = result.allocated[0]
            share = second.largest / result.matrix_bytes
            measured = f"{share:.2g} by {second.largest_by or 'nothing'}"
            sentence = f"{LANDING}, step 2: largest allocation / n x p < 1"
            found.append(Verdict(result.workload.name, sentence, measured, share < 1))
    return found


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
