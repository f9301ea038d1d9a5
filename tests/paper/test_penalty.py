"""Section 3.4 of the paper: the linear problem with a penalty, which is either inexact or badly conditioned."""

import math

import numpy as np
import pytest
import torch
from literal import norm, random_matrix

import glideslope as gs


def linear_problem(n=6, p=3, singular=(0.5, 1.0, 2.0)):
    generator = torch.Generator().manual_seed(5)
    left = torch.linalg.qr(random_matrix(n, p, generator=generator)).Q
    right = torch.linalg.qr(random_matrix(p, p, generator=generator)).Q
    return gs.problems.LinearProblem(left @ torch.diag(torch.tensor(singular, dtype=torch.float64)) @ right.mT)


def penalised(problem, weight):
    return lambda X: problem.value(X) + weight * gs.formulas.penalty(X)


def hessian_at_the_minimiser(problem, weight):
    X = problem.penalty_minimiser(weight)
    H = torch.autograd.functional.hessian(penalised(problem, weight), X)
    return torch.linalg.eigvalsh(H.reshape(X.numel(), X.numel()))


@pytest.mark.parametrize("weight", [0.1, 1.0, 100.0])
def test_proposition_the_minimiser_of_the_penalised_linear_problem_is_x_star(weight):
    """A stationary point with positive definite Hessian, where 'auto' gets to; each σ* minimises its quartic."""
    problem = linear_problem()
    X = problem.penalty_minimiser(weight)
    gradient = problem.M + weight * gs.formulas.penalty_gradient(X)
    assert norm(gradient) < 1e-12 * max(1, weight)
    assert hessian_at_the_minimiser(problem, weight)[0] > 0
    found = gs.minimize(problem, method="penalty", penalty_weight=weight, tolerance=1e-9 * max(1, weight))
    assert found.converged
    torch.testing.assert_close(found.X, X, rtol=0, atol=1e-6)
    left, singular, right = torch.linalg.svd(problem.M, full_matrices=False)
    grid = torch.linspace(-4, 4, 80_001, dtype=torch.float64)
    for i, sigma in enumerate(singular):
        quartic = -sigma * grid + weight / 4 * (grid.square() - 1).square()
        star = -(left[:, i] @ X @ right[i])
        assert abs(star - grid[quartic.argmin()]) <= 1e-4


def test_proposition_the_distance_to_the_constrained_solution_falls_like_one_over_lambda():
    """Over λ = 1 ... 1e4, with slope -1 ± 0.05; and to -UVᵀ, not UVᵀ as printed."""
    problem = linear_problem(singular=(0.05, 0.1, 0.2))
    weights = 10.0 ** np.arange(0, 4.5, 0.5)
    target = problem.optimum().X
    distances = [float(norm(problem.penalty_minimiser(float(weight)) - target)) for weight in weights]
    slope = np.polyfit(np.log10(weights), np.log10(distances), 1)[0]
    assert abs(slope + 1) < 0.05
    assert norm(problem.penalty_minimiser(1e4) + target) > 1
    left, singular, right = torch.linalg.svd(problem.M, full_matrices=False)
    torch.testing.assert_close(target, -left @ right)
    assert problem.optimum().value == pytest.approx(-float(singular.sum()))


@pytest.mark.parametrize("n", [3, 6])
def test_proposition_the_hessian_at_the_minimiser_is_badly_conditioned(n):
    """λ_max >= 2λ and λ_min <= σ_p + σ_p²/(4λ); for n > p even λ_min <= σ_1, the smallest: the corrected form."""
    problem = linear_problem(n=n)
    for weight in (1.0, 10.0, 1e3):
        eigenvalues = hessian_at_the_minimiser(problem, weight)
        assert eigenvalues[-1] >= 2 * weight
        assert eigenvalues[0] <= 2.0 + 2.0**2 / (4 * weight)
        if n > 3:
            assert eigenvalues[0] <= 0.5
            conditioning = eigenvalues[-1] / eigenvalues[0]
            assert conditioning >= 2 * weight / 0.5
    if n > 3:
        assert conditioning == pytest.approx(2 * 1e3 / 0.5, rel=0.01)


def test_proposition_iterations_of_gradient_descent_grow_linearly_in_lambda():
    """From X* + δE, E the softest direction, with step 1/λ_max: the paper's count is a lower bound, and the slope 1."""
    problem, counts, weights = linear_problem(), [], (10.0, 100.0, 1000.0)
    for weight in weights:
        X_star = problem.penalty_minimiser(weight)
        H = torch.autograd.functional.hessian(penalised(problem, weight), X_star).reshape(18, 18)
        eigenvalues, vectors = torch.linalg.eigh(H)
        start = X_star + 1e-4 * vectors[:, 0].reshape(6, 3)
        reached = []
        gs.minimize(
            problem,
            start,
            method="penalty",
            penalty_weight=weight,
            step_size=1 / float(eigenvalues[-1]),
            tolerance=1e-6 * float(eigenvalues[0]),
            max_epochs=10**6,
            record_every=20,
            callback=lambda record, reached=reached: reached.append(record.step),
        )
        counts.append(reached[-1])
        # To gain a factor 100 takes at least log(100)/-log(1 - σ_p/(2λ)) steps.
        assert counts[-1] >= math.log(99) / -math.log(1 - 2.0 / (2 * weight)) - 20
    slope = np.polyfit(np.log(weights), np.log(counts), 1)[0]
    assert abs(slope - 1) < 0.1


def test_landing_converges_to_the_manifold_whatever_lambda_is():
    """In contrast to the penalty: the same solution for λ = 0.1, 1 and 10."""
    problem = linear_problem()
    for attraction in (0.1, 1.0, 10.0):
        found = gs.minimize(problem, step_size=0.05, attraction=attraction, tolerance=1e-8, max_epochs=10_000)
        assert found.converged
        torch.testing.assert_close(found.X, problem.optimum().X, rtol=0, atol=1e-6)
