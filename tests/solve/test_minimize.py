"""minimize: every method under every gradient source, the same iterates from the same seed, nothing of the caller's."""

import numpy as np
import pytest
import torch
from literal import exact_distance, point_at_distance
from solve.sums import draw, ica, linear, pca, procrustes, quartic_pair, spread_data, stiefel

import glideslope as gs
from glideslope.solve.methods import METHODS
from glideslope.solve.sources import SOURCES


def options_for(method, gradient, **more):
    options = {"method": method, "gradient": gradient, "step_size": 0.05, "tolerance": 0.0, **more}
    if method == "penalty":
        options["penalty_weight"] = 3.0
    if gradient != "full":
        options["batch_size"] = 7
    return options


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("gradient", SOURCES)
def test_every_method_under_every_gradient_source_lowers_the_value(method, gradient):
    for problem in (pca(), procrustes(), ica(N=60), quartic_pair(N=60)[1], pca(dtype=torch.complex128)):
        solution = gs.minimize(problem, **options_for(method, gradient, max_epochs=12))
        assert solution.stop_reason == "max_epochs"
        assert solution.value < solution.history.value[0]
        assert solution.distance <= (0.5 if method == "landing" else 1e-12 if method == "riemannian" else 3.0)
        assert solution.distance == pytest.approx(float(exact_distance(solution.X)), abs=1e-12)
        assert solution.value == pytest.approx(float(problem.value(solution.X)), rel=1e-12)


@pytest.mark.parametrize("gradient", SOURCES)
def test_huge_steps_never_leave_the_safe_region(gradient):
    for dtype in (torch.float32, torch.complex64):
        problem = pca(N=60, n=20, p=3, dtype=dtype)  # batches of 7 rows are stepped by their factors
        solution = gs.minimize(problem, **options_for("landing", gradient, max_epochs=6) | {"step_size": 1e5})
        assert solution.history.distance.max() <= 0.5
        assert solution.n_shortened > 0
        assert torch.isfinite(solution.X).all()


@pytest.mark.parametrize("normal_step", ["newton-schulz", "polar"])
@pytest.mark.parametrize("metric", ["canonical", "euclidean"])
def test_the_options_of_the_landing_step_are_used(metric, normal_step):
    problem = pca()
    best = problem.optimum().value
    solution = gs.minimize(
        problem, step_size=0.2, metric=metric, normal_step=normal_step, safeguard="exact", tolerance=1e-8
    )
    assert solution.converged
    assert solution.value == pytest.approx(best, abs=1e-12)
    plain = gs.minimize(problem, step_size=0.2, tolerance=1e-8)
    assert not torch.equal(plain.X, solution.X)


@pytest.mark.parametrize("kind", ["procrustes", "pca"])
def test_landing_gradient_descent_with_a_fixed_step_reaches_the_known_optimum_to_1e_minus_10(kind):
    generator = torch.Generator().manual_seed(4)
    if kind == "pca":
        problem = gs.problems.PCA(torch.randn(50, 8, dtype=torch.float64, generator=generator), 3)
    else:  # tall, with orthonormal columns of A, so that the optimum is known
        A = 5 * gs.random_stiefel(25, 8, dtype=torch.float64, generator=generator)
        problem = gs.problems.Procrustes(A, torch.randn(25, 3, dtype=torch.float64, generator=generator))
    solution = gs.minimize(problem, step_size=0.5, tolerance=1e-9, max_epochs=20_000)
    assert solution.converged
    assert abs(solution.value - problem.optimum().value) < 1e-10
    assert solution.distance < 1e-9


@pytest.mark.parametrize("retraction", ["qr", "polar", "cayley", "exponential"])
def test_every_retraction_reaches_the_optimum(retraction):
    problem = pca()
    for step_size in (0.2, "auto"):
        solution = gs.minimize(problem, method="riemannian", retraction=retraction, step_size=step_size, tolerance=1e-7)
        assert solution.converged
        assert solution.value == pytest.approx(problem.optimum().value, abs=1e-10)


