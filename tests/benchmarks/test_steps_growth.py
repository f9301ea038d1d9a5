"""Growth of cost: exponents fitted to the medians of a report."""

import pytest
import torch

pytest.importorskip("typer")

from benchmarks.environment import Environment
from benchmarks.steps.growth import fitted_exponent, growth
from benchmarks.steps.measure import Outcome, Report, Result
from benchmarks.steps.methods import LANDING
from benchmarks.steps.timing import Timing
from benchmarks.steps.workloads import WORKLOADS, single


def report_of(medians):
    """A report with the given medians: {workload: {method: seconds}}."""
    report = Report(Environment.now("steps", "cpu", torch.float32))
    for name, by_method in medians.items():
        known = [one for one in WORKLOADS if one.name == name]
        result = Result(known[0] if known else single(*map(int, name.split(" x "))))
        result.outcomes = {
            method: Outcome(Timing(second, second, second, 3, 1) if second else None, None if second else "skipped")
            for method, second in by_method.items()
        }
        report.results.append(result)
    return report


def test_a_power_law_is_recovered_by_the_fitted_exponents():
    assert fitted_exponent([100, 200, 500], [3 * size**1.7 for size in (100, 200, 500)]) == pytest.approx(1.7)
    medians = {f"5000 x {p}": {LANDING: 1e-7 * p**2, "other": 1e-5 * p} for p in (100, 200, 500, 1000)}
    medians |= {f"{n} x 64": {LANDING: 1e-6 * n} for n in (1000, 3000, 10000)}
    found = {(one.method, one.variable): one.exponent for one in growth(report_of(medians))}
    expected = {(LANDING, "p at n = 5000"): 2, ("other", "p at n = 5000"): 1, (LANDING, "n at p = 64"): 1}
    assert found == pytest.approx(expected)
    two_sizes = {f"5000 x {p}": {LANDING: p} for p in (100, 200)}
    assert growth(report_of(two_sizes)) == []
