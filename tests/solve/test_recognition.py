"""A checkpoint is resumed by the problem it is of and by no other; rounding is not mistaken for another problem."""

import pytest
import torch
from solve.sums import draw, ica, pca, procrustes, spread_data, stiefel

import glideslope as gs
from glideslope.solve.problem import as_problem
from glideslope.solve.recognition import fingerprint

A, B = draw(8, 8, seed=1), draw(8, 8, seed=2)


def quadratic(M):
    return lambda X: (X * (M @ X)).sum()


def mean_of(data):
    return lambda X, index: -(data[index] @ X).square().sum() / len(index)


def finite_sum(data):
    return gs.problems.FiniteSum(mean_of(data), len(data), shape=(8, 3), dtype=data.dtype)


def with_offset(M):
    return lambda X: (X * (M @ X)).sum() + 0.5


def with_a_cubic_term(M):
    """The same value and gradient at stiefel(8, 3) as without the term."""
    return lambda X: (X * (M @ X)).sum() + (X - stiefel(8, 3)).pow(3).sum()


SAGA = {"gradient": "saga", "step_size": 0.01, "batch_size": 9}
# Problem, another one of the same shapes, options, and the words that name the difference.
OTHERS = {
    "function": (lambda: quadratic(A), lambda: quadratic(B), {}, "value"),
    "function plus a number": (lambda: quadratic(A), lambda: with_offset(A), {}, "value"),
    "function of the same first order": (lambda: quadratic(A), lambda: with_a_cubic_term(A), {}, "value"),
    "pca": (pca, lambda: pca(seed=1), {}, "value"),
    "pca by saga": (pca, lambda: pca(seed=1), SAGA, "value"),
    "procrustes": (procrustes, lambda: gs.problems.Procrustes(draw(60, 8, seed=1), draw(60, 3)), {}, "value"),
    "sum": (lambda: finite_sum(spread_data(60, 8)), lambda: finite_sum(spread_data(60, 8, seed=1)), SAGA, "value"),
    "linear": (
        lambda: gs.problems.LinearProblem(draw(8, 3)),
        lambda: gs.problems.LinearProblem(draw(8, 3, seed=1)),
        {"step_size": 0.01},
        "value",
    ),
}


def run(problem, path, X0=None, **options):
    options = {"max_epochs": 9, "tolerance": 0, "checkpoint": path, "checkpoint_every": 2, **options}
    return gs.minimize(problem, stiefel(8, 3) if X0 is None else X0, **options)


@pytest.mark.parametrize("name", OTHERS)
def test_another_problem_of_the_same_shapes_is_refused_with_what_differs(name, tmp_path):
    make, other, options, words = OTHERS[name]
    first = run(make(), tmp_path / "run", **options)
    with pytest.raises(ValueError, match=rf"checkpoint '.*run' is of another problem: the {words} .* another file"):
        run(other(), tmp_path / "run", **options)
    again = run(make(), tmp_path / "run", **options)
    assert torch.equal(again.X, first.X)


def test_a_function_with_another_gradient_alone_is_refused(tmp_path):
    class Scaled(gs.problems.LinearProblem):
        factor = 1.0

        def value_and_gradient(self, X):
            value, G = super().value_and_gradient(X)
            return value, G * self.factor

    problem = Scaled(draw(8, 3))
    run(problem, tmp_path / "run", step_size=0.01)
    problem.factor = 1.1
    with pytest.raises(ValueError, match=r"of another problem: the gradient norm .* was .*, and is"):
        run(problem, tmp_path / "run", step_size=0.01)


