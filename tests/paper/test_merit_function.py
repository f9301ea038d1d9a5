"""Section 2.2 of the paper: the claims on the merit function (16), at random points of the safe region."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from torch import Tensor
from torch.autograd.functional import hessian, jacobian

from glideslope.formulas.field import landing_field, riemannian_gradient
from glideslope.formulas.merit import gradient_free_merit, merit, merit_gradient
from glideslope.formulas.orthogonality import distance
from glideslope.formulas.penalty import penalty
from glideslope.theory import Constants, Theory, quadratic_constants

RADII = (0.1, 0.3, 0.5, 0.7)
ATTRACTIONS = (0.1, 1.0, 10.0)
REAL, COMPLEX = torch.float64, torch.complex128
NAMES = ("pca", "complex pca", "procrustes", "complex procrustes", "log cosh")

all_problems = pytest.mark.parametrize("name", NAMES)
real_problems = pytest.mark.parametrize("name", ["pca", "procrustes", "log cosh"])
all_radii = pytest.mark.parametrize("radius", RADII)


@dataclass
class Problem:
    """A function of batches of n x p matrices, its gradient, its Hessian along E at X, and its constants."""

    function: Callable[[Tensor], Tensor]
    gradient: Callable[[Tensor], Tensor]
    hessian: Callable[[Tensor, Tensor], Tensor]
    constants: Callable[[float], Constants]
    n: int
    p: int
    dtype: torch.dtype


def quadratic_problem(M: Tensor, linear: Tensor) -> Problem:
    def function(X: Tensor) -> Tensor:
        return (X.conj() * (M @ X / 2 + linear)).real.sum(dim=(-2, -1))

    def constants(radius: float) -> Constants:
        return quadratic_constants(M, linear, columns=linear.shape[1], safe_radius=radius)

    return Problem(function, lambda X: M @ X + linear, lambda _, E: M @ E, constants, *linear.shape, M.dtype)


def log_cosh_problem(A: Tensor, p: int) -> Problem:
    """f(X) = Σ log cosh(A X) / N; |tanh x| <= |x| and |tanh''| <= 4/(3√3) bound the derivatives."""
    N, n = A.shape
    smoothness = float(torch.linalg.matrix_norm(A, 2)) ** 2 / N

    def constants(radius: float) -> Constants:
        largest = math.sqrt(p * (1 + radius))
        return Constants(
            smoothness=smoothness,
            gradient_bound=smoothness * largest,
            symmetric_bound=smoothness * largest * math.sqrt(1 + radius),
            hessian_lipschitz=4 / (3 * math.sqrt(3)) * smoothness**1.5 * math.sqrt(N),
        )

    return Problem(
        lambda X: (A @ X).cosh().log().sum(dim=(-2, -1)) / N,
        lambda X: A.mT @ (A @ X).tanh() / N,
        lambda X, E: A.mT @ ((A @ E) / (A @ X).cosh().square()) / N,
        constants,
        n,
        p,
        A.dtype,
    )


def problem(name: str, generator: torch.Generator) -> Problem:
    dtype = COMPLEX if name.startswith("complex") else REAL
    n, p = (5, 3) if "procrustes" in name else (6, 2)
    A = torch.randn(8, n, dtype=dtype, generator=generator)
    if "pca" in name:
        return quadratic_problem(-A.mH @ A / 8, torch.zeros(n, p, dtype=dtype))
    if "procrustes" in name:
        target = torch.randn(8, p, dtype=dtype, generator=generator)
        return quadratic_problem(A.mH @ A / 8, -A.mH @ target / 8)
    return log_cosh_problem(A, p)


def points_at_distance(distances: Tensor, n: int, p: int, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Random X = Q (I + Δ)^{1/2} with ‖X^H X - I‖_F = distances; Δ has rank one in every second matrix."""
    count = len(distances)
    Q = torch.linalg.qr(torch.randn(count, n, p, dtype=dtype, generator=generator)).Q
    eigenvalues = torch.randn(count, p, dtype=REAL, generator=generator)
    eigenvalues[::2, 1:] = 0
    eigenvalues = eigenvalues * (distances / torch.linalg.vector_norm(eigenvalues, dim=-1)).unsqueeze(-1)
    basis = torch.linalg.qr(torch.randn(count, p, p, dtype=dtype, generator=generator)).Q
    return Q @ (basis * (1 + eigenvalues).sqrt().unsqueeze(-2)) @ basis.mH


def points_of_the_safe_region(case: Problem, radius: float, generator: torch.Generator) -> Tensor:
    """Points from the manifold to the boundary; critical points of f on the manifold are approached too."""
    distances = torch.linspace(0, radius, 60, dtype=REAL)
    X = points_at_distance(distances, case.n, case.p, case.dtype, generator)
    assert distance(X).max() == pytest.approx(radius)
    descended = X
    for _ in range(300):
        descended = descended - 0.1 * riemannian_gradient(descended, case.gradient(descended))
    points = torch.cat((X, descended))
    return points[distance(points) <= radius * (1 + 1e-12)]


