"""`glideslope bench`: what one step costs, of ours, of torch's and of the peers that are installed."""

from glideslope.cli.bench.command import steps

__all__ = ["steps"]
