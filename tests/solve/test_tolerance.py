"""When minimize says "converged": relative to the size of f, for every method and type, and never for no reason."""

import pytest
import torch
from solve.sums import draw, linear, pca, procrustes, spread_data, stiefel

import glideslope as gs
from glideslope.stiefel import geometry

METHODS = [{}, {"method": "riemannian"}, {"method": "penalty"}]
FIXED = [
    {"step_size": 0.3},
    {"step_size": 0.3, "method": "riemannian"},
    {"step_size": 0.3, "method": "riemannian", "gradient": "saga", "batch_size": 20, "max_epochs": 400},
]


def scaled(function, scale):
    return lambda X: scale * function(X)


def quadratic(dtype=torch.float64):
    """½ tr(X^H A X), of minimum ½ (1 + 2 + 3)."""
    A = torch.diag(torch.arange(1.0, 9.0, dtype=dtype))
    return lambda X: (X * (A @ X)).sum() / 2


def penalised(options, scale):
    return {**options, "penalty_weight": 50.0 * scale} if options.get("method") == "penalty" else options


@pytest.mark.parametrize("options", [*METHODS[:2], *FIXED])
def test_pca_of_data_in_volts_is_solved_as_in_microvolts(options):
    """f of an EEG in volts is of the order of 1e-10, below any absolute tolerance."""
    if "step_size" in options:
        options = {**options, "step_size": options["step_size"] * 1e10}
        if "method" not in options:
            options["attraction"] = 1e-10
    problem = gs.problems.PCA(spread_data(60, 8) * 1e-5, 3)
    solution = gs.minimize(problem, **options)
    assert solution.converged
    assert solution.n_steps > 0
    assert solution.value == pytest.approx(problem.optimum().value, rel=1e-9)
    assert solution.gradient_norm <= 1e-6 * float(problem.gradient(stiefel(8, 3)).norm())


@pytest.mark.parametrize("scale", [2.0**-660, 2.0**-33, 2.0**40, 2.0**660])
@pytest.mark.parametrize("options", METHODS)
def test_f_scaled_by_a_power_of_two_has_the_same_iterates_to_the_last_bit(options, scale):
    plain = gs.minimize(quadratic(), stiefel(8, 3), **penalised(options, 1.0))
    other = gs.minimize(scaled(quadratic(), scale), stiefel(8, 3), **penalised(options, scale))
    assert plain.converged
    assert other.converged
    assert torch.equal(plain.X, other.X)
    assert plain.n_steps == other.n_steps > 0
    assert other.history.step_size.tolist() == (plain.history.step_size / scale).tolist()
    assert other.value == plain.value * scale
    assert other.gradient_norm == pytest.approx(plain.gradient_norm * scale, rel=1e-12)


@pytest.mark.parametrize(
    ("dtype", "scale"), [(torch.float64, 1e200), (torch.float64, 1e-200), (torch.float32, 1e25), (torch.float32, 1e-25)]
)
@pytest.mark.parametrize("options", [*METHODS, FIXED[1]])
def test_f_whose_norms_overflow_or_vanish_when_squared_is_solved(options, dtype, scale):
    options = penalised(options, scale)
    if "step_size" in options:
        options["step_size"] = 0.1 / scale
    tolerance = 1e-6 if dtype == torch.float64 else 1e-4
    solution = gs.minimize(scaled(quadratic(dtype), scale), stiefel(8, 3, dtype=dtype), tolerance=tolerance, **options)
    assert solution.converged
    assert solution.n_steps > 0
    optimum = 3.0 if "penalty_weight" not in options else solution.value / scale  # below, by the slack of the penalty
    assert solution.value / scale == pytest.approx(optimum, rel=1e-5)
    assert 2.8 < solution.value / scale < 3.0001


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_norms_neither_overflow_nor_vanish(dtype):
    M = draw(40, 5, dtype=dtype)
    expected = float(torch.linalg.vector_norm(M))
    for exponent in (-100, -70, 0, 70, 100):
        assert geometry.scaled_norm(M * 2.0**exponent) == pytest.approx(expected * 2.0**exponent, rel=1e-5)
    assert geometry.scaled_norm(M * 0) == 0
    assert geometry.scaled_norm(M[:0]) == 0
    assert geometry.scaled_norm(M / 0) != geometry.scaled_norm(M / 0) or geometry.scaled_norm(M / 0) == float("inf")


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("options", [*METHODS[:2], *FIXED[:2]])
def test_a_start_at_the_solution_converges_at_once_whatever_the_size_of_f(options, scale):
    if "step_size" in options:
        options = {**options, "step_size": options["step_size"] / scale}
    for problem in (gs.problems.LinearProblem(linear().M * scale), gs.problems.PCA(spread_data(60, 8) * scale**0.5, 3)):
        solution = gs.minimize(problem, problem.optimum().X, **options)
        assert (solution.stop_reason, solution.n_steps) == ("converged", 0)


