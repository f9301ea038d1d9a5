"""`python -m benchmarks.steps`."""

from benchmarks.steps.command import main

main()
