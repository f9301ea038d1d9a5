"""step_size="auto": no tuning, from any start of the safe region, in any type, and an end in every case."""

import numpy as np
import pytest
import scipy.linalg
import torch
from literal import exact_distance, point_at_distance
from solve.sums import draw, ica, linear, pca, procrustes, stiefel

import glideslope as gs
from glideslope.solve.minimize import first_iterate
from glideslope.solve.problem import as_problem
from glideslope.solve.search import Search, land


def brockett(n=20, p=4, dtype=torch.float64):
    """tr(X^H A X N): its minimum pairs the smallest eigenvalues of A with the largest weights of N."""
    A = draw(n, n, dtype=dtype)
    A = A + A.mH
    weights = torch.arange(1, p + 1, dtype=A.real.dtype)
    best = float((torch.linalg.eigvalsh(A)[:p] * weights.flip(0)).sum())
    return (lambda X: ((X.conj() * (A @ X)).real.sum(0) * weights).sum()), stiefel(n, p, dtype=dtype), best


def size_at_start(problem, X0):
    """‖∇f(X0)‖, which the tolerance is relative to."""
    problem = as_problem(problem)
    return float(problem.gradient(first_iterate(problem, X0, seed=0)).norm())


def search_of(problem, X, **options):
    return Search(
        problem,
        X,
        **{"method": "landing", "metric": "canonical", "retraction": "qr", "penalty_weight": None, **options},
    )


def isometric_procrustes(dtype=torch.float64):
    return gs.problems.Procrustes(stiefel(60, 20, dtype=dtype) * 7, draw(60, 5, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("metric", ["canonical", "euclidean"])
@pytest.mark.parametrize("method", ["landing", "riemannian"])
def test_it_reaches_the_known_optimum_without_tuning(method, metric, dtype):
    function, X0, best = brockett(dtype=dtype)
    cases = [(function, X0, best)]
    for problem in (isometric_procrustes(dtype), pca(N=200, n=20, p=3, dtype=dtype), linear(dtype=dtype)):
        cases.append((problem, None, problem.optimum().value))
    for problem, start, value in cases:
        solution = gs.minimize(problem, start, method=method, metric=metric)
        assert solution.stop_reason == "converged"
        assert solution.gradient_norm <= 1.000001e-6 * size_at_start(problem, start)
        assert solution.distance <= 1e-6
        assert solution.value == pytest.approx(value, rel=1e-9, abs=1e-9)
        assert solution.n_passes < 400


@pytest.mark.parametrize("penalty_weight", [0.3, 5.0, 100.0])
def test_the_penalty_method_reaches_the_minimiser_of_the_penalised_function(penalty_weight):
    problem = linear()
    solution = gs.minimize(problem, method="penalty", penalty_weight=penalty_weight, tolerance=1e-8)
    assert solution.converged
    torch.testing.assert_close(solution.X, problem.penalty_minimiser(penalty_weight), rtol=0, atol=1e-7)
    assert solution.value == pytest.approx(float(problem.value(solution.X)))
    slope = problem.M + penalty_weight * gs.formulas.penalty_gradient(solution.X)
    assert solution.gradient_norm == pytest.approx(float(slope.norm()), abs=1e-12)


def test_the_penalty_method_solves_procrustes_pca_and_brockett():
    function, X0, _ = brockett()
    for problem, start in ((function, X0), (isometric_procrustes(), None), (pca(N=200, n=20, p=3), None)):
        solution = gs.minimize(problem, start, method="penalty", penalty_weight=50.0, max_epochs=3000)
        assert solution.converged
        X = solution.X
        G = as_problem(problem).gradient(X) + 50 * gs.formulas.penalty_gradient(X)
        assert G.norm() <= 1.000001e-6 * size_at_start(problem, start)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("method", ["landing", "riemannian"])
@pytest.mark.parametrize("tolerance", [1e-3, 1e-9])
def test_in_single_precision_it_ends_converged_or_stalled_near_the_optimum(tolerance, method, dtype):
    function, X0, best = brockett(dtype=dtype)
    problem = isometric_procrustes(dtype)
    cases = [(function, X0, best), (problem, None, problem.optimum().value), (linear(dtype=dtype), None, None)]
    for problem, start, value in cases:
        solution = gs.minimize(problem, start, method=method, tolerance=tolerance, max_epochs=20000)
        assert solution.stop_reason == ("converged" if tolerance == 1e-3 else solution.stop_reason)
        assert solution.stop_reason in ("converged", "stalled")
        assert solution.n_steps < 3000
        assert solution.gradient_norm < max(tolerance, 1e-4) * size_at_start(problem, start)
        assert value is None or solution.value == pytest.approx(value, rel=1e-4)


def test_a_start_at_the_optimum_converges_at_once():
    problem = pca()
    solution = gs.minimize(problem, problem.optimum().X)
    assert (solution.stop_reason, solution.n_steps, solution.n_passes) == ("converged", 0, 1.0)


@pytest.mark.parametrize("what", [float("nan"), float("inf")])
@pytest.mark.parametrize("method", ["landing", "riemannian", "penalty"])
def test_where_the_function_is_not_finite_beyond_some_radius_the_step_is_taken_back(method, what):
    target, X0 = stiefel(6, 2, seed=1), stiefel(6, 2, seed=1)
    X0 = gs.project(X0 + 0.05 * draw(6, 2))
    calls = []

    def function(X):
        far = (X - target).norm() > 0.4
        calls.append(bool(far))
        return torch.where(far, torch.tensor(what, dtype=X.dtype), 1.0) * (1 + 1000 * (X - target).square().sum())

    weight = {"penalty_weight": 1.0} if method == "penalty" else {}
    first = search_of(gs.problems.Function(function), X0, method=method, **weight)
    first.start(X0)
    first.pairs.forget(scale=1.0)
    assert first.step()
    assert any(calls)
    assert np.isfinite(first.at.value)
    solution = gs.minimize(function, X0, method=method, **weight)
    assert solution.converged
    torch.testing.assert_close(solution.X, target, atol=1e-6, rtol=0)


def test_a_step_that_retractions_refuse_is_taken_back():
    """A decomposition of what is not finite raises; a search only shortens its step, and then goes nowhere."""
    search = search_of(pca(), stiefel(8, 3), method="riemannian", retraction="polar")
    search.start(stiefel(8, 3))
    before = search.at
    assert not search._descend(torch.full((8, 3), float("inf"), dtype=torch.float64), 1.0)
    assert search.at is before
    assert search.step()


@pytest.mark.parametrize("method", ["landing", "riemannian"])
def test_a_search_begins_at_the_orthonormal_matrix_nearest_to_its_start(method):
    """Off the manifold f may be lower than any point on it, so that no step from there would pass the test."""
    for seed in range(3):
        X0 = stiefel(8, 3, seed=seed)
        shift = 0.4999 / 3**0.5 if method == "landing" else 5e-4
        for X in (X0 * (1 + shift) ** 0.5, X0 * (1 - shift) ** 0.5):
            for scale in (1.0, 1e3):
                problem = gs.problems.LinearProblem(draw(8, 3, seed=seed) * scale)
                options = {"retraction": "cayley"} if method == "riemannian" else {}
                solution = gs.minimize(problem, X, method=method, tolerance=1e-6 * scale, **options)
                assert solution.converged
                assert solution.history.distance.max() < 1e-12
                assert solution.history.value[0] == pytest.approx(float(problem.value(X0)))


@pytest.mark.parametrize("far", [0.0, 1e-12, 1e-5, 0.1, 0.7])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128, torch.float32])
def test_landing_is_the_polar_factor(far, dtype):
    Y = point_at_distance(8, 3, far, dtype=dtype, generator=torch.Generator().manual_seed(0))
    X = land(Y, gs.formulas.residual(Y), far)
    tolerance = 50 * torch.finfo(dtype).eps
    np.testing.assert_allclose(X.numpy(), scipy.linalg.polar(Y.numpy())[0], atol=tolerance, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128, torch.float32])
