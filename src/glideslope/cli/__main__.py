"""`python -m glideslope.cli`, the same as the `glideslope` command."""

from glideslope.cli import main

main()
