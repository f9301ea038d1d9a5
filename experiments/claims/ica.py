"""Claims of section 4.2 on ICA, judged on the synthetic data."""

from __future__ import annotations

import math
from typing import Any

from experiments.claims.judgement import Claim, Part, Verdict, absent
from experiments.records import last, seconds_per_epoch, seconds_to_reach

PLATEAU = Claim("SGD converges fast, then stays on a plateau; landing SAGA overcomes it.", "§ 4.2, fig. 4")
FASTER_THAN_FULL = Claim("Landing SAGA is much faster than the full-batch algorithm.", "§ 4.2, fig. 4")
LOW = Claim("The distance of landing SAGA to the manifold reaches a very low value.", "§ 4.2, fig. 4")
RETRACTIONS = Claim("Riemannian methods are much slower than landing because of the retractions.", "§ 4.2, fig. 4")
BELOW = 0.1  # SAGA overcomes the plateau when its loss is under this share of SGD's
VERY_LOW = 1e-12
MUCH = 1.5  # times


def verdicts(studies: dict[str, Any]) -> list[Verdict]:
    """One verdict per claim over all synthetic data."""
    rows = [records for name, records in studies.items() if not name.endswith("-eeg")]
    return [plateau(rows), faster_than_full(rows), low(rows), retractions(rows)]


def model(records: Any) -> str:
    """Which data, in short."""
    return str(records["study"].iloc[0]).removeprefix("ica-")


def end(records: Any, method: str, column: str) -> float:
    """Median over seeds at the end."""
    ends = last(records)
    return float(ends[ends["method"] == method][column].median())


def plateau(rows: list[Any]) -> Verdict:
    """Median losses at the end."""
    parts = []
    for records in rows:
        if not absent(records, "landing-saga", "landing-sgd"):
            saga, sgd = (end(records, name, "value") for name in ("landing-saga", "landing-sgd"))
            parts.append(Part(saga < BELOW * sgd, f"{model(records)}: loss {saga:.1e} against {sgd:.1e}"))
    return PLATEAU.judge_all(parts, "needs runs of landing-saga and landing-sgd")


def faster_than_full(rows: list[Any]) -> Verdict:
    """Seconds to the loss at which SGD ends."""
    parts = []
    for records in rows:
        if not absent(records, "landing-saga", "landing-gd", "landing-sgd"):
            target = end(records, "landing-sgd", "value")
            saga, full = (seconds_to_reach(records, name, "value", target) for name in ("landing-saga", "landing-gd"))
            text = f"{model(records)}, loss {target:.1e}: {saga:.3g} s against {full:.3g} s"
            parts.append(Part(saga * MUCH < full, text.replace("inf s", "never")))
    return FASTER_THAN_FULL.judge_all(parts, "needs runs of landing-saga, landing-sgd and landing-gd")


def low(rows: list[Any]) -> Verdict:
    """N(X) at the end, in the worst seed."""
    parts = []
    for records in rows:
        if not absent(records, "landing-saga"):
            ends = last(records)
            worst = float(ends[ends["method"] == "landing-saga"]["penalty"].max())
            parts.append(Part(worst <= VERY_LOW, f"{model(records)}: N(X) at most {worst:.1e}"))
    return LOW.judge_all(parts, "needs runs of landing-saga")


def retractions(rows: list[Any]) -> Verdict:
    """Seconds per epoch of SGD with each retraction against landing SGD."""
    parts = []
    for records in rows:
        for kind in ("qr", "exponential"):
            name = f"riemannian-sgd-{kind}"
            if not absent(records, "landing-sgd", name):
                ratio = seconds_per_epoch(records, name) / seconds_per_epoch(records, "landing-sgd")
                if math.isfinite(ratio):
                    parts.append(Part(ratio >= MUCH, f"{model(records)}, {kind}: {ratio:.2g} times as long per epoch"))
    return RETRACTIONS.judge_all(parts, "needs runs of landing-sgd and a Riemannian SGD")