@pytest.mark.parametrize("length", [1e-9, 1e-3, 1.0, 1e3, 1e9])
def test_a_step_of_any_length_lands_on_the_polar_factor_of_a_step_within_reach(length, dtype):
    """Products of a few numbers know Y^H Y of a tangent step, and how long it may be."""
    for make in (pca, procrustes, linear):
        problem, X0 = make(dtype=dtype), stiefel(8, 3, dtype=dtype)
        moved = []
        search = search_of(problem, X0)
        search.start(X0)
        search._evaluate = lambda X, moved=moved: moved.append(X) or (float("nan"), X)
        search._descend(search.at.T * -length, 1.0)
        first = moved[0]
        assert exact_distance(first) < 100 * torch.finfo(dtype).eps
        angles = torch.linalg.svdvals(search.at.X.mH @ first)
        assert angles.min() > 0.7  # less than 45 degrees from X
        step = min(length, 1 / float(torch.linalg.matrix_norm(search.at.T, 2)))
        if length < 1e3:  # a longer one is cut to a length that only bounds of eigenvalues decide
            polar = scipy.linalg.polar((search.at.X - step * search.at.T).numpy())[0]
            if step == length:
                np.testing.assert_allclose(first.numpy(), polar, atol=100 * torch.finfo(dtype).eps, rtol=0)


@pytest.mark.parametrize("make", [pca, procrustes, ica, linear])
def test_the_last_value_is_the_lowest_and_evaluations_are_few(make):
    for seed in range(4):
        solution = gs.minimize(make(), seed=seed)
        values = solution.history.value
        assert solution.converged
        assert values[-1] <= values.min() + 1e-11
        assert (values <= values[0] + 1e-14).all()
        assert solution.n_passes <= 1.5 * solution.n_steps + 5


def test_a_slow_way_out_of_a_saddle_is_not_called_stalled():
    """Close to a saddle the gradient norm grows for many steps while the value falls."""
    variances = torch.tensor([2.0, 1.0, 0.5, 0.1], dtype=torch.float64)

    def function(X):
        return -(variances[:, None] * X**2).sum() / 2 * 1e-3

    X0 = gs.project(torch.tensor([[1e-7], [1.0], [0.0], [0.0]], dtype=torch.float64))
    solution = gs.minimize(function, X0, tolerance=1e-12)
    assert solution.value == pytest.approx(-1e-3)


def test_ica_by_the_search_is_ica_by_small_steps():
    X0 = gs.minimize(ica(N=300)).X
    auto, small = (
        gs.minimize(ica(N=300), gs.project(X0 + 0.01 * draw(4, 4)), **more) for more in ({}, {"step_size": 0.5})
    )
    assert auto.converged
    torch.testing.assert_close(auto.X, small.X, atol=1e-3, rtol=0)
