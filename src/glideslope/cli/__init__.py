"""The `glideslope` command; the last layer, on top of all the others."""

from glideslope.cli.command import main

__all__ = ["main"]
