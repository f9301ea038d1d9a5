"""The problems: functions of an n x p matrix, the same torch code for every solver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import glideslope as gs

Function = Callable[[Tensor], Tensor]
F64 = torch.float64


@dataclass(frozen=True)
class Case:
    """One problem: `make` returns a torch function, or a quadratic with its closed gradient."""

    name: str
    kind: str
    make: Callable[[], Function | gs.problems.Quadratic]
    shape: tuple[int, int]
    dtype: torch.dtype = F64
    reduction: float = 1e-6
    """By how much the gradient norm has to fall."""

    def start(self, seed: int) -> Tensor:
        """A random orthonormal matrix."""
        return gs.random_stiefel(*self.shape, generator=generator(1000 + seed), dtype=self.dtype)


def generator(seed: int) -> torch.Generator:
    """A generator of its own for every draw."""
    return torch.Generator().manual_seed(seed)


def gaussian(*shape: int, seed: int, dtype: torch.dtype = F64) -> Tensor:
    """Independent normal entries."""
    return torch.randn(*shape, generator=generator(seed), dtype=dtype)


def symmetric(*shape: int, seed: int, dtype: torch.dtype = F64) -> Tensor:
    """Hermitian matrices with normal entries."""
    M = gaussian(*shape, seed=seed, dtype=dtype)
    return (M + M.mH) / 2


def basis(n: int, seed: int, dtype: torch.dtype = F64) -> Tensor:
    """A random orthogonal or unitary matrix."""
    Q: Tensor = torch.linalg.qr(gaussian(n, n, seed=seed, dtype=dtype))[0]
    return Q


def with_eigenvalues(eigenvalues: Tensor, seed: int) -> Tensor:
    """A symmetric matrix with random eigenvectors."""
    U = basis(len(eigenvalues), seed)
    return (U * eigenvalues) @ U.mT


def dense_eigenvalues() -> gs.problems.Quadratic:
    """A random symmetric matrix: the gap below the wanted eigenvalues is small against their spread."""
    return gs.problems.Quadratic(symmetric(500, 500, seed=1))


def ill_conditioned_eigenvalues(n: int, decades: float, dtype: torch.dtype) -> gs.problems.Quadratic:
    """Eigenvalues evenly spaced on a logarithmic scale."""
    return gs.problems.Quadratic(with_eigenvalues(torch.logspace(0, decades, n, dtype=F64), 2).to(dtype))


def laplacian(side: int = 80) -> gs.problems.Quadratic:
    """Five-point Laplacian with a random potential, sparse."""
    n = side**2
    at = torch.arange(n).view(side, side)
    pairs = torch.cat(
        [torch.stack([at[1:].flatten(), at[:-1].flatten()]), torch.stack([at[:, 1:].flatten(), at[:, :-1].flatten()])],
        1,
    )
    index = torch.cat([pairs, pairs.flip(0), at.flatten().repeat(2, 1)], 1)
    entries = torch.cat(
        [-torch.ones(2 * pairs.shape[1], dtype=F64), 4 + torch.rand(n, generator=generator(3), dtype=F64)]
    )
    return gs.problems.Quadratic(torch.sparse_coo_tensor(index, entries, (n, n), check_invariants=True).to_sparse_csr())


def brockett(n: int = 200, p: int = 10) -> gs.problems.Quadratic:
    """Tr(Xᵀ A X N) with N = diag(1, ..., p)."""
    return gs.problems.Quadratic(symmetric(n, n, seed=4), torch.arange(1.0, p + 1, dtype=F64))


def unequal_procrustes(rows: int, n: int, p: int, decades: float) -> Function:
    """‖A X - B‖² with columns of A of unequal length: no closed form."""
    A = gaussian(rows, n, seed=5) * torch.logspace(0, -decades, n, dtype=F64)
    B = gaussian(rows, p, seed=6)
    return lambda X: (A @ X - B).square().sum() / 2


def joint_diagonalization(K: int = 20, n: int = 50) -> Function:
    """Matrices with common eigenvectors, and noise."""
    U = basis(n, 7)
    C = (U * gaussian(K, 1, n, seed=8)) @ U.mT + 0.1 * symmetric(K, n, n, seed=9)
    return lambda X: (C.square().sum() - (X * (C @ X)).sum(1).square().sum()) / 4


def kohn_sham(n: int = 400) -> Function:
    """½ tr(Xᵀ L X) + ¼ ρᵀ L⁻¹ ρ, ρ the squared row norms of X: a discretised energy in one dimension."""
    L = (
        2 * torch.eye(n, dtype=F64)
        - torch.eye(n, dtype=F64).roll(1, 0).tril()
        - torch.eye(n, dtype=F64).roll(-1, 0).triu()
    )
    inverse = torch.linalg.inv(L)

    def energy(X: Tensor) -> Tensor:
        density = X.square().sum(1)
        total: Tensor = (X * (L @ X)).sum() / 2 + (density * (inverse @ density)).sum() / 4
        return total

    return energy


def dictionary(n: int = 30, samples: int = 4000) -> Function:
    """-¼ ‖Y X‖_4⁴: an orthogonal dictionary of data that are sparse in it."""
    sparse = gaussian(samples, n, seed=10) * (torch.rand(samples, n, generator=generator(11)) < 0.2)
    Y = sparse @ basis(n, 12).mT
    return lambda X: -(Y @ X).pow(4).sum() / (4 * samples)


def sparse_pca(n: int = 300, p: int = 5, support: int = 20) -> Function:
    """-½ tr(Xᵀ C X) + μ Σ √(x² + δ²): sparse components of different variances in noise."""
    loadings = torch.zeros(n, p, dtype=F64)
    for j in range(p):
        loadings[j * support : (j + 1) * support, j] = support**-0.5
    data = (
        gaussian(500, p, seed=13) * torch.linspace(5, 3, p, dtype=F64) @ loadings.mT + gaussian(500, n, seed=14) * 0.5
    )
    C = data.mT @ data / 500
    return lambda X: -(X * (C @ X)).sum() / 2 + 0.2 * (X.square() + 1e-4).sqrt().sum()


def matching(n: int = 50) -> Function:
    """½ ‖A X - X B‖² of two symmetric matrices with nearly the same eigenvalues."""
    A, U = symmetric(n, n, seed=15), basis(n, 16)
    B = U.mT @ A @ U + 0.1 * symmetric(n, n, seed=17)
    return lambda X: (A @ X - X @ B).square().sum() / 2


def unitary_joint_diagonalization(K: int = 15, n: int = 30) -> Function:
    """Hermitian matrices with common eigenvectors, and noise."""
    U = basis(n, 18, torch.complex128)
    C = (U * gaussian(K, 1, n, seed=19)) @ U.mH + 0.05 * symmetric(K, n, n, seed=20, dtype=torch.complex128)
    return lambda X: -(X.conj() * (C @ X)).sum(1).real.square().sum() / 4


CASES = (
    Case("eigenvalues, dense", "eigenvalues", dense_eigenvalues, (500, 10)),
    Case("eigenvalues, ill-conditioned", "eigenvalues", lambda: ill_conditioned_eigenvalues(500, 2.5, F64), (500, 10)),
    Case("eigenvalues, sparse", "eigenvalues", laplacian, (6400, 6)),
    Case(
        "eigenvalues, float32",
        "float32",
        lambda: ill_conditioned_eigenvalues(500, 2, torch.float32),
        (500, 10),
        torch.float32,
        1e-4,
    ),
    Case("Brockett", "Brockett", brockett, (200, 10)),
    Case("Procrustes", "Procrustes", lambda: unequal_procrustes(400, 200, 50, 1.5), (200, 50)),
    Case("Procrustes, large", "Procrustes", lambda: unequal_procrustes(1000, 1000, 100, 0.0), (1000, 100)),
    Case("joint diagonalisation", "joint diagonalisation", joint_diagonalization, (50, 50)),
    Case("Kohn-Sham energy", "nonlinear eigenvalues", kohn_sham, (400, 10)),
    Case("orthogonal dictionary", "dictionary", dictionary, (30, 30)),
    Case("sparse PCA", "sparse PCA", sparse_pca, (300, 5)),
    Case("quadratic matching", "matching", matching, (50, 50)),
    Case("unitary joint diagonalisation", "unitary", unitary_joint_diagonalization, (30, 30), torch.complex128),
)
