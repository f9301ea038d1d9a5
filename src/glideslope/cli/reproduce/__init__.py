"""`glideslope reproduce`: the paper's experiments through Benchopt, their records, and one report."""

from glideslope.cli.reproduce.command import reproduce

__all__ = ["reproduce"]
