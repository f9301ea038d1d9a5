"""The quasi-Newton memory against the literal BFGS update, what it saves, and functions that are hard on a search."""

import math

import numpy as np
import pytest
import torch
from literal import exact_distance
from solve.barzilai_borwein import evaluations_of_barzilai_borwein
from solve.sums import draw, pca, stiefel

import glideslope as gs
from glideslope.solve.quasi_newton import PAIRS, Pairs, first_inverse, flat, mean_and_spread, shaped
from glideslope.stiefel.geometry import Whole

DTYPES = [torch.float64, torch.complex128, torch.float32, torch.complex64]


def literal_inverse_hessian(pairs, H=None):
    """(I - s yᵀ/sᵀy) H (I - y sᵀ/sᵀy) + s sᵀ/sᵀy for one pair after the other, from H₀, by default γ I."""
    s, y = pairs[-1]
    H = torch.eye(len(s), dtype=torch.float64) * (s @ y) / (y @ y) if H is None else H
    for s, y in pairs:
        V = torch.eye(len(s), dtype=torch.float64) - torch.outer(y, s) / (s @ y)
        H = V.mT @ H @ V + torch.outer(s, s) / (s @ y)
    return H


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", [1, 2, PAIRS - 1, PAIRS, PAIRS + 1, 2 * PAIRS + 3])
@pytest.mark.parametrize("with_first", [False, True])
def test_products_are_those_of_the_bfgs_update_of_the_last_pairs(number, dtype, with_first):
    X = draw(6, 3, dtype=dtype)
    memory, pairs, T = Pairs(X, Whole()), [], draw(6, 3, seed=1000, dtype=dtype)
    curvature = flat(draw(6, 3, seed=99, dtype=dtype)).abs() + 0.5
    for i in range(number):
        s = draw(6, 3, seed=i, dtype=dtype)
        y = torch.view_as_complex((flat(s) * curvature).view(6, 3, 2)) if s.is_complex() else s * curvature.view(6, 3)
        assert memory.add(X, T, X + s, T + y) == pytest.approx(float(s.norm()), rel=1e-5)
        X, T = X + s, T + y
        pairs = [*pairs, (flat(s).double(), flat(y).double())][-PAIRS:]
    assert len(memory) == len(pairs)
    first = None
    if with_first:
        memory.first = draw(3, 3, seed=98, dtype=dtype)
        memory.first = memory.first @ memory.first.mH + 0.1 * torch.eye(3, dtype=dtype)
        units = torch.eye(flat(T).numel(), dtype=torch.float64).to(T.real.dtype)
        first = torch.stack([flat(shaped(unit, T) @ memory.first).double() for unit in units])
    found, slope = memory.descent(T, float(T.norm()))
    expected = -literal_inverse_hessian(pairs, first) @ flat(T).double()
    rel = 1e-9 if dtype in (torch.float64, torch.complex128) else 2e-3
    torch.testing.assert_close(flat(found).double(), expected, rtol=rel, atol=rel * float(expected.norm()))
    assert slope == pytest.approx(-float(flat(T).double() @ expected), rel=rel)


def hermitian(p, *, seed, dtype=torch.float64):
    H = draw(p, p, seed=seed, dtype=dtype)
    return (H + H.mH) / 2


def inner(A, B):
    return float((A.conj() * B).sum().real)


@pytest.mark.parametrize("beta", [1.0, 0.6, -0.8])
@pytest.mark.parametrize("dtype", DTYPES[:2])
def test_the_first_inverse_is_eight_terms_of_the_series_of_the_shifted_multiplier(dtype, beta):
    Lambda, s, scale = hermitian(4, seed=20, dtype=dtype), draw(7, 4, seed=21, dtype=dtype), 0.2
    identity = torch.eye(4, dtype=dtype)
    Lambda = Lambda + 3 * identity
    along = inner(s, s @ Lambda) / inner(s, s)
    mean, spread = mean_and_spread(Lambda)
    assert mean == pytest.approx(float(torch.linalg.eigvalsh(Lambda).mean()))
    assert spread == pytest.approx(float((Lambda - mean * identity).norm()))
    # c is such that the Rayleigh quotient of c I + β Λ along s is 1/γ.
    M = (1 / scale - beta * along) * identity + beta * Lambda
    top = 1 / scale + beta * (mean - along) + abs(beta) * spread
    E = identity - M / top
    assert float(torch.linalg.eigvalsh(E).min()) > 0
    expected = sum(torch.linalg.matrix_power(E, k) for k in range(8)) / top
    W = first_inverse(Lambda, mean, spread, along, beta, scale)
    torch.testing.assert_close(W, expected)
    # An inverse where c I + β Λ is large, and less than one where it is small.
    found = torch.linalg.eigvals(W @ M).real
    assert float(found.min()) > 0.5
    assert float(found.max()) <= 1


