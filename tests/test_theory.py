"""The constants of the propositions: hand-worked numbers, sampled suprema, the inequalities of the proofs."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from glideslope.formulas.field import riemannian_gradient
from glideslope.formulas.orthogonality import distance
from glideslope.formulas.safeguard import safeguard_lower_bound
from glideslope.theory import Constants, Theory, quadratic_constants

RADII = (0.1, 0.3, 0.5, 0.7)
# From tiny to large gradients, attractions and regions: every bound is the smallest somewhere.
GRID = [
    Theory(
        constants=Constants(
            smoothness=smoothness, gradient_bound=gradient_bound, symmetric_bound=0.02, hessian_lipschitz=3.0
        ),
        attraction=attraction,
        safe_radius=radius,
    )
    for smoothness in (0.0, 0.2, 4.0)
    for gradient_bound in (0.01, 20.0)
    for attraction in (0.1, 1.0, 10.0)
    for radius in (0.01, *RADII)
]


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(2024)


@pytest.fixture
def worked() -> Theory:
    """L = 2, L' = 3, s = 5, L_3 = 7, λ = 4, ε = ½."""
    constants = Constants(smoothness=2.0, gradient_bound=3.0, symmetric_bound=5.0, hessian_lipschitz=7.0)
    return Theory(constants=constants, attraction=4.0, safe_radius=0.5)


def points_of_the_safe_region(
    count: int, n: int, p: int, radius: float, dtype: torch.dtype, generator: torch.Generator
) -> Tensor:
    """Random X = Q (I + Δ)^{1/2} with ‖Δ‖_F = ε and Δ of rank one in every second matrix."""
    Q = torch.linalg.qr(torch.randn(count, n, p, dtype=dtype, generator=generator)).Q
    eigenvalues = torch.randn(count, p, dtype=torch.float64, generator=generator)
    eigenvalues[::2, 1:] = 0
    eigenvalues = eigenvalues * radius / torch.linalg.vector_norm(eigenvalues, dim=-1, keepdim=True)
    basis = torch.linalg.qr(torch.randn(count, p, p, dtype=dtype, generator=generator)).Q
    return Q @ (basis * (1 + eigenvalues).sqrt().unsqueeze(-2)) @ basis.mH


