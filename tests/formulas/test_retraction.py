"""Retractions against their literal n x n definitions, SciPy, geoopt and pymanopt."""

from __future__ import annotations

import geoopt
import numpy as np
import pymanopt
import pytest
import scipy.linalg
import torch
from combinations import every_pair
from torch import Tensor

from glideslope.formulas.orthogonality import distance
from glideslope.formulas.retraction import (
    RETRACTIONS,
    cayley_retraction,
    exponential_retraction,
    polar_retraction,
    qr_retraction,
    retract,
)

KINDS = ("qr", "polar", "cayley", "exponential")
TYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
SHAPES = ((1, 1), (6, 1), (4, 4), (9, 3), (5, 4), (2, 3, 7, 4))

all_kinds = pytest.mark.parametrize("kind", KINDS)
all_types = pytest.mark.parametrize("dtype", TYPES, ids=str)
all_shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20240117)


def point_and_tangent(
    shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator, norm: float = 1.0
) -> tuple[Tensor, Tensor]:
    """A random orthonormal X and a tangent Z whose norm is `norm` (zero where only Z = 0 is tangent)."""
    X = torch.linalg.qr(torch.randn(shape, dtype=dtype, generator=generator)).Q
    ambient = torch.randn(shape, dtype=dtype, generator=generator)
    C = X.mH @ ambient
    Z = ambient - X @ (C + C.mH) / 2
    length = torch.linalg.vector_norm(Z, dim=(-2, -1), keepdim=True)
    if shape[-2:] == (1, 1) and not dtype.is_complex:
        return X, torch.zeros_like(X)
    return X, norm * Z / length


def rounding(dtype: torch.dtype, factor: float = 100) -> float:
    return factor * torch.finfo(dtype).eps


def in_numpy(function, X: Tensor, Z: Tensor) -> Tensor:
    """Apply a function of two double precision NumPy matrices to every matrix of a batch."""
    wide = torch.complex128 if X.is_complex() else torch.float64
    pairs = zip(X.to(wide).reshape(-1, *X.shape[-2:]), Z.to(wide).reshape(-1, *X.shape[-2:]), strict=True)
    return torch.stack([torch.from_numpy(function(x.numpy(), z.numpy())) for x, z in pairs]).reshape(X.shape)


def assert_same(actual: Tensor, expected: Tensor, factor: float = 100) -> None:
    difference = torch.linalg.vector_norm(actual.to(expected.dtype) - expected)
    assert difference <= rounding(actual.dtype, factor) * max(1, expected.shape[-1])