@pytest.mark.parametrize("scale", [1e-3, 0.2, 0.7, 1e3])
def test_the_first_inverse_is_positive_definite_whatever_the_multiplier(scale):
    formed = 0
    for seed in range(40):
        Lambda = 2 * hermitian(5, seed=seed) * 10 ** (seed % 5 - 2) - (seed % 3) * torch.eye(5, dtype=torch.float64)
        mean, spread = mean_and_spread(Lambda)
        along, beta = float(torch.linalg.eigvalsh(Lambda)[seed % 5]), (1.0, -1.0, 0.5)[seed % 3]
        W = first_inverse(Lambda, mean, spread, along, beta, scale)
        if W is not None:
            formed += 1
            values = torch.linalg.eigvalsh(W)
            assert float(values.min()) > 0
            assert float(values.max()) <= 70 / (abs(beta) * spread)
    assert formed > 5


def test_no_first_inverse_where_the_constraint_hardly_matters_or_the_multiplier_is_not_finite():
    Lambda = hermitian(4, seed=20)
    mean, spread = mean_and_spread(Lambda)
    assert first_inverse(Lambda, mean, spread, mean, 1.0, 1.0) is not None
    assert first_inverse(Lambda, mean, spread, mean, 1.0, 0.01) is None
    assert first_inverse(Lambda, mean, spread, mean, 0.01, 1.0) is None
    for scale in (0.0, math.inf):
        assert first_inverse(Lambda, mean, spread, mean, 1.0, scale) is None
    memory = Pairs(Lambda, Whole())
    assert memory.add(Lambda, Lambda, Lambda, Lambda, Lambda) == 0  # a step that rounding made none
    assert memory.first is None
    for multiplier in (torch.eye(3), torch.ones(1, 1), Lambda * math.inf, Lambda * math.nan):
        X, s = draw(6, len(multiplier)), draw(6, len(multiplier), seed=1)
        memory = Pairs(X, Whole())
        memory.add(X, X, X + s, X + s, multiplier.double())
        assert memory.first is None
        assert len(memory) == 1


@pytest.mark.parametrize("dtype", DTYPES[:2])
@pytest.mark.parametrize("beta", [1.0, 0.3, -0.7])
def test_the_share_of_the_constraint_is_found_where_the_hessian_is_what_is_assumed(dtype, beta):
    Lambda, X = hermitian(4, seed=20, dtype=dtype), draw(7, 4, dtype=dtype)
    M = 3 * torch.eye(4, dtype=dtype) + beta * Lambda
    memory, T = Pairs(X, Whole()), X @ M
    for seed in range(3):
        s = draw(7, 4, seed=30 + seed, dtype=dtype)
        memory.add(X, T, X + s, T + s @ M, Lambda)
        X, T = X + s, T + s @ M
        assert memory._steepest[1] == pytest.approx(beta, rel=1e-10)
    assert memory.first is not None
    mean, spread = mean_and_spread(Lambda)
    along = inner(s, s @ Lambda) / inner(s, s)
    torch.testing.assert_close(memory.first, first_inverse(Lambda, mean, spread, along, beta, memory.scale))
    memory.forget(1.0)
    assert memory.first is None


def test_the_steepest_pair_decides_the_share_of_the_constraint_until_it_has_faded():
    Lambda, X, s = hermitian(4, seed=20), draw(7, 4), draw(7, 4, seed=30)
    identity = torch.eye(4, dtype=X.dtype)
    memory = Pairs(X, Whole())

    def added(curvature, beta):
        memory.add(X, X, X + s, X + s @ (curvature * identity + beta * Lambda), Lambda)
        return memory._steepest[1]

    assert added(9.0, 0.5) == pytest.approx(0.5)
    assert added(6.0, -0.5) == pytest.approx(0.5)
    assert added(12.0, 0.7) == pytest.approx(0.7)
    steps = next(k for k in range(1000) if added(6.0, -0.2) == pytest.approx(-0.2))
    assert 100 < steps < 200  # 0.99^k = (6/12)²


