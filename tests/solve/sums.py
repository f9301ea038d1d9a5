"""Data, and one function written as a torch function, as a FiniteSum and as a RowSum."""

import torch

import glideslope as gs
from glideslope.solve.problems import FiniteSum, RowSum


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def spread_data(N, n, *, seed=0, dtype=torch.float64):
    """Samples whose variances fall from 4 to 1/4, so that the components are distinct."""
    return draw(N, n, seed=seed, dtype=dtype) * torch.logspace(0.3, -0.3, n, dtype=torch.float64).to(dtype)


def pca(N=60, n=8, p=3, **options):
    return gs.problems.PCA(spread_data(N, n, **options), p)


def procrustes(N=60, n=8, p=3, *, dtype=torch.float64):
    return gs.problems.Procrustes(draw(N, n, seed=1, dtype=dtype), draw(N, p, seed=2, dtype=dtype))


def ica(N=60, n=4, p=None, **options):
    return gs.problems.ICA(draw(N, n, seed=3), p, **options)


def linear(n=8, p=3, *, dtype=torch.float64):
    return gs.problems.LinearProblem(draw(n, p, seed=4, dtype=dtype))


def all_problems(dtype=torch.float64):
    """One of each kind, small; ICA only for real types."""
    found = [pca(dtype=dtype), procrustes(dtype=dtype), linear(dtype=dtype)]
    return found if dtype.is_complex else [*found, gs.problems.ICA(draw(60, 4, seed=3, dtype=dtype), 3)]


def stiefel(n, p, seed=0, dtype=torch.float64):
    return gs.random_stiefel(n, p, generator=torch.Generator().manual_seed(seed), dtype=dtype)


class Quartic(RowSum):
    """f_i(X) = ¼ Σ_j [a_i X]_j⁴ - b_i Σ_j [a_i X]_j."""

    def __init__(self, data, offsets, p):
        super().__init__(data, p)
        self.offsets = offsets

    def loss(self, Y, index):
        return (Y**4 / 4 - self.offsets[index, None] * Y).sum()

    def scores(self, Y, index):
        return Y**3 - self.offsets[index, None]


def quartic_pair(N=23, n=6, p=2):
    """The same function as a sum over rows and as a general sum."""
    data, offsets = draw(N, n, seed=5), draw(N, seed=6)

    def mean(X, index):
        Y = data[index] @ X
        return (Y**4 / 4 - offsets[index, None] * Y).sum() / len(index)

    return Quartic(data, offsets, p), FiniteSum(mean, N, shape=(n, p), dtype=torch.float64)
