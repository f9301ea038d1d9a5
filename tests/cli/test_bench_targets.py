"""What `glideslope bench steps` makes of its medians: fitted exponents, targets, and which are out of reach."""

import io

import pytest
import torch

pytest.importorskip("typer")

from rich.console import Console

from glideslope.cli.bench import table, targets, workloads
from glideslope.cli.bench.environment import Environment
from glideslope.cli.bench.measure import Outcome, Report, Result
from glideslope.cli.bench.methods import FOUR_PRODUCTS, LANDING, THREE_PRODUCTS
from glideslope.cli.bench.timing import Timing
from glideslope.cli.bench.workloads import single


def report_of(medians):
    """A report with the given medians: {workload: {method: seconds}}."""
    report = Report(Environment.now("cpu", torch.float32))
    for name, by_method in medians.items():
        known = [one for one in workloads.WORKLOADS if one.name == name]
        result = Result(known[0] if known else single(*map(int, name.split(" x "))))
        result.outcomes = {
            method: Outcome(Timing(second, second, second, 3, 1) if second else None, None if second else "skipped")
            for method, second in by_method.items()
        }
        report.results.append(result)
    return report


def test_a_power_law_is_recovered_by_the_fitted_exponents():
    assert targets.fitted_exponent([100, 200, 500], [3 * size**1.7 for size in (100, 200, 500)]) == pytest.approx(1.7)
    medians = {f"5000 x {p}": {LANDING: 1e-7 * p**2, "other": 1e-5 * p} for p in (100, 200, 500, 1000)}
    medians |= {f"{n} x 64": {LANDING: 1e-6 * n} for n in (1000, 3000, 10000)}
    found = {(one.method, one.variable): one.exponent for one in targets.growth(report_of(medians))}
    expected = {(LANDING, "p at n = 5000"): 2, ("other", "p at n = 5000"): 1, (LANDING, "n at p = 64"): 1}
    assert found == pytest.approx(expected)
    two_sizes = {f"5000 x {p}": {LANDING: p} for p in (100, 200)}
    assert targets.growth(report_of(two_sizes)) == []


def test_targets_are_judged_by_the_ratio_of_medians():
    medians = {
        "5000 x 100": {
            FOUR_PRODUCTS: 1.0,
            LANDING: 1.15,
            targets.NEWTON_SCHULZ: 1.7,
            targets.GEOOPT: 2.3 * 1.15 + 1e-9,
            targets.POGO: 0,
        },
        "1000 x 1000": {FOUR_PRODUCTS: 1.3, THREE_PRODUCTS: 1.0, LANDING: 1.2, targets.NEWTON_SCHULZ: 2.0},
    }
    found = {(one.workload, one.sentence): (one.measured, one.met) for one in targets.verdicts(report_of(medians))}
    assert found == {
        ("5000 x 100", "LandingSGD / four products <= 1.15"): ("1.15", True),
        ("5000 x 100", "LandingSGD newton-schulz / four products <= 1.6"): ("1.7", False),
        ("5000 x 100", f"{targets.GEOOPT} / LandingSGD >= 2.3"): ("2.3", True),
        ("5000 x 100", f"{targets.POGO} / LandingSGD >= 3.5"): (f"{targets.POGO} skipped", None),
        ("1000 x 1000", "LandingSGD / three products <= 1.15"): ("1.2", False),
        ("1000 x 1000", "LandingSGD newton-schulz / four products <= 1.6"): ("1.54", True),
    }


def test_a_target_that_the_products_alone_would_miss_is_said_to_be_out_of_reach():
    def judged(geoopt):
        medians = {"5000 x 100": {FOUR_PRODUCTS: 1.0, LANDING: 1.2, targets.GEOOPT: geoopt, targets.POGO: 9.0}}
        report = report_of(medians)
        (verdict,) = (one for one in targets.verdicts(report) if one.sentence.startswith(targets.GEOOPT))
        out = io.StringIO()
        table.show(report, Console(width=200, file=out))
        return verdict, out.getvalue()

    verdict, text = judged(2.2)
    assert (verdict.met, verdict.by_products_alone, verdict.possible) == (False, 2.2, False)
    assert table.OUT_OF_REACH in text
    assert "1 of those not met compare with a peer" in text
    verdict, text = judged(2.5)
    assert (verdict.met, verdict.by_products_alone, verdict.possible) == (False, 2.5, True)
    assert table.OUT_OF_REACH not in text
