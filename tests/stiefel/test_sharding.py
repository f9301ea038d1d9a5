"""What a part of one dimension is to the matrices of a parameter."""

import pytest

from glideslope.stiefel.sharding import meaning_of_shard


@pytest.mark.parametrize(
    ("view", "shape", "meanings"),  # one for each dimension
    [
        ("matrix", (8, 3), ["rows", None]),
        ("matrix", (3, 8), [None, "rows"]),
        ("matrix", (5, 8, 3), ["batch", "rows", None]),
        ("matrix", (4, 5, 8, 3), ["batch", None, "rows", None]),
        ("matrix", (3, 5, 8, 3), [None, None, "rows", None]),  # three do not part in two
        ("conv", (12, 3, 2), ["rows", None, None]),
        ("conv", (3, 8, 2), [None, "rows", "rows"]),
        ("split:2", (8, 3), ["batch", None]),
        ("split:3", (9, 2), [None, None]),
    ],
)
def test_a_part_of_a_dimension_is_rows_or_whole_matrices_or_neither(view, shape, meanings):
    assert [meaning_of_shard(shape, view, dim, 2) for dim in range(len(shape))] == meanings