@pytest.mark.parametrize("options", METHODS[:2])
def test_a_start_at_an_exact_fit_where_the_gradient_vanishes_altogether_converges(options):
    """‖∇f(X0)‖ is no scale there: it is rounding. The gradients of the points that were tried are one."""
    A, X = draw(60, 8, seed=1), stiefel(8, 3)
    problem = gs.problems.Procrustes(A, A @ X)
    for start in (X, gs.project(X + 1e-15 * draw(8, 3)), gs.minimize(problem, seed=1).X):
        solution = gs.minimize(problem, start, **options)
        assert solution.converged
        assert solution.n_steps < 300
        assert solution.gradient_norm < 1e-6


@pytest.mark.parametrize("options", METHODS[:2])
def test_single_precision_converges_with_the_distance_that_rounding_leaves(options):
    """Of 100 float32 columns ‖X^H X - I‖ is computed no better than to several 1e-6."""
    problem = gs.problems.PCA(spread_data(400, 200, dtype=torch.float32), 100)
    solution = gs.minimize(problem, **options)
    assert solution.converged
    assert solution.n_steps < 300
    assert solution.distance < 1.2e-5
    far = gs.minimize(problem, solution.X * (1 + 1e-5), step_size=1e-9, attraction=1.0, max_epochs=2)
    assert not far.converged


def test_a_tolerance_of_zero_never_converges():
    assert gs.minimize(pca(), step_size=0.1, tolerance=0, max_epochs=50).stop_reason == "max_epochs"


@pytest.mark.parametrize("gradient", ["full", "saga"])
def test_more_digits_asked_for_are_more_digits_found(gradient):
    options = {} if gradient == "full" else {"step_size": 0.1, "batch_size": 10, "max_epochs": 1000}
    problem = procrustes(N=100, n=6, p=2)
    start = float(problem.gradient(stiefel(6, 2)).norm())
    for tolerance in (1e-3, 1e-8):
        solution = gs.minimize(problem, stiefel(6, 2), tolerance=tolerance, gradient=gradient, **options)
        assert solution.converged
        assert solution.gradient_norm <= tolerance * start
        assert solution.distance <= tolerance


def test_a_resumed_run_converges_where_an_uninterrupted_one_does(tmp_path):
    whole = gs.minimize(pca(), step_size=0.3)
    gs.minimize(pca(), step_size=0.3, max_epochs=10, checkpoint=tmp_path / "run", checkpoint_every=4)
    again = gs.minimize(pca(), step_size=0.3, checkpoint=tmp_path / "run", checkpoint_every=4)
    assert (again.stop_reason, again.n_steps) == (whole.stop_reason, whole.n_steps) == ("converged", whole.n_steps)


elsewhere = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
IGNORING = {
    "constant": lambda X: torch.tensor(3.0, dtype=torch.float64),
    "detached": lambda X: X.detach()[0].sum(),
    "integer": lambda X: X.argmax(),
    "another parameter": lambda X: elsewhere.sum(),
}


@pytest.mark.parametrize("options", [{}, {"step_size": 0.1}, {"method": "penalty", "penalty_weight": 1.0}])
@pytest.mark.parametrize("name", IGNORING)
def test_a_function_that_ignores_x_is_an_error(name, options):
    with pytest.raises(ValueError, match=r"does not depend on X .* \.detach\(\)"):
        gs.minimize(IGNORING[name], stiefel(6, 2), **options)


def test_a_sum_none_of_whose_terms_depends_on_x_is_an_error_and_one_without_some_is_not():
    detached = gs.problems.FiniteSum(lambda X, index: X.detach().sum() * len(index), 10, shape=(6, 2))
    for options in ({}, {"gradient": "minibatch", "step_size": 0.1, "batch_size": 2}):
        with pytest.raises(ValueError, match="does not depend on X"):
            gs.minimize(detached, **options)

    def some(X, index):
        kept = index[index > 3]
        return X[0, 0] * len(kept) / len(index) if len(kept) else torch.zeros(())

    problem = gs.problems.FiniteSum(some, 10, shape=(6, 2), chunk=2)
    solution = gs.minimize(problem, gradient="minibatch", step_size=0.1, batch_size=1, max_epochs=3)
    assert solution.value < solution.history.value[0]


def test_a_function_that_is_constant_where_it_does_depend_on_x_converges_at_once():
    solution = gs.minimize(lambda X: (X * 0).sum(), stiefel(6, 2))
    assert (solution.stop_reason, solution.n_steps, solution.gradient_norm) == ("converged", 0, 0.0)
    assert torch.equal(solution.X, stiefel(6, 2))


def test_a_function_that_gives_up_far_away_only_shortens_the_step():
    target = stiefel(6, 2, seed=1)

    def function(X):
        if (X - target).norm() > 0.6:
            return torch.tensor(1e30, dtype=X.dtype)  # without a way back to X
        return (X - target).square().sum() + 0.3 * X[0, 0]

    solution = gs.minimize(function, gs.project(target + 0.05 * draw(6, 2)))
    assert solution.converged
