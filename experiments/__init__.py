"""The paper's experiments through Benchopt, their records, and one report: `python -m experiments` in a clone."""