def inner(left: Tensor, right: Tensor) -> Tensor:
    return (left.conj() * right).real.sum(dim=(-2, -1))


def sym(M: Tensor) -> Tensor:
    return (M + M.mH) / 2


def residual(X: Tensor) -> Tensor:
    return X.mH @ X - torch.eye(X.shape[-1], dtype=X.dtype)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(22)


@cache
def case_and_points(name: str, radius: float) -> tuple[Problem, Tensor]:
    """A problem and its points of the safe region, which do not depend on the attraction."""
    generator = torch.Generator().manual_seed(22)
    case = problem(name, generator)
    return case, points_of_the_safe_region(case, radius, generator)


@all_problems
@all_radii
@pytest.mark.parametrize("attraction", ATTRACTIONS)
def test_merit_function_bound_holds_with_the_papers_mu(name, radius, attraction):
    case, X = case_and_points(name, radius)
    theory = Theory(constants=case.constants(radius), attraction=attraction, safe_radius=radius)
    field = landing_field(X, case.gradient(X), attraction=attraction)
    ascent = inner(merit_gradient(case.function, X, mu=theory.mu), field)
    tangent = riemannian_gradient(X, case.gradient(X))
    floor = inner(tangent, tangent) / 2 + theory.nu * penalty(X)
    assert (ascent >= floor - 1e-12 * theory.mu).all()


@all_problems
@all_radii
@pytest.mark.parametrize("attraction", ATTRACTIONS)
def test_the_merit_gradient_and_the_field_make_the_acute_angle_of_rho(name, radius, attraction):
    case, X = case_and_points(name, radius)
    theory = Theory(constants=case.constants(radius), attraction=attraction, safe_radius=radius)
    field = landing_field(X, case.gradient(X), attraction=attraction)
    ascent = inner(merit_gradient(case.function, X, mu=theory.mu), field)
    assert (ascent >= theory.rho * inner(field, field) - 1e-12 * theory.mu).all()


@pytest.mark.parametrize("name", ["pca", "complex pca"])
def test_the_term_h_is_introduced_to_tame_f_in_the_normal_direction(name, generator):
    # Without h the same weight does not give the bound: f alone pulls off the manifold at first order.
    case, radius = problem(name, generator), 0.3
    X = points_of_the_safe_region(case, radius, generator)
    theory = Theory(constants=case.constants(radius), safe_radius=radius)
    field = landing_field(X, case.gradient(X), attraction=1.0)
    without_h = case.gradient(X) + theory.mu * X @ residual(X)
    tangent = riemannian_gradient(X, case.gradient(X))
    floor = inner(tangent, tangent) / 2 + theory.nu * penalty(X)
    assert (inner(without_h, field) < floor - 1e-6 * theory.mu).any()


@pytest.mark.parametrize("name", ["procrustes", "complex procrustes", "log cosh"])
def test_a_weight_far_below_the_papers_breaks_the_bound(name, generator):
    case, radius = problem(name, generator), 0.7
    X = points_of_the_safe_region(case, radius, generator)
    mu = Theory(constants=case.constants(radius), safe_radius=radius).mu / 1e4
    field = landing_field(X, case.gradient(X), attraction=1.0)
    tangent = riemannian_gradient(X, case.gradient(X))
    floor = inner(tangent, tangent) / 2 + mu * penalty(X)
    assert (inner(merit_gradient(case.function, X, mu=mu), field) < floor).any()


@all_problems
def test_on_the_manifold_the_gradient_of_h_is_minus_x_sym_xt_gradient(name, generator):
    case = problem(name, generator)
    X = points_at_distance(torch.zeros(20, dtype=REAL), case.n, case.p, case.dtype, generator)
    G = case.gradient(X)
    gradient_of_h = merit_gradient(case.function, X, mu=1.0) - G
    torch.testing.assert_close(gradient_of_h, -X @ sym(X.mH @ G), rtol=1e-12, atol=1e-12)


@all_problems
def test_on_the_manifold_the_gradient_of_the_merit_function_is_tangent(name, generator):
    case = problem(name, generator)
    X = points_at_distance(torch.zeros(20, dtype=REAL), case.n, case.p, case.dtype, generator)
    gradient = merit_gradient(case.function, X, mu=3.0)
    assert torch.linalg.matrix_norm(sym(X.mH @ gradient)).max() < 1e-13
    tangent = riemannian_gradient(X, case.gradient(X))
    assert (inner(gradient, tangent) > 0).all()


@all_problems
def test_computing_the_gradient_of_the_merit_function_has_four_terms(name, generator):
    case, mu = problem(name, generator), 2.5
    X = points_at_distance(torch.full((20,), 0.6, dtype=REAL), case.n, case.p, case.dtype, generator)
    G, delta = case.gradient(X), residual(X)
    adjoint = case.hessian(X, X @ delta) + G @ delta
    four_terms = G - adjoint / 2 - X @ sym(X.mH @ G) + mu * X @ delta
    torch.testing.assert_close(merit_gradient(case.function, X, mu=mu), four_terms, rtol=1e-12, atol=1e-12)


