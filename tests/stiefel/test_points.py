"""Random points against the moments of the Haar measure, projection against SciPy's polar decomposition."""

import literal
import numpy as np
import pytest
import scipy.linalg
import torch
from combinations import every_pair

from glideslope.stiefel import project, random_stiefel

TYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
HALF = (torch.bfloat16, torch.float16)
SHAPES = ((1, 1), (6, 1), (4, 4), (9, 3), (2, 3, 7, 4))

all_types = pytest.mark.parametrize("dtype", TYPES, ids=str)


def nearest(X):
    """Unitary factor of each matrix, by SciPy in double precision."""
    wide = X.to(torch.complex128 if X.is_complex() else torch.float64)
    flat = wide.reshape(-1, *X.shape[-2:])
    return torch.stack([torch.from_numpy(scipy.linalg.polar(M.numpy())[0]) for M in flat]).reshape(wide.shape)


@all_types
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)
def test_random_points_are_orthonormal(dtype, batch, generator):
    X = random_stiefel(7, 4, batch=batch, generator=generator, dtype=dtype)
    assert X.shape == (*batch, 7, 4)
    assert X.dtype == dtype
    assert literal.exact_distance(X).max() < 40 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_random_points_in_half_precision_are_float32_ones_rounded_once(dtype):
    X = random_stiefel(7, 4, generator=torch.Generator().manual_seed(5), dtype=dtype)
    wide = random_stiefel(7, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float32)
    assert torch.equal(X, wide.to(dtype))


@pytest.mark.parametrize(("n", "p"), [(1, 1), (3, 2), (3, 3)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_random_points_have_the_moments_of_the_haar_measure(n, p, dtype, generator):
    count = 20_000
    X = random_stiefel(n, p, batch=(count,), generator=generator, dtype=dtype)
    spread = 5 / np.sqrt(count)
    assert X.mean(dim=0).abs().max() < spread  # fails if the diagonal of R is not made positive
    second = (X @ X.mH).mean(dim=0)
    assert (second - p / n * torch.eye(n, dtype=dtype)).abs().max() < spread
    assert (X * X).mean(dim=0).sub(0 if dtype.is_complex else 1 / n).abs().max() < spread


def test_a_generator_keeps_the_global_random_state_and_decides_the_result():
    before = torch.get_rng_state()
    first = random_stiefel(5, 2, generator=torch.Generator().manual_seed(3))
    second = random_stiefel(5, 2, generator=torch.Generator().manual_seed(3))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_default_type_is_that_of_torch():
    torch.set_default_dtype(torch.float64)
    try:
        assert random_stiefel(3, 2).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(("n", "p"), [(2, 3), (2, 0), (2.0, 1)])
def test_impossible_shapes_are_refused(n, p):
    with pytest.raises(ValueError, match=f"1 <= p <= n; got n={n}, p={p}"):
        random_stiefel(n, p)


def test_integer_types_are_refused():
    with pytest.raises(ValueError, match=r"floating point or complex; got torch\.int64"):
        random_stiefel(3, 2, dtype=torch.int64)


@every_pair(dtype=TYPES, shape=SHAPES, distance=["far", "near"])
def test_projection_is_the_nearest_orthonormal_matrix_rounded_once(dtype, shape, distance, generator):
    X = literal.random_matrix(*shape, dtype=dtype, generator=generator)
    if distance == "near":
        Q = random_stiefel(*shape[-2:], batch=shape[:-2], dtype=dtype, generator=generator)
        X = Q + X * 0.1 / literal.norm(X)[..., None, None]
    before = X.clone()
    assert project(X).dtype == dtype
    assert torch.equal(X, before)
    assert (project(X) - nearest(X)).abs().max() <= 1.01 * torch.finfo(dtype).eps + 1e-13


@pytest.mark.parametrize("dtype", [*TYPES, *HALF], ids=str)
def test_projection_rounds_once(dtype, generator):
    X = literal.random_matrix(3, 7, 4, dtype=dtype, generator=generator)
    wide = X.to(torch.complex128 if dtype.is_complex else torch.float64)
    assert torch.equal(project(X), project(wide).to(dtype))


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_projection_of_a_matrix_that_lacks_rank_is_orthonormal_and_as_near_as_can_be(rank, dtype, generator):
    left = literal.random_matrix(6, rank, dtype=dtype, generator=generator)
    X = left @ literal.random_matrix(rank, 3, dtype=dtype, generator=generator)
    Y = project(X)
    assert literal.exact_distance(Y) < 1e-13
    nuclear_norm = torch.linalg.svdvals(X).sum()
    assert literal.inner(Y, X) == pytest.approx(nuclear_norm.item(), abs=1e-12)


def test_projection_of_a_batch_is_that_of_each_matrix(generator):
    Q = random_stiefel(6, 3, generator=generator, dtype=torch.float64)
    X = torch.stack((Q * 1.01, literal.random_matrix(6, 3, generator=generator), torch.zeros(6, 3).double()))
    assert torch.allclose(project(X)[:2], torch.stack([project(M) for M in X[:2]]), rtol=0, atol=1e-13)
    assert literal.exact_distance(project(X)).max() < 1e-13


def test_projection_keeps_what_is_orthonormal_already(generator):
    X = random_stiefel(20, 8, generator=generator, dtype=torch.float64)
    assert (project(X) - X).abs().max() < 1e-14


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_projection_refuses_what_is_not_finite(value):
    X = torch.eye(3)
    X[0, 0] = value
    with pytest.raises(ValueError, match="X must be finite"):
        project(X)


def test_projection_refuses_wide_matrices():
    with pytest.raises(ValueError, match="must be tall"):
        project(torch.ones(2, 3))
