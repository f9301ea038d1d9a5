"""The paper's claims, each with a verdict computed from the records."""

from glideslope.cli.reproduce.claims.verdict import DOES_NOT_HOLD, HOLDS, NOT_TESTED, Verdict
from glideslope.cli.reproduce.claims.verdicts import verdicts

__all__ = ["DOES_NOT_HOLD", "HOLDS", "NOT_TESTED", "Verdict", "verdicts"]
