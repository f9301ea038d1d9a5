"""Section 3.1 of the paper: landing gradient descent (19) with the step its proposition allows."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from combinations import every_pair
from torch import Tensor

from glideslope.formulas.field import landing_field, riemannian_gradient, skew_field
from glideslope.formulas.merit import merit
from glideslope.formulas.orthogonality import distance
from glideslope.formulas.penalty import penalty
from glideslope.formulas.safeguard import safeguard_lower_bound
from glideslope.theory import Theory, quadratic_constants

ITERATIONS = 400
REAL, COMPLEX = torch.float64, torch.complex128
NAMES = ("pca", "complex pca", "procrustes", "complex procrustes")
# A radius, an attraction and the first distance; the last runs start on the boundary.
SETTINGS = ((0.5, 1.0, 0.3), (0.3, 10.0, 0.3), (0.7, 0.3, 0.7))

all_problems = pytest.mark.parametrize("name", NAMES)
all_settings = pytest.mark.parametrize(("radius", "attraction", "start"), SETTINGS)


@dataclass
class Quadratic:
    """f(X) = ½ Re<X, M X> + Re<linear, X>, with its minimiser and its smallest value on the manifold."""

    M: Tensor
    linear: Tensor
    minimiser: Tensor
    smallest: float

    def value(self, X: Tensor) -> Tensor:
        return (X.conj() * (self.M @ X / 2 + self.linear)).real.sum(dim=(-2, -1))

    def gradient(self, X: Tensor) -> Tensor:
        return self.M @ X + self.linear


def problem(name: str, generator: torch.Generator) -> Quadratic:
    dtype = COMPLEX if name.startswith("complex") else REAL
    if "pca" in name:
        A = torch.randn(30, 7, dtype=dtype, generator=generator)
        M = -A.mH @ A / 30
        # f* is half the sum of the p smallest eigenvalues.
        eigenvalues, eigenvectors = torch.linalg.eigh(M)
        smallest = float(eigenvalues[:2].sum()) / 2
        return Quadratic(M, torch.zeros(7, 2, dtype=dtype), eigenvectors[:, :2], smallest)
    # With n = p, ‖A X‖ is constant on the manifold: f* = ½ ‖A‖² - ‖A^H B‖_*.
    A = torch.randn(4, 4, dtype=dtype, generator=generator) / 3
    B = torch.randn(4, 4, dtype=dtype, generator=generator) / 3
    left, singular, right = torch.linalg.svd(A.mH @ B)
    smallest = float(torch.linalg.matrix_norm(A) ** 2 / 2 - singular.sum())
    return Quadratic(A.mH @ A, -A.mH @ B, left @ right, smallest)


def orthonormal(count: int, n: int, p: int, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    return torch.linalg.qr(torch.randn(count, n, p, dtype=dtype, generator=generator)).Q


def moved_to_distance(Q: Tensor, d: float, generator: torch.Generator) -> Tensor:
    """Q (I + Δ)^{1/2} for orthonormal Q and random Δ with ‖Δ‖_F = d."""
    count, _, p = Q.shape
    eigenvalues = torch.randn(count, p, dtype=REAL, generator=generator)
    eigenvalues = d * eigenvalues / torch.linalg.vector_norm(eigenvalues, dim=-1, keepdim=True)
    basis = orthonormal(count, p, p, Q.dtype, generator)
    return Q @ (basis * (1 + eigenvalues).sqrt().unsqueeze(-2)) @ basis.mH


@dataclass
class Run:
    """What landing gradient descent passed through: one entry per iterate X_0, ..., X_K."""

    theory: Theory
    gradient_norms: Tensor
    penalties: Tensor
    merits: Tensor
    distances: Tensor


def landing_gradient_descent(
    case: Quadratic, radius: float, attraction: float, start: float, generator: torch.Generator
) -> Run:
    constants = quadratic_constants(case.M, case.linear, columns=case.linear.shape[1], safe_radius=radius)
    theory = Theory(constants=constants, attraction=attraction, safe_radius=radius)
    X = moved_to_distance(orthonormal(1, *case.linear.shape, case.M.dtype, generator), start, generator)[0]
    iterates = [X]
    for _ in range(ITERATIONS):
        X = X - theory.gradient_descent_step * landing_field(X, case.gradient(X), attraction=attraction)
        iterates.append(X)
    points = torch.stack(iterates)
    G = case.gradient(points)
    return Run(
        theory,
        torch.linalg.matrix_norm(riemannian_gradient(points, G)),
        penalty(points),
        merit(points, case.value(points), G, mu=theory.mu),
        distance(points),
    )


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(31)


@all_problems
@all_settings
def test_both_averages_are_bounded_by_the_first_merit_over_eta_k_for_every_k(
    name, radius, attraction, start, generator
):
    case = problem(name, generator)
    run = landing_gradient_descent(case, radius, attraction, start, generator)
    step, gap = run.theory.gradient_descent_step, run.merits[0] - case.smallest
    K = torch.arange(1, ITERATIONS + 1)
    gradients = run.gradient_norms[1:].square().cumsum(0) / K
    penalties = run.penalties[1:].cumsum(0) / K
    assert (gradients <= 4 * gap / (step * K)).all()
    assert (penalties <= 2 * gap / (step * run.theory.nu * K)).all()


@all_problems
@all_settings
def test_the_merit_function_decreases_at_every_step_by_the_proofs_amount(name, radius, attraction, start, generator):
    run = landing_gradient_descent(problem(name, generator), radius, attraction, start, generator)
    step, nu = run.theory.gradient_descent_step, run.theory.nu
    claimed = step / 4 * run.gradient_norms.square() + step * nu / 2 * run.penalties
    decrease = run.merits[:-1] - run.merits[1:]
    assert (decrease >= claimed[:-1] - 1e-13 * run.merits[0].abs()).all()
    assert claimed[0] > 1e-6 * run.merits[0].abs()


@all_problems
@all_settings
def test_all_iterates_of_landing_gradient_descent_stay_in_the_safe_region(name, radius, attraction, start, generator):
    run = landing_gradient_descent(problem(name, generator), radius, attraction, start, generator)
    assert run.distances[0] == pytest.approx(start)
    assert (run.distances <= radius * (1 + 1e-12)).all()


@all_problems
def test_landing_gradient_descent_approaches_the_manifold_and_a_critical_point(name, generator):
    run = landing_gradient_descent(problem(name, generator), 0.5, 1.0, 0.3, generator)
    # The rate 1/K is of the averages; here the last iterate is better than the first by far.
    assert run.distances[-1] < 0.6 * run.distances[0]
    assert run.merits[-1] < run.merits[0]


@all_problems
@all_settings
def test_the_smallest_f_on_the_manifold_is_a_lower_bound_of_the_merit_function_on_the_safe_region(
    name, radius, attraction, start, generator
):
    case = problem(name, generator)
    constants = quadratic_constants(case.M, case.linear, columns=case.linear.shape[1], safe_radius=radius)
    mu = Theory(constants=constants, attraction=attraction, safe_radius=radius).mu
    anywhere = orthonormal(200, *case.linear.shape, case.M.dtype, generator)
    for Q in (anywhere, case.minimiser.expand(200, -1, -1)):
        for d in (0.0, 1e-3, start / 2, radius):
            X = moved_to_distance(Q, d, generator)
            assert merit(X, case.value(X), case.gradient(X), mu=mu).min() >= case.smallest - 1e-13
    G = case.gradient(case.minimiser)
    assert merit(case.minimiser, case.value(case.minimiser), G, mu=mu) == pytest.approx(case.smallest)


@every_pair(radius=[0.1, 0.5, 0.9], attraction=[0.1, 1.0, 10.0], field_bound=[0.05, 1.0, 30.0], dtype=[REAL, COMPLEX])
def test_iterates_along_any_skew_matrices_stay_in_the_safe_region_with_steps_up_to_eta_star(
    radius, attraction, field_bound, dtype, generator
):
    step = safeguard_lower_bound(field_bound, attraction=attraction, safe_radius=radius)
    X = moved_to_distance(orthonormal(20, 5, 3, dtype, generator), radius, generator)
    for _ in range(60):
        A = torch.randn(20, 5, 5, dtype=dtype, generator=generator)
        A = A - A.mH
        A = A * (field_bound / torch.linalg.matrix_norm(A @ X))[:, None, None]
        X = X - step * skew_field(X, A, attraction=attraction)
        assert (distance(X) <= radius * (1 + 1e-12)).all()