@pytest.mark.parametrize("retraction", ["qr", "polar", "cayley", "exponential"])
def test_every_retraction_mends_a_start_inside_the_safe_region_as_in_riemannian_sgd(retraction, generator):
    problem = pca()
    X0 = point_at_distance(8, 3, 0.3, generator=generator)
    for more in ({"step_size": 0.2}, {"step_size": "auto"}, {"step_size": 0.02, "gradient": "saga", "batch_size": 7}):
        solution = gs.minimize(problem, X0, method="riemannian", retraction=retraction, tolerance=1e-7, **more)
        assert solution.converged
        assert solution.distance < 1e-13
        assert solution.value == pytest.approx(problem.optimum().value, abs=1e-10)
    X = torch.nn.Parameter(X0.clone())
    optimizer = gs.RiemannianSGD([X], lr=0.2, retraction=retraction)
    for _ in range(len(gs.minimize(problem, X0, method="riemannian", step_size=0.2, tolerance=1e-7).history)):
        X.grad = problem.gradient(X.detach())
        optimizer.step()
    assert gs.formulas.distance(X.detach()) < 1e-13
    assert float(problem.value(X.detach())) == pytest.approx(problem.optimum().value, abs=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("far", [0.5, 0.501])
def test_minimize_and_riemannian_sgd_accept_the_same_starts(far, dtype):
    X0 = stiefel(8, 3, dtype=dtype) * (1 + far / 3**0.5) ** 0.5
    calls = (
        lambda: gs.minimize(pca(dtype=dtype), X0, method="riemannian", max_epochs=2),
        lambda: gs.RiemannianSGD([torch.nn.Parameter(X0.clone())]),
    )
    for call in calls:
        if far == 0.5:
            call()
        else:
            with pytest.raises(ValueError, match=r"at distance.* 0\.5"):
                call()


def test_saga_and_svrg_with_a_constant_step_converge_where_minibatches_do_not():
    found = {
        gradient: gs.minimize(
            procrustes(N=100, n=6, p=2), gradient=gradient, step_size=0.1, batch_size=10, max_epochs=300, tolerance=1e-6
        )
        for gradient in ("minibatch", "saga", "svrg")
    }
    assert found["saga"].converged
    assert found["svrg"].gradient_norm < 1e-4
    assert found["minibatch"].stop_reason == "max_epochs"
    assert found["minibatch"].gradient_norm > 1e-3


@pytest.mark.parametrize("sampling", ["iid", "shuffle"])
@pytest.mark.parametrize("gradient", SOURCES)
def test_the_same_seed_gives_the_same_iterates_and_another_seed_others(gradient, sampling):
    problem, X0 = pca(), stiefel(8, 3)
    options = options_for("landing", gradient, max_epochs=8, sampling=sampling, record_every=1)
    first, again, other = (gs.minimize(problem, X0, seed=seed, **options) for seed in (5, 5, 6))
    assert torch.equal(first.X, again.X)
    assert np.array_equal(first.history.value, again.history.value)
    assert torch.equal(first.X, other.X) == (gradient == "full")
    assert not torch.equal(gs.minimize(problem, seed=5, **options).X, gs.minimize(problem, seed=6, **options).X)


def test_nothing_of_the_callers_is_touched():
    X0 = stiefel(8, 3).requires_grad_()
    kept, data = X0.detach().clone(), spread_data(60, 8)
    kept_data = data.clone()
    torch.manual_seed(3)
    before = torch.get_rng_state()
    for gradient in SOURCES:
        for problem in (gs.problems.PCA(data), quartic_pair(N=60, n=8, p=3)[1]):
            gs.minimize(problem, X0, **options_for("landing", gradient, max_epochs=3))
    gs.minimize(linear(), X0)
    gs.minimize(gs.problems.PCA(data, 3))
    gs.check_gradient(gs.problems.PCA(data, 3))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(X0.detach(), kept)
    assert X0.grad is None
    assert torch.equal(data, kept_data)
    assert not torch.is_inference_mode_enabled()
    assert torch.is_grad_enabled()


def test_it_runs_where_gradients_are_switched_off():
    with torch.inference_mode():
        assert gs.minimize(lambda X: X[0].square().sum(), torch.eye(6, 2, dtype=torch.float64) + 0).converged
    with torch.no_grad():
        assert gs.minimize(quartic_pair()[1]).converged


def test_parameters_elsewhere_in_the_function_do_no_harm():
    weight = torch.nn.Parameter(torch.ones(6, dtype=torch.float64))
    solution = gs.minimize(lambda X: (weight[:, None] * torch.arange(6)[:, None] * X**2).sum(), stiefel(6, 2))
    assert solution.value == pytest.approx(1.0)
    assert weight.grad is None


def test_a_start_of_a_square_problem_stays_in_its_component():
    """The determinant is continuous and ±1 on O(n), so the optimum to compare with is that of the component."""
    A, B = draw(30, 4, seed=1), draw(30, 4, seed=2)
    problem = gs.problems.Procrustes(A, B)
    left, _, right = torch.linalg.svd(A.mT @ B)
    for sign in (1.0, -1.0):
        X0 = torch.diag(torch.tensor([1.0, 1, 1, sign], dtype=torch.float64))
        flip = torch.ones(4, dtype=torch.float64)
        flip[-1] = sign * torch.linalg.det(left @ right).sign()
        best = problem.value(left @ torch.diag(flip) @ right)
        for method in ("landing", "riemannian"):
            found = [gs.minimize(problem, X0, method=method, tolerance=1e-8, seed=seed) for seed in range(2)]
            assert all(torch.linalg.det(one.X) * sign > 0 for one in found)
            assert found[0].value == pytest.approx(float(best), rel=1e-9)


@pytest.mark.parametrize("normal_step", ["landing", "newton-schulz"])
def test_a_start_on_the_boundary_of_the_safe_region_is_allowed(normal_step):
    problem = pca()
    X0 = stiefel(8, 3) * (1 + 0.499 / 3**0.5) ** 0.5
    assert gs.formulas.distance(X0) == pytest.approx(0.499)
    solution = gs.minimize(problem, X0, step_size=0.3, normal_step=normal_step, tolerance=1e-8)
    assert solution.converged
    assert solution.history.distance.max() <= 0.5


def test_a_batch_of_one_term_and_of_all_terms_run():
    for batch_size in (1, 60):
        for gradient in SOURCES[1:]:
            options = options_for("landing", gradient, max_epochs=3) | {"batch_size": batch_size}
            solution = gs.minimize(pca(), **options)
            assert solution.value < solution.history.value[0]


def test_a_sum_can_say_its_type():
    data = spread_data(30, 5)
    problem = gs.problems.FiniteSum(
        lambda X, i: -(data[i] @ X).square().sum() / len(i), 30, shape=(5, 2), dtype=data.dtype
    )
    assert gs.minimize(problem).X.dtype == torch.float64
    assert bool(gs.check_gradient(problem))


def test_an_error_of_torch_in_the_function_says_at_which_x():
    A = spread_data(40, 40)
    with pytest.raises(
        RuntimeError, match=r"cannot be evaluated at X, torch.float64 of shape \(30, 4\): mat1 and mat2"
    ):
        gs.minimize(lambda X: (X.T @ A @ X).trace(), gs.random_stiefel(30, 4, dtype=A.dtype))
    with pytest.raises(RuntimeError, match=r"cannot be evaluated at X, torch.float32 of shape \(40, 4\): expected"):
        gs.minimize(lambda X: (X.T @ A @ X).trace(), gs.random_stiefel(40, 4))


def test_a_solution_is_no_start_but_its_x_is():
    solution = gs.minimize(lambda X: X.square().sum(), torch.eye(3, 2))
    with pytest.raises(ValueError, match="got Solution: give its X"):
        gs.minimize(lambda X: X.square().sum(), solution)


def test_a_history_prints_its_length_and_ends():
    history = gs.minimize(lambda X: X[0].sum(), torch.eye(3, 2), max_epochs=20).history
    assert len(history) > 2
    assert repr(history).startswith(f"History of {len(history)} records, from Record(step=0,")
    assert len(repr(history)) < 600


@pytest.mark.parametrize("X0", [torch.eye(2, 6), torch.ones(6), torch.ones(2, 6, 2)], ids=lambda X: str(tuple(X.shape)))
def test_a_start_of_a_function_that_is_not_one_tall_matrix_is_refused(X0):
    with pytest.raises(ValueError, match=r"X0 must have shape \(n, p\) with n >= p; got"):
        gs.minimize(lambda X: X.square().sum(), X0)
