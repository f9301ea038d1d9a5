"""Combinations that stand for a full product have every pair of its values."""

from itertools import combinations

import pytest
from combinations import covering


@pytest.mark.parametrize("sizes", [(2, 3), (4, 4, 6), (2, 2, 4, 8), (3, 3, 3, 3), (1, 5, 2)], ids=str)
def test_every_pair_of_values_appears(sizes):
    lists = [[f"{name}{i}" for i in range(size)] for name, size in zip("abcd", sizes, strict=False)]
    found = covering(*lists)
    assert len(set(found)) == len(found)
    for (i, first), (j, second) in combinations(enumerate(lists), 2):
        assert {(case[i], case[j]) for case in found} == {(a, b) for a in first for b in second}


def test_there_are_few_of_them():
    assert len(covering(range(4), range(4), range(6))) <= 26
    assert len(covering(range(3), range(3), range(3), range(3))) <= 12


def test_values_that_are_equal_or_cannot_be_hashed_are_allowed():
    assert covering([{}, {}], [[1]]) == [({}, [1]), ({}, [1])]
