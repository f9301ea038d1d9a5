"""The paper's claims, each with a verdict computed from the records."""

from experiments.claims.all_claims import verdicts
from experiments.claims.judgement import DOES_NOT_HOLD, HOLDS, NOT_TESTED, TOO_SHORT, Verdict

__all__ = ["DOES_NOT_HOLD", "HOLDS", "NOT_TESTED", "TOO_SHORT", "Verdict", "verdicts"]
