"""check_gradient: right gradients pass, wrong ones and batches that disagree do not."""

import numpy as np
import pytest
import torch
from solve.sums import all_problems, draw, ica, quartic_pair, spread_data, stiefel

import glideslope as gs


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_every_problem_passes(dtype):
    for problem in all_problems(dtype):
        result = gs.check_gradient(problem)
        assert result, str(result)
        assert "right" in str(result)
        linear = isinstance(problem, gs.problems.LinearProblem)
        assert result.slope == (np.inf if linear else pytest.approx(2, abs=0.1))
        assert result.batch_error < 1e-14 * 100


def test_sums_functions_and_adaptive_signs_pass():
    assert gs.check_gradient(ica(score="adaptive"))
    for problem in quartic_pair():
        assert gs.check_gradient(problem, batch_size=5)
    assert gs.check_gradient(lambda X: torch.sin(X).sum(), stiefel(6, 2))
    assert gs.check_gradient(lambda X: (X * 0).sum(), stiefel(6, 2))
    assert gs.check_gradient(lambda X: X.square().sum(), np.eye(6, 2))


def test_a_function_so_flat_that_one_error_alone_is_above_rounding_passes():
    M = draw(6, 2)
    for bend in (0.0, 1e-13, 1e-12):
        found = gs.check_gradient(lambda X, bend=bend: (M * X).sum() + bend * X.square().sum(), stiefel(6, 2))
        assert (found.passed, found.slope) == (True, float("inf"))


def test_a_function_that_ignores_x_is_refused():
    with pytest.raises(ValueError, match="does not depend on X"):
        gs.check_gradient(lambda X: X.detach().sum(), stiefel(6, 2))


def test_single_precision_passes_where_the_gradient_is_right():
    for problem in all_problems(torch.float32):
        assert gs.check_gradient(problem), str(gs.check_gradient(problem))


def wrong(change):
    class Wrong(gs.problems.PCA):
        def value_and_gradient(self, X):
            value, G = super().value_and_gradient(X)
            return value, change(X, G)

        def batch_gradient(self, X, index):
            return change(X, super().batch_gradient(X, index).dense())

    return Wrong


@pytest.mark.parametrize(
    "change",
    [lambda X, G: -G, lambda X, G: 2 * G, lambda X, G: 0 * G, lambda X, G: G + 1e-4 * X, lambda X, G: G * 1.001],
    ids=["sign", "factor", "zero", "term", "almost"],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_a_wrong_gradient_fails(change, dtype):
    result = gs.check_gradient(wrong(change)(spread_data(60, 8, dtype=dtype), 3))
    assert not result
    assert result.slope == pytest.approx(1, abs=0.2)
    assert "WRONG" in str(result)


def test_a_wrong_gradient_fails_in_single_precision_and_for_linear_functions():
    assert not gs.check_gradient(wrong(lambda X, G: 2 * G)(spread_data(60, 8, dtype=torch.float32), 3))
    problem = gs.problems.LinearProblem(draw(6, 2))
    value = problem.value_and_gradient
    problem.value_and_gradient = lambda X: (value(X)[0], 2 * value(X)[1])
    assert not gs.check_gradient(problem)


@pytest.mark.parametrize("what", [float("nan"), float("inf")])
def test_a_wrong_gradient_fails_where_long_steps_leave_the_domain(what):
    class Barrier(gs.problems.Function):
        factor = 1.0

        def value_and_gradient(self, X):
            value, G = super().value_and_gradient(X)
            return value, G * self.factor

    problem = Barrier(lambda X: torch.where(X.norm() > 1.6, what, (X**4).sum()))
    assert gs.check_gradient(problem, stiefel(6, 2))
    problem.factor = 2.0
    assert not gs.check_gradient(problem, stiefel(6, 2))


def test_batches_that_disagree_fail():
    class Wrong(gs.problems.PCA):
        def scores(self, Y, index):
            scores = super().scores(Y, index)
            return scores if isinstance(index, slice) else 1.01 * scores

    result = gs.check_gradient(Wrong(spread_data(60, 8), 3))
    assert result.slope > 1.8
    assert result.batch_error == pytest.approx(0.01)
    assert not result
