"""Problems: values and gradients against literal definitions and autograd, known optima, constants that bound."""

import numpy as np
import pytest
import scipy.linalg
import torch
from literal import inner, norm, point_at_distance, sym
from solve.sums import all_problems, draw, ica, linear, pca, procrustes, quartic_pair, stiefel

import glideslope as gs
from glideslope.engine.gradient import dense
from glideslope.solve.problem import differentiate
from glideslope.solve.problems.ica import LARGEST_THIRD_DERIVATIVE

DTYPES = [torch.float64, torch.complex128, torch.float32, torch.complex64]


def literal_value(problem, X):
    """f(X) row by row, differentiable."""
    if isinstance(problem, gs.problems.LinearProblem):
        return inner(problem.M, X)
    A = problem.rows.take(slice(None)).to(X.dtype)
    total = 0
    for i, a in enumerate(A):
        y = a @ X
        if isinstance(problem, gs.problems.PCA):
            total = total - y.abs().square().sum() / 2
        elif isinstance(problem, gs.problems.Procrustes):
            total = total + (y - problem.targets.take(slice(None))[i].to(X.dtype)).abs().square().sum() / 2
        else:
            signs = 1 if problem.signs is None else problem.signs
            total = total + (signs * torch.log(torch.cosh(y))).sum()
    return total / len(A)


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_and_gradients_are_those_of_the_literal_definition(dtype):
    wide = torch.complex128 if dtype.is_complex else torch.float64
    for problem in all_problems(dtype):
        X = point_at_distance(*problem.shape, 0.2, dtype=dtype, generator=torch.Generator().manual_seed(1))
        value, G = differentiate(lambda Z, problem=problem: literal_value(problem, Z), X.to(wide))
        tolerance = 1e-12 if wide == dtype else 1e-4
        for _ in range(4):  # PCA changes to its covariance on the way
            ours, ours_G = problem.value_and_gradient(X)
            assert float(ours) == pytest.approx(float(value), rel=tolerance, abs=tolerance)
            torch.testing.assert_close(ours_G.to(wide), G, rtol=tolerance, atol=tolerance)
            assert ours_G.dtype == dtype
        assert float(problem.value(X)) == pytest.approx(float(value), rel=tolerance, abs=tolerance)


def test_pca_changes_to_its_covariance_after_some_passes_and_counts_anew_in_every_run():
    problem = pca(N=60, n=8, p=1)
    X = stiefel(8, 1)
    for _ in range(5):
        assert problem._covariance is None
        problem.gradient(X)
    assert problem._covariance is not None
    problem = pca(N=60, n=8, p=1)
    first, second = (gs.minimize(problem, step_size=0.1, max_epochs=20, tolerance=0) for _ in range(2))
    assert np.array_equal(first.history.value, second.history.value)