def test_the_share_of_the_constraint_stays_between_minus_one_and_one():
    Lambda, X, s = hermitian(4, seed=20), draw(7, 4), draw(7, 4, seed=30)
    mean, spread = mean_and_spread(Lambda)
    along = inner(s, s @ Lambda) / inner(s, s)
    for sign in (1, -1):
        memory = Pairs(X, Whole())
        memory.add(X, X, X + s, X + s @ (9 * torch.eye(4, dtype=X.dtype) + 5 * sign * Lambda), Lambda)
        expected = first_inverse(Lambda, mean, spread, along, sign, memory.scale)
        torch.testing.assert_close(memory.first, expected)


def test_what_is_known_of_the_constraint_saves_evaluations_and_costs_none_where_it_misleads(monkeypatch):
    """Joint diagonalisation, Brockett's function with A of both signs, and one where ∇²f outweighs the constraint."""
    A, U, B = hermitian(60, seed=10), stiefel(15, 15, seed=8), spread_eigenvalues(60, 0.5)
    C = (U * draw(10, 1, 15, seed=9)) @ U.mT
    weights = torch.arange(1.0, 7.0, dtype=torch.float64)
    problems = {
        "joint": (lambda X: -(X * (C @ X)).sum(1).square().sum() / 4, (15, 15), 0.85),
        "Brockett": (lambda X: ((X * (A @ X)).sum(0) * weights).sum() / 2, (60, 6), 0.85),
        "misleading": (lambda X: ((X * (B @ X)).sum(0) * weights).sum() / 2, (60, 6), 1.05),
    }
    counts = {}
    for used in (True, False):
        if not used:
            monkeypatch.setattr("glideslope.solve.quasi_newton.first_inverse", lambda *_: None)
        for name, (function, shape, _) in problems.items():
            runs = [gs.minimize(function, stiefel(*shape, seed=seed), tolerance=1e-6) for seed in range(6)]
            assert all(run.converged for run in runs)
            counts[name, used] = sum(run.n_gradients for run in runs)
    for name, (_, _, share) in problems.items():
        assert counts[name, True] < share * counts[name, False], counts


def test_a_pair_along_which_f_bends_down_or_not_at_all_is_left_out():
    X, s = draw(6, 3), draw(6, 3, seed=1)
    memory = Pairs(X, Whole())
    memory.forget(0.01)
    T = X + s
    assert memory.add(X, X, X + s, T) > 0
    assert len(memory) == 1
    for y in (-s, s * 0, draw(6, 3, seed=2) - s * ((draw(6, 3, seed=2) * s).sum() / (s * s).sum())):
        memory.add(X, T, X + s, T + y)
        T = T + y
        assert len(memory) == 1
        direction, slope = memory.descent(T, float(T.norm()))
        assert slope == pytest.approx(-float((T * direction).sum()), rel=1e-10)
        assert slope > 0
        assert np.isfinite(memory.scale)
    memory.forget(0.5)
    torch.testing.assert_close(memory.descent(X, float(X.norm()))[0], X * -0.5)


def remembering(*, forget_first):
    """A memory of two pairs, of which the first may be forgotten, with the last gradient."""
    Lambda, X = hermitian(4, seed=20), draw(7, 4)
    M = 3 * torch.eye(4, dtype=X.dtype) + 0.5 * Lambda
    memory, T = Pairs(X, Whole()), X @ M
    for seed in range(2):
        s = draw(7, 4, seed=30 + seed)
        memory.add(X, T, X + s, T + s @ M, Lambda)
        X, T = X + s, T + s @ M
        if forget_first and seed == 0:
            memory.forget(1.0)
    return memory, T, (flat(s), flat(s @ M))


def test_what_is_forgotten_has_no_part_in_later_directions():
    memory, T, pair = remembering(forget_first=True)
    memory.first = None
    found, _ = memory.descent(T, float(T.norm()))
    torch.testing.assert_close(flat(found), -literal_inverse_hessian([pair]) @ flat(T))


def test_a_memory_goes_on_from_its_state():
    memory, T, _ = remembering(forget_first=False)
    other = Pairs(T, Whole())
    other.resume(memory.state(), T.device)
    assert other._steepest == memory._steepest
    assert other._steepest[0] > 0
    assert torch.equal(other.descent(T, float(T.norm()))[0], memory.descent(T, float(T.norm()))[0])


