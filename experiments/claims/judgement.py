"""A claim and the verdict on it: what the paper says, where, whether it holds in the records, and by which numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

HOLDS, DOES_NOT_HOLD, NOT_TESTED = "holds", "does not hold", "not tested at this scale"
TOO_SHORT = "not tested at this length"


@dataclass(frozen=True)
class Verdict:
    """One row of the table of claims."""

    claim: str
    where: str
    outcome: str
    evidence: str


class Part(NamedTuple):
    """What one study says of a claim."""

    holds: bool
    text: str
    too_short: bool = False
    """Whether longer runs, more seeds or more data might say something else."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, to be judged."""

    text: str
    where: str

    def judge(self, holds: bool, evidence: str) -> Verdict:
        """A verdict with its numbers."""
        return Verdict(self.text, self.where, HOLDS if holds else DOES_NOT_HOLD, evidence)

    def untested(self, reason: str) -> Verdict:
        """No verdict, and why."""
        return Verdict(self.text, self.where, NOT_TESTED, reason)

    def judge_all(self, parts: Sequence[Part], missing: str) -> Verdict:
        """Holds if every part does; untested without parts.

        Parts whose runs are too short neither refute a claim nor, alone, confirm it.
        """
        if not parts:
            return self.untested(missing)
        evidence = "; ".join(part.text for part in parts)
        telling = [part.holds for part in parts if not part.too_short]
        if not all(telling):
            return self.judge(False, evidence)
        if not telling or not all(part.holds for part in parts):
            return Verdict(self.text, self.where, TOO_SHORT, evidence)
        return self.judge(True, evidence)


def absent(records: Any, *methods: str) -> list[str]:
    """Methods of these that the records lack."""
    have = set(records[records["phase"] == "run"]["method"])
    return [name for name in methods if name not in have]