def quadratic(n: int, p: int, dtype: torch.dtype, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    M = torch.randn(n, n, dtype=dtype, generator=generator)
    return (M + M.mH) / 2, torch.randn(n, p, dtype=dtype, generator=generator)


def test_mu_of_the_merit_function_bound_worked_by_hand(worked):
    # 2/(3-2) (2·½ + 3·5 + 3²·(9/4)/(4·½)) = 2 (1 + 15 + 10.125)
    assert worked.mu == pytest.approx(52.25, rel=1e-15)


def test_mu_takes_the_larger_of_smoothness_and_gradient_bound():
    constants = Constants(smoothness=6.0, gradient_bound=3.0, symmetric_bound=0.0)
    # 2/(3-2) (6·½ + 6²·(9/4)/(1·½)) = 2 (3 + 162)
    assert Theory(constants=constants, attraction=1.0, safe_radius=0.5).mu == pytest.approx(330)


def test_nu_is_the_attraction_times_mu(worked):
    assert worked.nu == pytest.approx(209, rel=1e-15)


def test_rho_is_one_half_or_nu_over_four_lambda_squared_one_plus_epsilon(worked):
    assert worked.rho == 0.5
    constants = Constants(smoothness=0.25, gradient_bound=0.25, symmetric_bound=0.125)
    weak = Theory(constants=constants, attraction=4.0, safe_radius=0.5)
    # μ = 2 (0.125 + 0.375 + (1/16)(9/4)/2) = 1.140625 and ρ = 4μ/(4·16·1.5) = μ/24
    assert weak.rho == pytest.approx(1.140625 / 24)


def test_the_smoothness_of_the_merit_function_worked_by_hand(worked):
    root = math.sqrt(1.5)
    on_f_and_h = 2 + 0.5 * 2 + 0.5 * 0.5 * root * 7 + 2 * root * (3 + root * 2) + 5
    assert worked.penalty_smoothness == 3.5
    assert worked.merit_smoothness == pytest.approx(on_f_and_h + 52.25 * 3.5, rel=1e-14)


def test_a_quadratic_has_no_hessian_term():
    constants = Constants(smoothness=2.0, gradient_bound=3.0, symmetric_bound=5.0)
    assert constants.hessian_lipschitz == 0
    theory = Theory(constants=constants, attraction=4.0, safe_radius=0.5)
    assert theory.merit_smoothness == pytest.approx(9 + 6 * math.sqrt(1.5) + 5 + 52.25 * 3.5)


def test_the_gradient_descent_step_is_the_smallest_of_its_three_bounds():
    smallest = set()
    for theory in GRID:
        spread = 4 * theory.attraction**2 * theory.merit_smoothness * (1 + theory.safe_radius)
        safeguard = safeguard_lower_bound(
            (1 + theory.safe_radius) * theory.constants.gradient_bound,
            attraction=theory.attraction,
            safe_radius=theory.safe_radius,
        )
        bounds = [1 / (2 * theory.merit_smoothness), theory.nu / spread, safeguard]
        assert theory.safeguard_step == safeguard
        assert theory.gradient_descent_step == pytest.approx(min(bounds), rel=1e-14)
        smallest.add(bounds.index(min(bounds)))
    assert smallest == {0, 1, 2}


def test_the_stochastic_steps_divide_by_the_root_of_one_plus_the_iteration(worked):
    first = worked.gradient_descent_step
    assert [worked.decreasing_step(k) for k in (0, 3, 24)] == pytest.approx([first, first / 2, first / 5])
    assert [worked.fixed_step(K) for K in (3, 24)] == pytest.approx([first / 2, first / 5])


def test_the_sum_of_the_squared_decreasing_steps_is_at_most_one_plus_log(worked):
    first = worked.gradient_descent_step
    total = 0.0
    for k in range(2000):
        total += (worked.decreasing_step(k) / first) ** 2
        assert total <= (1 + math.log(k + 1)) * (1 + 1e-12)
    assert total > math.log(2000)


@pytest.mark.parametrize("terms", [5, 100, 100_000])
def test_the_saga_step_satisfies_every_inequality_of_the_proof(terms):
    for theory in GRID:
        step, rho, smoothness = theory.saga_step(terms), theory.rho, theory.merit_smoothness
        drift = ((1 + theory.safe_radius) * theory.constants.smoothness) ** 2
        rounding = 1 + 1e-12
        assert step * rho - step**2 * smoothness / 2 >= step * rho / 2 / rounding
        assert 2 * step**2 * drift <= rounding / (4 * terms)
        assert 2 * terms * (4 * terms + 2) * smoothness * drift * step**4 <= step * rho / 4 * rounding


@pytest.mark.parametrize("terms", [5, 100])
def test_each_saga_bound_is_the_largest_its_inequality_allows(terms):
    for theory in GRID:
        safeguard, descent, memory, combined = theory.saga_bounds(terms)
        assert theory.saga_step(terms) == min(safeguard, descent, memory, combined)
        assert descent * theory.merit_smoothness == pytest.approx(theory.rho)
        if theory.constants.smoothness == 0:
            assert memory == combined == math.inf
            continue
        drift = ((1 + theory.safe_radius) * theory.constants.smoothness) ** 2
        # The printed bound, with sqrt(1+ε), would allow (1+ε)/(4N) here.
        assert 2 * memory**2 * drift == pytest.approx(1 / (4 * terms))
        quartic = 2 * terms * (4 * terms + 2) * theory.merit_smoothness * drift * combined**3
        assert quartic == pytest.approx(theory.rho / 4)


def test_the_saga_safeguard_covers_the_fresh_gradient_the_memory_and_its_mean():
    radius, bound = 0.5, 2.0
    constants = Constants(smoothness=1.0, gradient_bound=bound, symmetric_bound=1.0)
    theory = Theory(constants=constants, safe_radius=radius)
    fresh, memory, mean = bound * torch.eye(3, 1, dtype=torch.float64).expand(3, 3, 1)
    X = torch.tensor([[0.0], [math.sqrt(1 + radius)], [0.0]], dtype=torch.float64)
    worst = torch.linalg.matrix_norm(riemannian_gradient(X, fresh + memory + mean))
    assert worst > 1.4 * theory.field_bound
    assert theory.saga_bounds(5)[0] == safeguard_lower_bound(3 * theory.field_bound, attraction=1.0, safe_radius=radius)
    assert theory.saga_bounds(5)[0] < theory.safeguard_step


def test_the_saga_step_shrinks_like_the_number_of_terms_to_the_minus_two_thirds(worked):
    ratio = worked.saga_step(10**6) / worked.saga_step(8 * 10**6)
    assert ratio == pytest.approx(4, rel=1e-5)


@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize(("n", "p"), [(1, 1), (6, 1), (7, 3), (5, 4), (4, 4)])
def test_the_constants_of_a_quadratic_bound_it_on_the_safe_region(n, p, dtype, radius, generator):
    M, linear = quadratic(n, p, dtype, generator)
    X = points_of_the_safe_region(400, n, p, radius, dtype, generator)
    assert distance(X).max() <= radius * (1 + 1e-12)
    for B in (None, linear):
        constants = quadratic_constants(M, B, columns=p, safe_radius=radius)
        G = M @ X if B is None else M @ X + B
        C = X.mH @ G
        rounding = 1 + 1e-12
        assert constants.smoothness == pytest.approx(float(torch.linalg.matrix_norm(M, 2)))
        assert torch.linalg.matrix_norm(G).max() <= constants.gradient_bound * rounding
        assert torch.linalg.matrix_norm((C + C.mH) / 2).max() <= constants.symmetric_bound * rounding
        theory = Theory(constants=constants, safe_radius=radius)
        assert torch.linalg.matrix_norm(riemannian_gradient(X, G)).max() <= theory.field_bound * rounding


@pytest.mark.parametrize("radius", RADII)
def test_the_constants_of_a_quadratic_are_attained_by_one_column(radius):
    M = torch.diag(torch.tensor([1.0, -3.0, 2.0], dtype=torch.float64))
    B = torch.tensor([[0.0], [-0.5], [0.0]], dtype=torch.float64)
    X = torch.tensor([[0.0], [math.sqrt(1 + radius)], [0.0]], dtype=torch.float64)
    constants = quadratic_constants(M, B, columns=1, safe_radius=radius)
    assert constants.smoothness == pytest.approx(3)
    assert constants.gradient_bound == pytest.approx(float(torch.linalg.matrix_norm(M @ X + B)))
    assert constants.symmetric_bound == pytest.approx(float(torch.linalg.matrix_norm(X.mT @ (M @ X + B))))


def test_the_gradient_bound_takes_the_columns_largest_absolute_eigenvalues():
    M = torch.diag(torch.tensor([1.0, -4.0, 3.0], dtype=torch.float64))
    constants = quadratic_constants(M, columns=2, safe_radius=0.44)
    assert constants.gradient_bound == pytest.approx(1.2 * 5)
    assert constants.symmetric_bound == pytest.approx(1.44 * 5)


@pytest.mark.parametrize("radius", [0.75, 0.9])
def test_a_safe_radius_of_three_quarters_or_more_is_refused(radius):
    constants = Constants(smoothness=1.0, gradient_bound=1.0, symmetric_bound=1.0)
    with pytest.raises(ValueError, match=f"safe_radius must be < 3/4 .* got {radius}"):
        Theory(constants=constants, safe_radius=radius)


@pytest.mark.parametrize("terms", [4, 0, -3, 10.0, True])
def test_landing_saga_needs_more_than_four_terms(worked, terms):
    with pytest.raises(ValueError, match="number_of_terms must be a whole number >= 5"):
        worked.saga_step(terms)


def test_iterations_are_whole_numbers(worked):
    with pytest.raises(ValueError, match="iteration must be a whole number >= 0; got -1"):
        worked.decreasing_step(-1)
    with pytest.raises(ValueError, match="iterations must be a whole number >= 1; got 0"):
        worked.fixed_step(0)


@pytest.mark.parametrize("name", ["smoothness", "gradient_bound", "symmetric_bound", "hessian_lipschitz"])
@pytest.mark.parametrize("number", [-1.0, math.inf, math.nan, "1", True])
def test_a_bound_that_is_no_bound_is_refused(name, number):
    numbers = {"smoothness": 1.0, "gradient_bound": 1.0, "symmetric_bound": 1.0, name: number}
    with pytest.raises(ValueError, match=f"{name} must be a finite number >= 0; got"):
        Constants(**numbers)


def test_a_constant_function_is_refused():
    with pytest.raises(ValueError, match="gradient_bound must be finite and > 0; got 0"):
        Constants(smoothness=0.0, gradient_bound=0.0, symmetric_bound=0.0)


def test_attraction_and_safe_radius_are_checked():
    constants = Constants(smoothness=1.0, gradient_bound=1.0, symmetric_bound=1.0)
    with pytest.raises(ValueError, match="attraction must be finite and > 0; got 0"):
        Theory(constants=constants, attraction=0)
    with pytest.raises(ValueError, match="safe_radius must be a number in the open interval"):
        Theory(constants=constants, safe_radius=0)


def test_a_quadratic_that_is_none_is_refused():
    M = torch.eye(3)
    for arguments, message in (
        ({"M": torch.ones(3, 2)}, r"M must be one .* of shape \(n, n\); got torch.float32 of shape \(3, 2\)"),
        ({"M": torch.ones(3, 3, dtype=torch.int64)}, "M must be one .* got torch.int64"),
        ({"M": torch.ones(3, 3).triu()}, "M must be Hermitian"),
        ({"M": torch.ones(3, 3) + 1e-2 * torch.ones(3, 3).triu()}, "M must be Hermitian"),
        ({"columns": True}, "columns must be a whole number from 1 to 3"),
        ({"columns": 4}, "columns must be a whole number from 1 to 3"),
        ({"columns": 0}, "columns must be a whole number from 1 to 3"),
        ({"linear": torch.ones(2, 3)}, r"linear must have shape \(3, 2\); got \(2, 3\)"),
        ({"safe_radius": 1.0}, "safe_radius must be a number"),
    ):
        with pytest.raises(ValueError, match=message):
            quadratic_constants(**{"M": M, "columns": 2, "safe_radius": 0.5, **arguments})
