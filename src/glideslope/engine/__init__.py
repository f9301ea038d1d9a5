"""One landing step in the fewest products, safe in floating point; `glideslope.formulas` says what it computes."""

from glideslope.engine.production import landing_step
from glideslope.engine.rule import PAPER_OPTIONS

__all__ = ["PAPER_OPTIONS", "landing_step"]