def test_a_change_of_the_gradient_that_overflows_leaves_directions_finite():
    largest = torch.finfo(torch.float32).max
    X, s, T = draw(6, 3, dtype=torch.float32), draw(6, 3, seed=1, dtype=torch.float32), torch.ones(6, 3)
    memory = Pairs(X, Whole())
    memory.add(X, T, X + s, T + s)
    memory.add(X, T * -largest, X + s, T * largest)
    assert len(memory) == 1
    memory.add(X, T, X, T)  # T is the last gradient again
    direction, slope = memory.descent(T, float(T.norm()))
    assert bool(torch.isfinite(direction).all())
    assert math.isfinite(slope)


def spread_eigenvalues(n, decades):
    U = stiefel(n, n, seed=3)
    return (U * torch.logspace(0, decades, n, dtype=torch.float64)) @ U.mT


def ill_conditioned():
    A = spread_eigenvalues(60, 2)
    M, N = draw(80, 40, seed=5) * torch.logspace(0, -2, 40, dtype=torch.float64), draw(80, 4, seed=6)
    B = spread_eigenvalues(20, 1)
    U = stiefel(20, 20, seed=7)
    C = U.mT @ B @ U
    weights = torch.arange(1.0, 5.0, dtype=torch.float64)
    return {
        "eigenvalues": (lambda X: (X * (A @ X)).sum() / 2, (60, 4)),
        "Brockett": (lambda X: ((X * (A @ X)).sum(0) * weights).sum() / 2, (60, 4)),
        "Procrustes": (lambda X: (M @ X - N).square().sum() / 2, (40, 4)),
        "matching": (lambda X: (B @ X - X @ C).square().sum() / 2, (20, 20)),
        "quartic": (lambda X: (A @ X).pow(4).sum().sqrt(), (60, 2)),
    }


@pytest.mark.parametrize("name", ill_conditioned())
def test_fewer_evaluations_than_barzilai_borwein_on_ill_conditioned_problems(name):
    function, shape = ill_conditioned()[name]
    for seed in range(2):
        X0 = stiefel(*shape, seed=seed)
        point = X0.clone().requires_grad_()
        (G,) = torch.autograd.grad(function(point), point)
        tangent = G - X0 @ (X0.mT @ G + G.mT @ X0) / 2
        solution = gs.minimize(function, X0, tolerance=1e-6 * float(tangent.norm() / G.norm()), max_epochs=20_000)
        assert solution.converged
        theirs = evaluations_of_barzilai_borwein(function, X0, reduction=1e-6)
        assert solution.n_passes < theirs, f"{solution.n_passes:.0f} against {theirs}"


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_solution_in_all_four_types(dtype):
    A = torch.diag(torch.linspace(1, 4, 12, dtype=torch.float64))
    problem = gs.problems.Quadratic(A.to(dtype), torch.tensor([3.0, 2.0, 1.0], dtype=A.to(dtype).real.dtype))
    single = dtype in (torch.float32, torch.complex64)
    solution = gs.minimize(problem, seed=1, tolerance=1e-4 if single else 1e-9)
    assert solution.converged
    assert solution.X.dtype == dtype
    distances = [abs(abs(float(solution.X[j, j].abs())) - 1) for j in range(3)]
    assert max(distances) < (1e-3 if single else 1e-9)


def test_memory_is_sixteen_matrices_and_does_not_grow():
    X = draw(50, 7)
    memory = Pairs(X, Whole())
    size = memory._vectors.numel()
    assert size == 16 * X.numel()
    for i in range(30):
        s = draw(50, 7, seed=i)
        memory.add(X, X, X + s, X + s)
    assert len(memory) == PAIRS
    assert memory._vectors.numel() == size


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64])
@pytest.mark.parametrize("options", [{}, {"method": "riemannian"}, {"method": "penalty", "penalty_weight": 50.0}])
def test_a_run_that_was_killed_after_its_memory_was_full_ends_where_an_uninterrupted_one_does(options, dtype, tmp_path):
    A = spread_eigenvalues(20, 2).to(dtype)
    problem = gs.problems.Quadratic(A, torch.arange(1.0, 4.0, dtype=A.real.dtype))
    options = {"max_epochs": 60, "tolerance": 0, **options}
    whole = gs.minimize(problem, **options)

    def kill(record):
        if record.step >= 2 * PAIRS + 5:
            raise Killed

    with pytest.raises(Killed):
        gs.minimize(problem, checkpoint=tmp_path / "run", checkpoint_every=3, callback=kill, **options)
    resumed = gs.minimize(problem, checkpoint=tmp_path / "run", checkpoint_every=3, **options)
    assert torch.equal(resumed.X, whole.X)
    assert resumed.n_steps == whole.n_steps
    assert [record[3:7] for record in resumed.history] == [record[3:7] for record in whole.history]


