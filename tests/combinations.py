"""Few combinations of parameters in place of their full product."""

from itertools import combinations, product

import pytest


def covering(*lists):
    """Tuples with one value of each list, few of them, in which every pair of values of two lists appears.

    Chosen greedily, so always the same: next comes the tuple with the most pairs that are still missing.
    """
    pairs_of = {
        chosen: set(combinations(enumerate(chosen), 2)) for chosen in product(*(range(len(values)) for values in lists))
    }
    missing = set().union(*pairs_of.values())
    found = []
    while missing:
        best = max(pairs_of, key=lambda chosen: len(pairs_of[chosen] & missing))
        missing -= pairs_of.pop(best)
        found.append(tuple(values[index] for values, index in zip(lists, best, strict=True)))
    return found


def every_pair(**lists):
    """Parametrizes a test by the names given, such that every pair of values of two of them is tested."""
    cases = covering(*lists.values())
    return pytest.mark.parametrize(tuple(lists), cases, ids=["-".join(map(str, case)) for case in cases])
