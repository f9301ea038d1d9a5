"""Quadratics and joint diagonalisation: the literal definition, autograd and finite differences; known optima."""

import numpy as np
import pytest
import torch
from literal import point_at_distance
from solve.sums import draw, stiefel
from torch.utils._python_dispatch import TorchDispatchMode

import glideslope as gs
from glideslope.solve.problem import differentiate

DTYPES = [torch.float64, torch.complex128, torch.float32, torch.complex64]


def hermitian(*shape, seed=0, dtype=torch.float64):
    M = draw(*shape, seed=seed, dtype=dtype)
    return (M + M.mH) / 2


def literal_quadratic(A, B, C, X):
    value = torch.trace(X.mH @ A @ X @ B).real
    return value + torch.trace(C.mH @ X).real


def literal_joint(matrices, X):
    total = 0
    for C in matrices:
        M = X.mH @ C @ X
        total = total + (M - torch.diag(M.diagonal())).abs().square().sum() / 2
    return total / len(matrices)


def assert_value_and_gradient(problem, function, X, *, rel):
    value, G = differentiate(function, X)
    ours, ours_G = problem.value_and_gradient(X)
    assert float(ours) == pytest.approx(float(value), rel=rel)
    torch.testing.assert_close(ours_G, G, rtol=rel, atol=rel * float(G.abs().max()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["dense", "sparse", "function"])
def test_a_quadratic_has_the_value_and_gradient_of_its_definition(kind, dtype):
    A, B, C = hermitian(9, 9, dtype=dtype), hermitian(4, 4, seed=1, dtype=dtype), draw(9, 4, seed=2, dtype=dtype)
    X = point_at_distance(9, 4, 0.2, dtype=dtype, generator=torch.Generator().manual_seed(1))
    given = {"dense": A, "sparse": A.to_sparse(), "function": lambda Z: A @ Z}[kind]
    rel = 200 * torch.finfo(dtype).eps
    assert_value_and_gradient(gs.problems.Quadratic(given, B, C), lambda Z: literal_quadratic(A, B, C, Z), X, rel=rel)
    weights = torch.tensor([3.0, 1.0, 2.0, -1.0], dtype=X.real.dtype)
    diagonal, none = torch.diag(weights).to(dtype), torch.zeros_like(C)
    assert_value_and_gradient(
        gs.problems.Quadratic(given, weights), lambda Z: literal_quadratic(A, diagonal, none, Z), X, rel=rel
    )
    identity = torch.eye(4, dtype=dtype)
    assert_value_and_gradient(
        gs.problems.Quadratic(given), lambda Z: literal_quadratic(A, identity, none, Z), X, rel=rel
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [3, 6])
def test_joint_diagonalization_has_the_value_and_gradient_of_its_definition(p, dtype):
    matrices = hermitian(5, 6, 6, dtype=dtype)
    problem = gs.problems.JointDiagonalization(matrices, p)
    X = point_at_distance(6, p, 0.2, dtype=dtype, generator=torch.Generator().manual_seed(1))
    assert_value_and_gradient(problem, lambda Z: literal_joint(matrices, Z), X, rel=500 * torch.finfo(dtype).eps)
    index = torch.tensor([3, 0])
    _, G = differentiate(lambda Z: literal_joint(matrices[index], Z), X)
    torch.testing.assert_close(problem.batch_gradient(X, index), G)


def test_finite_differences_agree_with_the_gradients():
    A, matrices = hermitian(8, 8), hermitian(5, 6, 6)
    for problem in (
        gs.problems.Quadratic(A, hermitian(3, 3, seed=1), draw(8, 3)),
        gs.problems.JointDiagonalization(matrices),
        gs.problems.JointDiagonalization(matrices, 2),
    ):
        assert gs.check_gradient(problem)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("weights", [None, [3.0, 2.0, 1.0], [2.0, -1.0, -3.0], [1.0, 0.0, -1.0], "matrix"])
def test_the_optimum_of_a_quadratic_is_attained_and_found(weights, dtype):
    A = hermitian(10, 10, seed=3, dtype=dtype)
    if weights == "matrix":
        B = hermitian(3, 3, seed=4, dtype=dtype)
    else:
        B = torch.tensor(weights or [1.0] * 3, dtype=torch.float64)
    problem = gs.problems.Quadratic(A, B)
    X, value = problem.optimum()
    assert float(problem.value(X)) == pytest.approx(value, abs=1e-12)
    assert torch.linalg.matrix_norm(X.mH @ X - torch.eye(3, dtype=dtype)) < 1e-12
    assert all(float(problem.value(stiefel(10, 3, seed=seed, dtype=dtype))) > value for seed in range(20))
    lowest = min(gs.minimize(problem, seed=seed).value for seed in range(3))
    assert lowest == pytest.approx(value, abs=1e-9)


class NothingDense(TorchDispatchMode):
    """Refuses dense results of n x n numbers or more."""

    def __init__(self, n):
        super().__init__()
        self.most = n * n

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.layout == torch.strided:
            assert result.numel() < self.most, f"{operation} made {tuple(result.shape)}"
        return result


@pytest.mark.filterwarnings("ignore:Sparse")
def test_the_smallest_eigenvalues_of_a_sparse_matrix_are_found_without_anything_n_by_n():
    n = 400
    at = torch.arange(n)
    index = torch.cat([torch.stack([at, at]), torch.stack([at[1:], at[:-1]]), torch.stack([at[:-1], at[1:]])], 1)
    entries = torch.cat([2 + torch.linspace(0, 3, n), -torch.ones(2 * (n - 1))]).double()
    A = torch.sparse_coo_tensor(index, entries, (n, n)).coalesce()
    expected = float(torch.linalg.eigvalsh(A.to_dense())[:3].sum())
    X0 = stiefel(n, 3)
    for given in (A, A.to_sparse_csr(), lambda X: torch.sparse.mm(A, X)):
        with NothingDense(n):
            solution = gs.minimize(gs.problems.Quadratic(given), X0)
        assert solution.converged
        assert solution.value == pytest.approx(expected, rel=1e-9)
    with pytest.raises(AssertionError, match=r"made \(400, 400\)"), NothingDense(n):
        A.to_dense()


def test_matrices_with_common_eigenvectors_are_made_diagonal():
    U = stiefel(7, 7, seed=2)
    matrices = (U * draw(4, 1, 7, seed=3)) @ U.mT
    solution = gs.minimize(gs.problems.JointDiagonalization(matrices), seed=1)
    assert solution.value < 1e-10
    overlap = (U.mT @ solution.X).abs()
    torch.testing.assert_close(overlap.max(0).values, torch.ones(7, dtype=torch.float64), atol=1e-4, rtol=0)
    by_saga = gs.minimize(
        gs.problems.JointDiagonalization(matrices),
        solution.X,
        gradient="saga",
        batch_size=2,
        step_size=0.01,
        max_epochs=3,
    )
    assert by_saga.value < 1e-10


def test_numpy_goes_in_and_out():
    A = np.diag(np.arange(1.0, 7.0))
    solution = gs.minimize(gs.problems.Quadratic(A, np.array([2.0, 1.0])))
    assert isinstance(solution.X, np.ndarray)
    assert solution.value == pytest.approx(4.0)
    matrices = np.stack([A, A @ A])
    assert isinstance(gs.minimize(gs.problems.JointDiagonalization(matrices, 2)).X, np.ndarray)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gs.problems.Quadratic(draw(4, 3)), r"A must have shape \(n, n\); got \(4, 3\)"),
        (lambda: gs.problems.Quadratic(draw(4, 4)), r"A must be Hermitian; got one that differs from A.mH"),
        (lambda: gs.problems.Quadratic(hermitian(4, 4) * float("nan")), r"A must be finite"),
        (lambda: gs.problems.Quadratic(3), r"a function that maps X to A X; got int"),
        (lambda: gs.problems.Quadratic(hermitian(4, 4), draw(2, 2)), r"B must be Hermitian"),
        (lambda: gs.problems.Quadratic(hermitian(4, 4), draw(2, 3)), r"B must have shape"),
        (lambda: gs.problems.Quadratic(hermitian(4, 4), draw(2), draw(4, 3)), r"C \(n, p\); got"),
        (lambda: gs.minimize(gs.problems.Quadratic(lambda X: X[:2]), stiefel(4, 2)), r"the shape of X, \(4, 2\); got"),
        (lambda: gs.problems.JointDiagonalization(draw(3, 4, 5)), r"shape \(K, n, n\); got \(3, 4, 5\)"),
        (lambda: gs.problems.JointDiagonalization(draw(3, 4, 4)), r"matrices must be Hermitian"),
        (lambda: gs.problems.JointDiagonalization(hermitian(3, 4, 4), 5), r"from 1 to 4; got 5"),
    ],
)
def test_what_these_problems_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
