"""A claim and the verdict on it: what the paper says, where, whether it holds in the records, and by which numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

HOLDS, DOES_NOT_HOLD, NOT_TESTED = "holds", "does not hold", "not tested at this scale"


@dataclass(frozen=True)
class Verdict:
    """One row of the table of claims."""

    claim: str
    where: str
    outcome: str
    evidence: str


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

    def judge_all(self, parts: list[tuple[bool, str]], missing: str) -> Verdict:
        """Holds if every part does; untested without parts."""
        if not parts:
            return self.untested(missing)
        return self.judge(all(holds for holds, _ in parts), "; ".join(text for _, text in parts))


def absent(records: Any, *methods: str) -> list[str]:
    """Methods of these that the records lack."""
    have = set(records[records["phase"] == "run"]["method"])
    return [name for name in methods if name not in have]