def test_another_start_is_refused_to_the_last_bit(tmp_path):
    run(pca(), tmp_path / "run")
    close = stiefel(8, 3)
    close[0, 0] += 1e-15
    for X0 in (stiefel(8, 3, seed=1), close):
        with pytest.raises(ValueError, match=r"is of a run with X0=.*; this one has X0="):
            run(pca(), tmp_path / "run", X0)
    with pytest.raises(ValueError, match="this one has X0='random, by the seed'"):
        gs.minimize(pca(), max_epochs=9, tolerance=0, checkpoint=tmp_path / "run", checkpoint_every=2)
    assert run(pca(), tmp_path / "run", stiefel(8, 3).numpy()).n_steps > 0  # the same numbers as a NumPy array


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
def test_rounding_of_another_machine_or_number_of_threads_is_not_another_problem(dtype, rounding, tmp_path):
    makers = {
        "function": lambda factor: quadratic(A.to(dtype) * factor),
        "pca": lambda factor: gs.problems.PCA(spread_data(60, 8, dtype=dtype) * factor, 3),
    }
    for name, make in makers.items():
        X0 = stiefel(8, 3, dtype=dtype)
        run(make(1.0), tmp_path / name, X0)
        assert run(make(1 + rounding), tmp_path / name, X0).n_steps > 0
        with pytest.raises(ValueError, match="of another problem"):
            run(make(1.01), tmp_path / name, X0)


def test_a_value_that_happens_to_be_near_zero_is_compared_with_the_size_of_f(tmp_path):
    def shifted(by):
        return lambda X: quadratic(A)(X) + by

    value = fingerprint(as_problem(shifted(0.0)), stiefel(8, 3))["value"]
    run(shifted(-value), tmp_path / "run")
    assert run(shifted(1e-13 - value), tmp_path / "run").n_steps > 0


@pytest.mark.parametrize("signs", ["of a run before", "none"])
def test_signs_that_a_problem_adapted_in_another_run_are_not_another_problem(signs, tmp_path):
    problem = ica(score="adaptive")
    options = {"step_size": 0.1, "max_epochs": 6, "tolerance": 0, "checkpoint": tmp_path / "run", "checkpoint_every": 2}
    if signs == "of a run before":
        problem.signs = -torch.ones(4, dtype=torch.float64)
    gs.minimize(problem, **options)
    first = gs.minimize(problem, **options)
    again = gs.minimize(ica(score="adaptive"), **options)
    assert torch.equal(first.X, again.X)


def test_recognising_a_sum_costs_a_few_terms_whatever_their_number(tmp_path):
    counts = []

    def counted(X, index):
        counts.append(len(index))
        return mean_of(data)(X, index)

    data = spread_data(3000, 8)
    problem = gs.problems.FiniteSum(counted, 3000, shape=(8, 3), dtype=torch.float64)
    options = {"step_size": 0.01, "gradient": "minibatch", "batch_size": 1000, "max_epochs": 1}
    run(problem, tmp_path / "run", **options)
    with_checkpoint = sum(counts)
    counts.clear()
    gs.minimize(problem, stiefel(8, 3), tolerance=0, **options)
    assert 0 < with_checkpoint - sum(counts) <= 64


def test_a_sum_of_the_users_own_class_is_recognised_by_its_batches(tmp_path):
    class Own(gs.problems.Problem):
        def __init__(self, data):
            self.data, self.n_terms, self.shape, self.dtype = data, len(data), (8, 3), data.dtype

        def value_and_gradient(self, X):
            return -(self.data @ X).square().sum() / 60, -2 / 60 * self.data.mT @ (self.data @ X)

        def batch_gradient(self, X, index):
            return -2 / len(index) * self.data[index].mT @ (self.data[index] @ X)

    run(Own(spread_data(60, 8)), tmp_path / "run", **SAGA)
    with pytest.raises(ValueError, match="of another problem: the gradient norm"):
        run(Own(spread_data(60, 8, seed=1)), tmp_path / "run", **SAGA)


def test_a_run_without_a_checkpoint_evaluates_nothing_more():
    calls = []

    def counted(X):
        calls.append(1)
        return quadratic(A)(X)

    solution = gs.minimize(counted, stiefel(8, 3))
    assert len(calls) == solution.n_passes


def test_complex_problems_are_recognised(tmp_path):
    def make(seed):
        return gs.problems.PCA(spread_data(60, 8, seed=seed, dtype=torch.complex128), 3)

    X0 = stiefel(8, 3, dtype=torch.complex128)
    first = run(make(0), tmp_path / "run", X0)
    assert torch.equal(run(make(0), tmp_path / "run", X0).X, first.X)
    with pytest.raises(ValueError, match="of another problem"):
        run(make(1), tmp_path / "run", X0)
