"""Claims of section 3.4: the penalty proposition."""

from __future__ import annotations

from typing import Any

from experiments.claims.judgement import Claim, Verdict
from experiments.penalty_figure import slope

INEXACT = Claim("The distance of the penalised minimiser to the solution is of the order of 1/λ.", "§ 3.4")
STIFF = Claim(
    "The conditioning at the minimiser grows like λ, and so do the steps of gradient descent.", "§ 3.4, fig. 2"
)
TOLERANCE = 0.1


def verdicts(studies: dict[str, Any]) -> list[Verdict]:
    """From the slopes in logarithmic scale over the largest λ."""
    if not studies:
        return [claim.untested("run `python -m experiments penalty`") for claim in (INEXACT, STIFF)]
    table = next(iter(studies.values()))
    error, conditioning, steps = (slope(table, column) for column in ("error", "conditioning", "steps"))
    return [
        INEXACT.judge(abs(error + 1) < TOLERANCE, f"slope {error:.3f} in log-log"),
        STIFF.judge(
            max(abs(conditioning - 1), abs(steps - 1)) < TOLERANCE,
            f"slopes {conditioning:.3f} of the conditioning and {steps:.3f} of the steps",
        ),
    ]