@real_problems
def test_jacobian_of_phi_is_the_hessian_along_grad_n_plus_the_gradient_times_the_residual(name, generator):
    case = problem(name, generator)
    X = points_at_distance(torch.tensor([0.6], dtype=REAL), case.n, case.p, case.dtype, generator)[0]
    delta = residual(X)
    derivative = jacobian(lambda Y: sym(case.gradient(Y).mT @ Y), X)
    adjoint = torch.einsum("abij,ab->ij", derivative, delta)
    matrix = hessian(case.function, X).reshape(X.numel(), X.numel())
    expected = (matrix @ (X @ delta).flatten()).reshape(X.shape) + case.gradient(X) @ delta
    torch.testing.assert_close(adjoint, expected, rtol=1e-12, atol=1e-12)


def largest_curvature(function: Callable[[Tensor], Tensor], X: Tensor) -> float:
    matrix = hessian(function, X).reshape(X.numel(), X.numel())
    return float(torch.linalg.eigvalsh(matrix).abs().max())


@all_radii
@pytest.mark.parametrize(("n", "p"), [(1, 1), (4, 1), (4, 2), (3, 3)])
def test_the_smoothness_of_n_is_upper_bounded_by_two_plus_three_epsilon(n, p, radius, generator):
    X = points_at_distance(torch.linspace(0.01, radius, 12, dtype=REAL), n, p, REAL, generator)
    assert max(largest_curvature(penalty, matrix) for matrix in X) <= (2 + 3 * radius) * (1 + 1e-12)


@all_radii
def test_the_bound_two_plus_three_epsilon_is_attained(radius):
    X = math.sqrt(1 + radius) * torch.eye(4, 1, dtype=REAL)
    constants = Constants(smoothness=1.0, gradient_bound=1.0, symmetric_bound=1.0)
    bound = Theory(constants=constants, safe_radius=radius).penalty_smoothness
    assert largest_curvature(penalty, X) == pytest.approx(bound)


@real_problems
@all_radii
def test_the_merit_function_is_smooth_with_l_g_and_f_plus_h_with_its_share(name, radius, generator):
    for _ in range(3):
        case = problem(name, generator)
        theory = Theory(constants=case.constants(radius), safe_radius=radius)
        X = points_at_distance(torch.linspace(0.01, radius, 4, dtype=REAL), case.n, case.p, REAL, generator)
        share = theory.merit_smoothness - theory.mu * theory.penalty_smoothness

        def whole(Y: Tensor, case: Problem = case, mu: float = theory.mu) -> Tensor:
            return merit(Y, case.function(Y), case.gradient(Y), mu=mu)

        def f_plus_h(Y: Tensor, case: Problem = case) -> Tensor:
            return merit(Y, case.function(Y), case.gradient(Y), mu=1.0) - penalty(Y)

        for matrix in X:
            assert largest_curvature(whole, matrix) <= theory.merit_smoothness
            assert largest_curvature(f_plus_h, matrix) <= share


@all_radii
def test_the_smoothness_bound_of_f_plus_h_is_less_than_twice_what_is_attained(radius):
    # f(x) = ½ |x|² on one column: f + h = |x|² - ½ |x|⁴, whose curvature along x is 2 - 6 |x|².
    M = torch.eye(2, dtype=REAL)
    theory = Theory(constants=quadratic_constants(M, columns=1, safe_radius=radius), safe_radius=radius)
    share = theory.merit_smoothness - theory.mu * theory.penalty_smoothness
    X = math.sqrt(1 + radius) * torch.eye(2, 1, dtype=REAL)

    def f_plus_h(Y: Tensor) -> Tensor:
        return merit(Y, (Y * Y).sum() / 2, Y, mu=1.0) - penalty(Y)

    curvature = largest_curvature(f_plus_h, X)
    assert curvature == pytest.approx(4 + 6 * radius)
    assert share == pytest.approx(6 + 6 * radius)


@all_problems
def test_the_gradient_free_merit_differs_by_the_square_of_the_distance(name, generator):
    case, mu = problem(name, generator), 2.0
    far = points_at_distance(torch.full((10,), 2e-2, dtype=REAL), case.n, case.p, case.dtype, generator)
    left, singular, right = torch.linalg.svd(far, full_matrices=False)
    near = (left * (1 + (singular.square() - 1) / 2).sqrt().unsqueeze(-2)) @ right
    torch.testing.assert_close(distance(near), distance(far) / 2)

    def errors(X: Tensor) -> Tensor:
        exact = merit(X, case.function(X), case.gradient(X), mu=mu)
        return (gradient_free_merit(case.function, X, mu=mu) - exact).abs()

    slopes = torch.log2(errors(far) / errors(near))
    assert (slopes - 2).abs().max() < 0.1
