"""All verdicts, in the paper's order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from glideslope.cli.reproduce.claims import ica, pca, penalty
from glideslope.cli.reproduce.claims.verdict import Verdict

JUDGES: dict[str, Callable[[dict[str, Any]], list[Verdict]]] = {
    "penalty": penalty.verdicts,
    "pca": pca.verdicts,
    "ica": ica.verdicts,
}


def verdicts(studies: dict[str, Any]) -> list[Verdict]:
    """Verdicts from the records of all studies, by name."""
    found = []
    for experiment, judge in JUDGES.items():
        own = {name: records for name, records in studies.items() if records["experiment"].iloc[0] == experiment}
        found += judge(own)
    return found