def test_a_first_trial_that_passes_costs_one_evaluation():
    solution = gs.minimize(pca(N=200, n=20, p=3), seed=2)
    assert solution.converged
    assert (np.diff(solution.history.passes) == 1).mean() > 0.9


def jump(X):
    return torch.where(X[0, 0] > 0.2, 1.0, -1.0) + (X * torch.arange(1.0, 9.0, dtype=X.dtype)[:, None]).square().sum()


def undefined_around_the_minimum(X):
    value = (X * torch.arange(1.0, 9.0, dtype=X.dtype)[:, None]).square().sum()
    return value * float("nan") if X[0].norm() > 0.9 else value


def falls_to_minus_infinity(X):
    return torch.log((X[0].norm() - 0.1).abs())


def minus_infinity_around_the_minimum(X):
    value = (X * torch.arange(1.0, 9.0, dtype=X.dtype)[:, None]).square().sum()
    return value - float("inf") if X[0].norm() > 0.9 else value


def corner(X):
    return X.abs().sum()


def steep_root(X):
    return (X[0] - 0.3).abs().sqrt().sum()


def rough(X):
    return (1e6 * X).round().sum() * 1e-6 + X.square().sum() * 0


@pytest.mark.parametrize(
    "function",
    [
        jump,
        undefined_around_the_minimum,
        minus_infinity_around_the_minimum,
        falls_to_minus_infinity,
        corner,
        steep_root,
        rough,
    ],
)
@pytest.mark.parametrize("method", ["landing", "riemannian"])
def test_hard_functions_end_with_a_reason_at_a_finite_point(function, method):
    for seed in range(3):
        X0 = stiefel(8, 2, seed=seed)
        solution = gs.minimize(function, X0, method=method, max_epochs=300)
        assert solution.stop_reason in ("converged", "stalled", "max_epochs")
        assert torch.isfinite(solution.X).all()
        assert np.isfinite(solution.value)
        assert exact_distance(solution.X) < 1e-13
        assert solution.value <= float(function(X0)) + 1e-12


@pytest.mark.parametrize("scale", [1e200, 1e-200])
@pytest.mark.parametrize("method", ["landing", "riemannian"])
def test_a_function_of_any_size_has_the_same_solution(scale, method):
    A = spread_eigenvalues(20, 1)
    X0 = stiefel(20, 3)
    plain, scaled = (
        gs.minimize(lambda X, size=size: (X * (A @ X)).sum() * size, X0, method=method) for size in (1.0, scale)
    )
    assert plain.converged
    assert scaled.converged
    torch.testing.assert_close(scaled.X @ scaled.X.mT, plain.X @ plain.X.mT, atol=1e-5, rtol=0)
    assert scaled.value / scale == pytest.approx(plain.value, rel=1e-9)
    assert scaled.n_steps <= 1.2 * plain.n_steps  # many more where pairs are lost to overflow


class ChangesX(gs.problems.Problem):
    def value_and_gradient(self, X):
        X.mul_(0.5)
        return X.sum(), torch.ones_like(X)


def test_a_problem_that_changes_x_is_refused_and_a_function_that_does_changes_its_own_copy():
    with pytest.raises(ValueError, match=r"ChangesX.value_and_gradient changed X in place; work on X.clone\(\) there"):
        gs.minimize(ChangesX(), stiefel(6, 2))
    with pytest.raises(RuntimeError, match="in-place"):
        gs.minimize(lambda X: X.mul_(2).sum(), stiefel(6, 2))
    X0 = stiefel(6, 2)

    def writes(X):
        value = (X * torch.arange(1.0, 7.0, dtype=X.dtype)[:, None]).square().sum()
        X.data.zero_()
        return value * 1.0

    solution = gs.minimize(writes, X0, max_epochs=50)
    assert torch.equal(X0, stiefel(6, 2))
    assert exact_distance(solution.X) < 1e-13


@pytest.mark.parametrize(
    ("function", "got"),
    [(lambda X: X.sum(0), r"torch.float64 of shape \(2,\)"), (lambda X: 1.0, "float"), (lambda X: None, "NoneType")],
)
def test_a_function_that_returns_no_scalar_is_an_error_that_says_what_it_got(function, got):
    with pytest.raises(ValueError, match=rf"a real scalar, a tensor of shape \(\); got {got}"):
        gs.minimize(function, stiefel(6, 2))
