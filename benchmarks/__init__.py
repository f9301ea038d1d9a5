"""Comparisons with peers; each is run from the root of a clone and has a recorded result in results/."""
