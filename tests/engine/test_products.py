"""Memory that steps reuse, and products by blocks."""

import pytest
import torch
from combinations import covering
from counting import ProductCounter
from literal import random_matrix

import glideslope as gs
from glideslope.engine.production import take_step
from glideslope.engine.products import (
    GRAM_BLOCK,
    GRAM_STRIPS,
    LEAST_ROWS,
    LEAST_WORK,
    ROWS_PER_COLUMN,
    Workspace,
    cross_product,
    gram_product,
)
from glideslope.engine.rule import StepRule


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("p", [1, GRAM_BLOCK, GRAM_BLOCK + 1, GRAM_STRIPS, 2 * GRAM_STRIPS + 5])
def test_a_gram_matrix_by_blocks_is_the_product_and_hermitian(p, dtype, generator):
    X = random_matrix(p + 7, p, dtype=dtype, generator=generator)
    S = gram_product(X, out=torch.empty(p, p, dtype=dtype))
    torch.testing.assert_close(S, X.mH @ X)
    if p > GRAM_BLOCK:
        half = p // 2
        assert torch.equal(S[half:, :half], S[:half, half:].mH)
    torch.testing.assert_close(gram_product(X, out=None), X.mH @ X)
    wide = gram_product(X.mH, out=torch.empty(p + 7, p + 7, dtype=dtype))
    torch.testing.assert_close(wide, X @ X.mH)


@pytest.fixture
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("threads", "dtype", "rest", "p"),
    covering(
        [1, 2, 3],
        [torch.float32, torch.float64, torch.complex128],
        [0, 1],
        [8, 50, 3 * LEAST_ROWS // ROWS_PER_COLUMN // 2],
    ),
    indirect=["threads"],
)
def test_a_tall_product_by_blocks_of_rows_is_the_product(p, rest, dtype, threads, generator):
    blocks = 2 * threads
    n = blocks * max(LEAST_ROWS, ROWS_PER_COLUMN * p) + rest
    X, Y = (random_matrix(n, p, dtype=torch.float64, generator=generator).to(dtype) for _ in range(2))
    expected = X.mH @ Y
    memory = torch.full((p + 2, p + 2), torch.nan, dtype=dtype)
    by_columns = X.mT.contiguous().mT
    for left in (X, by_columns, X.repeat(1, 2)[:, :p]):
        out = memory[1:-1, 1:-1]
        with ProductCounter() as counter:
            assert cross_product(left, Y, out=out) is out
        torch.testing.assert_close(out, expected, rtol=0, atol=8 * n * torch.finfo(dtype).eps)
        split = threads > 1 and not dtype.is_complex and n * p * p >= LEAST_WORK
        assert counter.calls == (1 + (rest > 0) if split else 1)
        assert counter.multiplications == n * p * p
    assert int(memory.isnan().sum()) == 4 * (p + 1), "nothing is written around it"
    with ProductCounter() as counter:
        cross_product(X[: n - rest - 1], Y[: n - rest - 1], out=out)
    assert counter.calls == 1, "a block of rows would be too small"


@pytest.mark.parametrize("threads", [2], indirect=True)
def test_many_matrices_are_not_taken_for_the_rows_of_one(threads, generator):
    X, Y = (random_matrix(4000, 30, 8, dtype=torch.float32, generator=generator) for _ in range(2))
    assert X.numel() * 8 >= LEAST_WORK
    assert len(X) // (2 * threads) >= max(LEAST_ROWS, ROWS_PER_COLUMN * 30)
    torch.testing.assert_close(cross_product(X, Y, out=torch.empty(4000, 8, 8)), X.mT @ Y)


def test_memory_is_made_once_per_shape_type_and_name():
    workspace, X = Workspace(), torch.zeros(3, 5, 2)
    first = workspace.memory("field", X, 5, 2)
    assert first.shape == (3, 5, 2)
    assert workspace.memory("field", X, 5, 2) is first
    assert workspace.memory("gram", X, 2, 2) is not first
    assert workspace.memory("field", X.double(), 5, 2).dtype == torch.float64
    assert workspace.memory("field", X[0], 5, 2).shape == (5, 2)


def test_a_result_is_not_overwritten_by_the_next_step(generator):
    """Without `out` the result is the caller's, whatever the workspace is used for afterwards."""
    workspace, X = Workspace(), gs.random_stiefel(9, 4, generator=generator)
    for normal_step in ("landing", "newton-schulz", "polar"):
        rule = StepRule(normal_step=normal_step)
        one = take_step(X, torch.ones(9, 4), 0.1, rule, workspace=workspace).X
        kept = one.clone()
        take_step(X, -torch.ones(9, 4), 0.1, rule, workspace=workspace)
        assert torch.equal(one, kept)