@pytest.mark.parametrize("batch_size", [7, 60])
def test_the_gradients_of_batches_average_to_the_full_gradient(batch_size):
    adaptive = ica(score="adaptive")
    adaptive.refresh(stiefel(4, 4))
    complex_pca = pca(dtype=torch.complex128)
    for problem in (pca(), procrustes(), ica(), adaptive, complex_pca, *quartic_pair(N=60)):
        X = stiefel(*problem.shape, dtype=problem.dtype)
        parts = torch.split(torch.arange(60), batch_size)
        mean = sum(dense(problem.batch_gradient(X, one)) * len(one) / 60 for one in parts)
        torch.testing.assert_close(mean, problem.gradient(X))
        torch.testing.assert_close(
            dense(problem.batch_gradient(X, slice(3, 9))), dense(problem.batch_gradient(X, torch.arange(3, 9)))
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_optimum_of_pca_is_the_leading_eigenspace(dtype):
    problem = pca(dtype=dtype)
    A = problem.rows.take(slice(None)).numpy().astype(np.complex128 if dtype.is_complex else np.float64)
    eigenvalues, vectors = np.linalg.eigh(A.conj().T @ A / 60)
    best = problem.optimum()
    assert best.value == pytest.approx(-eigenvalues[-3:].sum() / 2, rel=1e-12)
    projector = vectors[:, -3:] @ vectors[:, -3:].conj().T
    np.testing.assert_allclose((best.X @ best.X.mH).numpy(), projector, atol=1e-5)
    assert float(problem.value(best.X)) == pytest.approx(best.value, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_the_optimum_of_square_procrustes_is_scipys(dtype):
    A, B = draw(30, 5, seed=1, dtype=dtype), draw(30, 5, seed=2, dtype=dtype)
    problem = gs.problems.Procrustes(A, B)
    best = problem.optimum()
    np.testing.assert_allclose(best.X.numpy(), scipy.linalg.orthogonal_procrustes(A.numpy(), B.numpy())[0], atol=1e-12)
    assert float(problem.value(best.X)) == pytest.approx(best.value, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_the_optimum_of_procrustes_with_an_isometry_is_a_polar_factor_and_no_point_is_lower(dtype):
    A, B = 3 * stiefel(30, 6, dtype=dtype), draw(30, 2, seed=2, dtype=dtype)
    problem = gs.problems.Procrustes(A, B)
    best = problem.optimum()
    assert float(problem.value(best.X)) == pytest.approx(best.value, rel=1e-12)
    assert gs.minimize(problem).value == pytest.approx(best.value, rel=1e-10)
    assert procrustes().optimum() is None


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_whether_procrustes_has_a_closed_form_does_not_depend_on_the_size_of_the_data(size):
    isometry, B = stiefel(30, 6), draw(30, 2, seed=2)
    assert gs.problems.Procrustes(size * isometry, B).optimum() is not None
    assert gs.problems.Procrustes(size * (isometry + 1e-6 * draw(30, 6, seed=3)), B).optimum() is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_the_optimum_of_the_linear_problem_is_minus_the_polar_factor(dtype):
    problem = linear(dtype=dtype)
    best = problem.optimum()
    np.testing.assert_allclose(best.X.numpy(), -scipy.linalg.polar(problem.M.numpy())[0], atol=1e-12)
    assert float(problem.value(best.X)) == pytest.approx(best.value, rel=1e-12)
    assert gs.minimize(problem).value == pytest.approx(best.value, rel=1e-10)


@pytest.mark.parametrize("penalty_weight", [1e-24, 1e-6, 0.1, 1.0, 30.0, 1e8])
def test_the_penalty_minimiser_has_the_roots_of_the_cubic_and_is_stationary(penalty_weight):
    problem = linear()
    X = problem.penalty_minimiser(penalty_weight)
    singular = np.linalg.svd(problem.M.numpy(), compute_uv=False)
    roots = [max(np.roots([penalty_weight, 0, -penalty_weight, -s]).real) for s in singular]
    np.testing.assert_allclose(np.linalg.svd(X.numpy(), compute_uv=False), roots, rtol=1e-8)
    slope = problem.M + penalty_weight * gs.formulas.penalty_gradient(X)
    assert norm(slope) < 1e-8 * max(1, penalty_weight) * norm(problem.M)


def test_the_penalty_minimiser_of_a_complex_problem_is_stationary_and_of_zero_is_orthonormal():
    problem = linear(dtype=torch.complex128)
    X = problem.penalty_minimiser(2.0)
    assert norm(problem.M + 2 * gs.formulas.penalty_gradient(X)) < 1e-12
    zero = gs.problems.LinearProblem(torch.zeros(5, 2, dtype=torch.float64))
    assert gs.formulas.distance(zero.penalty_minimiser(2.0)) < 1e-12


def hessian_times(gradient, X, E, t=1e-5):
    return (gradient(X + t * E) - gradient(X - t * E)) / (2 * t)


@pytest.mark.parametrize("each_term", [False, True])
@pytest.mark.parametrize("safe_radius", [0.1, 0.5])
def test_the_constants_bound_what_they_say_over_the_safe_region(safe_radius, each_term):
    generator = torch.Generator().manual_seed(7)
    adaptive = ica(N=20, score="adaptive")
    adaptive.refresh(stiefel(4, 4))
    problems = [pca(N=20), procrustes(N=20), ica(N=20), adaptive, linear(), pca(N=20, dtype=torch.complex128)]
    for problem in problems:
        bounds = problem.constants(safe_radius, each_term=each_term)
        terms = range(20) if each_term and problem.n_terms > 1 else [None]
        for _ in range(4):
            X = point_at_distance(*problem.shape, safe_radius, dtype=problem.dtype, generator=generator)
            X *= ((1 + safe_radius * 0.99) / torch.linalg.matrix_norm(X, 2) ** 2) ** 0.5 if problem.shape[1] == 1 else 1
            E = torch.randn(X.shape, generator=generator, dtype=X.dtype)
            E /= norm(E)
            for term in terms:

                def gradient(Z, problem=problem, term=term):
                    if term is None:
                        return problem.gradient(Z)
                    return dense(problem.batch_gradient(Z, torch.tensor([term])))

                G = gradient(X)
                assert norm(G) <= bounds.gradient_bound * (1 + 1e-12)
                assert norm(sym(X.mH @ G)) <= bounds.symmetric_bound * (1 + 1e-12)
                assert norm(hessian_times(gradient, X, E)) <= bounds.smoothness * (1 + 1e-6) + 1e-6
                third = (gradient(X + 1e-3 * E) + gradient(X - 1e-3 * E) - 2 * G) / 1e-6
                assert norm(third) <= bounds.hessian_lipschitz * (1 + 1e-3) + 1e-6


def test_the_constants_of_quadratics_are_met_so_they_are_no_larger_than_needed():
    problem = pca(p=1)
    bounds = problem.constants(0.5)
    X = problem.optimum().X * 1.5**0.5
    assert float(norm(problem.gradient(X))) == pytest.approx(bounds.gradient_bound)
    longest = problem.rows.take(slice(None)).norm(dim=1).argmax()
    a = problem.rows.take(slice(None))[longest]
    X = (a / a.norm() * 1.5**0.5)[:, None]
    G = dense(problem.batch_gradient(X, longest[None]))
    assert float(norm(G)) == pytest.approx(problem.constants(0.5, each_term=True).gradient_bound)


def test_the_constant_of_log_coshs_third_derivative_is_its_maximum():
    y = torch.linspace(-5, 5, 100001, dtype=torch.float64)
    third = (2 * torch.tanh(y) / torch.cosh(y) ** 2).abs().max()
    assert float(third) == pytest.approx(LARGEST_THIRD_DERIVATIVE, rel=1e-8)


def test_problems_without_a_known_width_ask_for_it():
    problem = gs.problems.PCA(draw(20, 5))
    assert problem.shape is None
    with pytest.raises(ValueError, match="give n_components"):
        problem.constants(0.5)
    with pytest.raises(ValueError, match="give X0"):
        gs.minimize(problem)
    assert gs.minimize(problem, stiefel(5, 2)).converged


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gs.problems.PCA(draw(9, 4), 5), r"from 1 to 4; got 5"),
        (lambda: gs.problems.PCA(draw(9, 4), True), r"whole number from 1 to 4; got True"),
        (lambda: gs.problems.ICA(draw(9, 4), score="kurtosis"), r"score must be one of 'logcosh', 'adaptive'"),
        (lambda: gs.problems.ICA(draw(9, 4, dtype=torch.complex128)), r"ICA needs real data; got torch.complex128"),
        (lambda: gs.problems.Procrustes(draw(9, 4), draw(8, 2)), r"same number of rows"),
        (lambda: gs.problems.Procrustes(draw(9, 4), draw(9, 2).float()), r"the same type"),
        (lambda: gs.problems.LinearProblem(draw(2, 3)), r"M must be tall"),
        (lambda: gs.problems.LinearProblem(draw(2, 4, 3)), r"one finite matrix; got shape \(2, 4, 3\)"),
        (lambda: gs.problems.FiniteSum(lambda X, index: X.sum(), 0), r"n_terms must be a whole number >= 1; got 0"),
        (lambda: linear().penalty_minimiser(0), r"penalty_weight must be finite and > 0"),
    ],
)
def test_what_a_problem_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
