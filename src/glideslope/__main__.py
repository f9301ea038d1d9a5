"""`python -m glideslope`, the same as the `glideslope` command."""

from glideslope.cli import main

main()