def skew_operator(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """The n x n skew W with Z = W X: W = P Z X^H - X Z^H P, P = I - X X^H / 2."""
    P = np.eye(len(x)) - x @ x.conj().T / 2
    return P @ z @ x.conj().T - x @ z.conj().T @ P


def literal_qr(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Y R^{-1} with R the Cholesky factor of Y^H Y, whose diagonal is positive."""
    y = x + z
    return y @ np.linalg.inv(np.linalg.cholesky(y.conj().T @ y).conj().T)


def literal_polar(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Y (Y^H Y)^{-1/2}, eq. (7)."""
    y = x + z
    return y @ np.linalg.inv(scipy.linalg.sqrtm(y.conj().T @ y))


def literal_cayley(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """(I - W/2)^{-1} (I + W/2) X."""
    W = skew_operator(x, z)
    return np.linalg.inv(np.eye(len(x)) - W / 2) @ (np.eye(len(x)) + W / 2) @ x


def literal_exponential(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """[X X_perp] exp([[Omega, -K^H], [K, 0]]) [I; 0], eq. (6), with a complete X_perp."""
    n, p = x.shape
    perpendicular = scipy.linalg.null_space(x.conj().T)
    omega, K = x.conj().T @ z, perpendicular.conj().T @ z
    generator = np.block([[omega, -K.conj().T], [K, np.zeros((n - p, n - p))]])
    return np.hstack([x, perpendicular]) @ scipy.linalg.expm(generator)[:, :p]


LITERAL = dict(zip(KINDS, (literal_qr, literal_polar, literal_cayley, literal_exponential), strict=True))


@every_pair(kind=KINDS, dtype=TYPES, shape=SHAPES)
def test_a_retraction_equals_its_literal_definition(kind, dtype, shape, generator):
    X, Z = point_and_tangent(shape, dtype, generator, norm=1.5)
    assert_same(retract(X, Z, kind), in_numpy(LITERAL[kind], X, Z))


@every_pair(kind=KINDS, dtype=TYPES, shape=SHAPES)
def test_a_retraction_goes_in_the_direction_of_z_at_the_first_order(kind, dtype, shape, generator):
    length = 1e-1 * rounding(dtype, 1) ** 0.25
    X, Z = point_and_tangent(shape, dtype, generator, norm=length)
    error = torch.linalg.vector_norm(retract(X, Z, kind) - X - Z, dim=(-2, -1))
    assert (error <= 2 * length**2 + rounding(dtype, 20)).all()


@every_pair(kind=KINDS, dtype=TYPES, shape=SHAPES)
def test_a_retraction_of_zero_is_the_point_itself(kind, dtype, shape, generator):
    X, _ = point_and_tangent(shape, dtype, generator)
    assert_same(retract(X, torch.zeros_like(X), kind), X)


@every_pair(kind=KINDS, dtype=TYPES, shape=SHAPES)
def test_a_retraction_is_orthonormal_to_the_rounding_of_the_type(kind, dtype, shape, generator):
    X, Z = point_and_tangent(shape, dtype, generator, norm=3.0)
    Y = retract(X, Z, kind)
    assert Y.dtype == dtype
    assert Y.shape == X.shape
    assert (distance(Y) <= rounding(dtype)).all()


@every_pair(kind=KINDS, dtype=TYPES, norm=[0.0, 1.5])
def test_a_point_slightly_off_the_manifold_ends_on_it(kind, dtype, norm, generator):
    """Newton-Schulz squares the distance: 1e-3 becomes less than 1e-6."""
    X, Z = point_and_tangent((2, 3, 7, 4), dtype, generator, norm=norm)
    off = torch.randn(2, 3, 4, 4, dtype=dtype, generator=generator)
    X = X + X @ (off + off.mH) * (2.5e-4 / torch.linalg.vector_norm(off, dim=(-2, -1), keepdim=True))
    assert (distance(X) > 2e-4).all()
    assert (distance(retract(X, Z, kind)) <= 1e-6 + rounding(dtype)).all()


@pytest.mark.parametrize("kind", ["cayley", "exponential"])
def test_a_point_far_off_the_manifold_is_not_thrown_further(kind, generator):
    X, Z = point_and_tangent((9, 3), torch.float64, generator, norm=0.1)
    assert_same(retract(3 * X, torch.zeros_like(Z), kind), 3 * X)
    assert distance(retract(3 * X, 3 * Z, kind)) <= distance(3 * X) + 1e-9


@pytest.mark.parametrize("kind", ["cayley", "exponential"])
def test_the_derivative_at_an_orthonormal_point_is_finite(kind, generator):
    X, Z = (one.requires_grad_() for one in point_and_tangent((9, 3), torch.float64, generator))
    torch.autograd.gradcheck(lambda *both: retract(*both, kind), (X, Z))


@every_pair(kind=["qr", "polar"], dtype=TYPES, shape=SHAPES)
def test_a_huge_step_still_ends_on_the_manifold(kind, dtype, shape, generator):
    X, Z = point_and_tangent(shape, dtype, generator, norm=1e4)
    assert (distance(retract(X, Z, kind)) <= rounding(dtype)).all()


@every_pair(kind=["qr", "polar"], dtype=TYPES, shape=[(9, 3), (5, 4), (2, 3, 7, 4)])
def test_a_huge_step_in_one_direction_ends_on_the_manifold_though_x_plus_z_is_ill_conditioned(
    kind, dtype, shape, generator
):
    X, Z = point_and_tangent(shape, dtype, generator)
    column = (Z - X @ (X.mH @ Z))[..., :1]
    Z = 1e4 * column @ X[..., :1, :] / torch.linalg.matrix_norm(column)[..., None, None]
    assert (distance(retract(X, Z, kind)) <= rounding(dtype)).all()


@every_pair(kind=KINDS, rank=[0, 1], shape=[(9, 3), (5, 4), (4, 4)], dtype=[torch.float64, torch.complex128])
def test_a_direction_whose_normal_part_lacks_rank_is_followed_exactly(kind, rank, shape, dtype, generator):
    n, p = shape
    X, Z = point_and_tangent(shape, dtype, generator)
    column = torch.randn(n, rank, dtype=dtype, generator=generator)
    normal = column - X @ (X.mH @ column)
    Z = X @ (X.mH @ Z) + normal @ torch.randn(rank, p, dtype=dtype, generator=generator)
    assert_same(retract(X, Z, kind), in_numpy(LITERAL[kind], X, Z))


@all_shapes
@all_types
def test_the_qr_retraction_agrees_with_pymanopt_and_geoopt(shape, dtype, generator):
    X, Z = point_and_tangent(shape, dtype, generator, norm=1.5)
    manifold = pymanopt.manifolds.Stiefel(*shape[-2:], retraction="qr")
    assert_same(qr_retraction(X, Z), in_numpy(manifold.retraction, X, Z))
    if not dtype.is_complex:
        assert_same(qr_retraction(X, Z), geoopt.EuclideanStiefel().retr(X, Z))


@all_shapes
@all_types
def test_the_polar_retraction_agrees_with_pymanopt_and_scipy(shape, dtype, generator):
    X, Z = point_and_tangent(shape, dtype, generator, norm=1.5)
    manifold = pymanopt.manifolds.Stiefel(*shape[-2:], retraction="polar")
    assert_same(polar_retraction(X, Z), in_numpy(manifold.retraction, X, Z))
    assert_same(polar_retraction(X, Z), in_numpy(lambda x, z: scipy.linalg.polar(x + z)[0], X, Z))


@all_shapes
def test_the_cayley_retraction_agrees_with_geoopt_given_p_z(shape, generator):
    # geoopt takes W = U X^T - X U^T, the paper's W for U = P Z.
    X, Z = point_and_tangent(shape, torch.float64, generator, norm=1.5)
    PZ = Z - X @ (X.mT @ Z) / 2
    assert_same(cayley_retraction(X, Z), geoopt.CanonicalStiefel().retr(X, PZ))


@all_shapes
@all_types
def test_the_exponential_retraction_is_the_matrix_exponential_of_w(shape, dtype, generator):
    X, Z = point_and_tangent(shape, dtype, generator, norm=1.5)
    expected = in_numpy(lambda x, z: scipy.linalg.expm(skew_operator(x, z)) @ x, X, Z)
    assert_same(exponential_retraction(X, Z), expected)


@pytest.mark.parametrize("shape", [(9, 3), (5, 4), (6, 1), (2, 3, 7, 4), (4, 4)], ids=str)
def test_the_exponential_agrees_with_geoopt_and_pymanopt_where_the_metrics_agree(shape, generator):
    # Their geodesics are those of the Euclidean metric: the same if X^T Z = 0, and if n = p.
    X, Z = point_and_tangent(shape, torch.float64, generator, norm=1.5)
    if shape[-2] > shape[-1]:
        Z = Z - X @ (X.mT @ Z)
    assert_same(exponential_retraction(X, Z), geoopt.EuclideanStiefel().expmap(X, Z))
    assert_same(exponential_retraction(X, Z), in_numpy(pymanopt.manifolds.Stiefel(*shape[-2:]).exp, X, Z))


def test_the_exponential_of_a_direction_that_is_not_quite_tangent_is_still_orthonormal(generator):
    X, Z = point_and_tangent((9, 3), torch.float64, generator, norm=1.5)
    assert distance(exponential_retraction(X, Z + 1e-3 * X)) <= rounding(torch.float64)


def test_the_exponential_follows_a_geodesic_of_constant_speed(generator):
    X, Z = point_and_tangent((9, 3), torch.float64, generator, norm=2.0)
    W = torch.from_numpy(skew_operator(X.numpy(), Z.numpy()))
    halfway = exponential_retraction(X, Z / 2)
    assert_same(exponential_retraction(halfway, W @ halfway / 2), exponential_retraction(X, Z))


@all_kinds
@all_types
def test_an_empty_batch_stays_empty(kind, dtype):
    X = torch.empty(2, 0, 5, 3, dtype=dtype)
    assert retract(X, X, kind).shape == (2, 0, 5, 3)


@all_kinds
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_computed_in_float32_and_rounded_once(kind, dtype, generator):
    X, Z = (tensor.to(dtype) for tensor in point_and_tangent((9, 3), torch.float32, generator))
    Y = retract(X, Z, kind)
    assert Y.dtype == dtype
    assert torch.equal(Y, retract(X.float(), Z.float(), kind).to(dtype))


@all_types
def test_the_qr_retraction_of_a_zero_column_is_finite(dtype):
    X = torch.eye(4, 2, dtype=dtype)
    Z = torch.zeros_like(X)
    Z[0, 0] = -1
    Y = qr_retraction(X, Z)
    assert (distance(Y) <= rounding(dtype)).all()


@all_types
def test_any_qr_decomposition_a_backend_may_choose_gives_the_same_retraction(dtype, generator, monkeypatch):
    X, Z = point_and_tangent((9, 3), dtype, generator, norm=1.5)
    expected = qr_retraction(X, Z)
    Q, R = torch.linalg.qr(X + Z)
    phase = torch.sgn(torch.randn(3, dtype=dtype, generator=generator))
    monkeypatch.setattr(torch.linalg, "qr", lambda _: (Q * phase, phase.conj().unsqueeze(-1) * R))
    assert_same(qr_retraction(X, Z), expected)


@all_kinds
def test_a_retraction_leaves_its_arguments_alone(kind, generator):
    X, Z = point_and_tangent((5, 4), torch.float64, generator)
    before = X.clone(), Z.clone()
    retract(X, Z, kind)
    assert torch.equal(X, before[0])
    assert torch.equal(Z, before[1])


@all_kinds
def test_a_retraction_never_waits_for_a_value(kind):
    X = torch.empty(2, 7, 4, device="meta")
    assert retract(X, X, kind).shape == X.shape


def test_the_table_of_retractions_names_all_four_and_qr_is_the_default(generator):
    X, Z = point_and_tangent((5, 4), torch.float64, generator)
    assert tuple(RETRACTIONS) == KINDS
    assert torch.equal(retract(X, Z), qr_retraction(X, Z))


def test_an_unknown_kind_is_refused_with_the_accepted_ones():
    X = torch.eye(3, 2)
    with pytest.raises(ValueError, match=r"kind must be one of 'qr', 'polar', .* got 'svd'"):
        retract(X, X, "svd")


@all_kinds
def test_a_direction_of_another_shape_is_refused(kind):
    with pytest.raises(ValueError, match=r"Z must have the shape of X, \(3, 2\); got \(3, 1\)"):
        retract(torch.eye(3, 2), torch.ones(3, 1), kind)
