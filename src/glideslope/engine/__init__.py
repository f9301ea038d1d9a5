"""One landing step in the fewest products, safe in floating point; `glideslope.formulas` says what it computes."""

from glideslope.engine.production import landing_step

__all__ = ["landing_step"]
