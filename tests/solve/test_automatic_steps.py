"""step_size="auto" of estimated gradients: no tuning, in any type, on any scale, and with every guarantee of a run."""

import itertools
import math

import pytest
import torch
from literal import exact_distance
from solve.sums import draw, ica, pca, quartic_pair, spread_data, stiefel

import glideslope as gs
from glideslope.engine.rule import StepRule
from glideslope.solve.methods import LandingMethod
from glideslope.solve.step_sizes import AIMS, Automatic
from glideslope.stiefel.geometry import Whole

ESTIMATES = ["minibatch", "saga", "svrg"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("method", ["landing", "riemannian"])
@pytest.mark.parametrize("gradient", ["saga", "svrg"])
def test_variance_reduced_runs_converge_to_the_known_optimum_without_a_choice(gradient, method, dtype):
    problem = pca(N=200, dtype=dtype)
    solution = gs.minimize(problem, gradient=gradient, method=method, batch_size=20)
    assert solution.stop_reason == "converged"
    assert solution.value == pytest.approx(problem.optimum().value, rel=1e-9)


@pytest.mark.parametrize("method", ["landing", "riemannian"])
def test_minibatches_come_closer_and_closer_without_a_choice(method):
    problem = pca(N=200)
    best, gaps = problem.optimum().value, []

    def note(record):
        gaps.append(record.value - best)

    gs.minimize(problem, gradient="minibatch", method=method, batch_size=20, max_epochs=300, tolerance=0, callback=note)
    early, late = (max(gaps[k - 10 : k]) for k in (30, 300))
    assert early < 0.05 * gaps[0]
    assert late < 0.2 * early


@pytest.mark.parametrize("gradient", ["saga", "svrg"])
def test_the_penalty_method_reaches_what_the_full_gradient_does(gradient):
    options = {"method": "penalty", "penalty_weight": 20.0, "tolerance": 1e-6}
    full = gs.minimize(pca(), **options)
    found = gs.minimize(pca(), gradient=gradient, batch_size=10, max_epochs=3000, **options)
    assert found.converged
    assert found.value == pytest.approx(full.value, rel=1e-6)


@pytest.mark.parametrize("which", [0, 1], ids=["rows", "general"])
def test_a_sum_of_any_terms_converges_by_saga(which):
    problem = quartic_pair()[which]
    X0 = stiefel(6, 2)
    full, found = gs.minimize(problem, X0), gs.minimize(problem, X0, gradient="saga", batch_size=4)
    assert found.converged
    assert found.value == pytest.approx(full.value, rel=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("gradient", ["saga", "svrg"])
def test_single_precision_reaches_its_tolerance(gradient, dtype):
    problem = pca(N=200, dtype=dtype)
    solution = gs.minimize(problem, gradient=gradient, batch_size=20, tolerance=1e-5)
    assert solution.converged
    assert solution.value == pytest.approx(problem.optimum().value, rel=1e-6)


@pytest.mark.parametrize("power", [-6, 6])
@pytest.mark.parametrize("method", ["landing", "riemannian"])
@pytest.mark.parametrize("gradient", ESTIMATES)
def test_a_multiple_of_f_has_the_same_iterates(gradient, method, power):
    data, options = spread_data(60, 8), {"gradient": gradient, "method": method, "batch_size": 7, "max_epochs": 4}
    plain = gs.minimize(gs.problems.PCA(data, 3), **options)
    scaled = gs.minimize(gs.problems.PCA(data * 10.0 ** (power / 2), 3), **options)
    assert (scaled.X - plain.X).norm() < 1e-9
    assert scaled.history.step_size == pytest.approx(plain.history.step_size / 10.0**power, rel=1e-9)


@pytest.mark.parametrize("safeguard", ["lemma", "exact"])
@pytest.mark.parametrize("gradient", ESTIMATES)
def test_hostile_data_leave_every_iterate_finite_and_inside_the_safe_region(gradient, safeguard):
    data = spread_data(60, 8)
    data[7] *= 1e4  # one term has 1e8 times the curvature of the others
    data[8:20] = 0
    seen = []

    class Watched(gs.problems.PCA):
        def batch_scores(self, X, index):
            seen.append(X.clone())
            return super().batch_scores(X, index)

    options = {"gradient": gradient, "batch_size": 2, "safeguard": safeguard, "max_epochs": 20, "tolerance": 0}
    solution = gs.minimize(Watched(data, 3), **options)
    assert len(seen) >= 150
    assert all(bool(torch.isfinite(X).all()) for X in seen)
    radius = 0.5 if safeguard == "lemma" else 0.5 * 3**0.5  # "exact" bounds the spectral norm
    assert max(exact_distance(X) for X in seen) <= radius * (1 + 1e-12)
    assert math.isfinite(solution.value)
    assert all(0 <= size < math.inf for size in solution.history.step_size)


@pytest.mark.parametrize("gradient", ESTIMATES)
def test_gradients_that_are_not_finite_are_skipped(gradient):
    data = draw(40, 6)

    def mean(X, index):
        value = (data[index] @ X).square().sum() / len(index)
        return value * float("nan") if 3 in index else value

    problem = gs.problems.FiniteSum(mean, 40, shape=(6, 2), dtype=torch.float64)
    problem.value_and_gradient = lambda X: gs.problems.PCA(data, 2).value_and_gradient(X)
    solution = gs.minimize(problem, gradient=gradient, batch_size=4, max_epochs=5)
    assert bool(torch.isfinite(solution.X).all())
    assert exact_distance(solution.X) <= 0.5


def test_batches_without_a_gradient_wait_for_one_that_has_one():
    data = spread_data(60, 8)
    data[:59] = 0
    options = {"gradient": "minibatch", "sampling": "shuffle", "batch_size": 1, "record_every": 1, "max_epochs": 2}
    solution = gs.minimize(gs.problems.PCA(data, 1), **options)
    sizes, values = solution.history.step_size, solution.history.value
    first = int((sizes > 0).argmax())
    assert 1 < first < 60
    assert values[:first] == pytest.approx(values[0], rel=1e-9)  # which the data and then the covariance give
    assert values[-1] < values[0]


def test_the_step_size_follows_the_angle_between_moves():
    X = stiefel(8, 3)
    for gradient, (aim, gain, patience) in AIMS.items():
        steps = Automatic(LandingMethod(X, StepRule(), Whole()), X, Whole(), gradient, 100, "euclidean", None)
        points, sizes = [X.clone()], []
        Y = X.clone()
        for k in range(12):
            Y = steps.step(Y, draw(8, 3, seed=k), steps.step_size_at(k))
            points.append(Y.clone())
            sizes.append(steps.step_size)
        moves = [(after - before).flatten() for before, after in itertools.pairwise(points)]
        cosines = [float(torch.cosine_similarity(*pair, dim=0)) for pair in itertools.pairwise(moves)]
        assert steps.shortened == 0
        assert min(cosines) < 0 < max(cosines)
        for k, cosine in enumerate(cosines):
            late, after = (1 + sum(one < 0 for one in cosines[:end]) / patience for end in (k, k + 1))
            wanted = math.exp(gain * (cosine - aim) / late**0.5) * late / after
            assert sizes[k + 1] / sizes[k] == pytest.approx(wanted, rel=1e-9)


def test_a_shortened_step_makes_the_next_one_shorter():
    X = stiefel(8, 3)
    steps = Automatic(LandingMethod(X, StepRule(), Whole()), X, Whole(), "saga", 100, "euclidean", None)
    Y = steps.step(X.clone(), draw(8, 3), 1e6)
    assert steps.shortened == 1
    assert steps.step_size == pytest.approx(1e6 * math.exp(-0.11))  # γ (-1 - θ)
    assert exact_distance(Y) <= 0.5


@pytest.mark.parametrize("score", ["logcosh", "adaptive"])
def test_ica_without_a_choice_is_ica_of_the_full_gradient(score):
    problem, X0 = ica(N=500, score=score), stiefel(4, 4)
    full = gs.minimize(problem, X0)
    found = gs.minimize(problem, X0, gradient="saga", batch_size=25)
    assert found.converged
    assert found.gradient_norm <= 1e-6 * float(problem.gradient(X0).norm()) * 1.01
    assert found.value <= full.value + 0.2 * abs(full.value)
