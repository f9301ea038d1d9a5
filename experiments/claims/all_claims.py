"""The verdicts on all claims, in the paper's order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from experiments.claims import cnn, ica, pca, penalty
from experiments.claims.judgement import NOT_TESTED, Verdict

JUDGES: dict[str, Callable[[dict[str, Any]], list[Verdict]]] = {
    "penalty": penalty.verdicts,
    "pca": pca.verdicts,
    "ica": ica.verdicts,
    "cnn": cnn.verdicts,
}


def verdicts(studies: dict[str, Any]) -> list[Verdict]:
    """Verdicts from the records of studies, by name; on the claims of those experiments that have records."""
    found = []
    for experiment, judge in JUDGES.items():
        own = {name: records for name, records in studies.items() if records["experiment"].iloc[0] == experiment}
        if not own:
            continue
        judged = judge(own)
        found += [too_small(row) for row in judged] if experiment != "penalty" and all_smoke(own) else judged
    return found


def all_smoke(studies: dict[str, Any]) -> bool:
    """Whether all records are of the smallest scale."""
    return all((records["scale"] == "smoke").all() for records in studies.values())


def too_small(row: Verdict) -> Verdict:
    """The verdict withdrawn: sizes of a smoke test only show that everything runs."""
    return replace(row, outcome=NOT_TESTED, evidence=f"smoke sizes show nothing ({row.evidence})")
