"""The paper's PCA and ICA, sections 4.1 and 4.2, as runs of `minimize` that note f - f* once a pass."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import glideslope as gs

Sizes = tuple[int, int, int]


class Work(NamedTuple):
    """One problem: what a seed stands for, and which step sizes are searched."""

    name: str
    start: Callable[[int], tuple[gs.problems.Problem, Tensor, Callable[[Tensor], float]]]
    """Of a seed: the problem, X0, and f - f* at the orthonormal matrix nearest to a point."""
    batch_size: int
    passes: int
    """Of a run with a searched step size; an automatic one may take twice as many."""
    grid: tuple[float, ...]
    steps_per_pass: int


class PCA(gs.problems.PCA):
    """PCA that notes where it was evaluated, which `minimize` does once a pass for its history."""

    iterate: Tensor

    def value_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """f(X) and its gradient."""
        self.iterate = X
        return super().value_and_gradient(X)


class ICA(gs.problems.ICA):
    """ICA that notes where it was evaluated."""

    iterate: Tensor

    def value_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """f(X) and its gradient."""
        self.iterate = X
        return super().value_and_gradient(X)


@functools.lru_cache(maxsize=1)
def pca_data(n_samples: int, n: int, p: int) -> tuple[Tensor, float]:
    """Rows from N(0, U Uᵀ + 0.1 I), float32, the model of the text; and f at the solution, in float64."""
    generator = torch.Generator().manual_seed(0)
    U = gs.random_stiefel(n, p, generator=generator)
    data = torch.randn(n_samples, p, generator=generator) @ U.mT
    for block in data.split(1000):
        block.add_(torch.randn(block.shape, generator=generator), alpha=0.1**0.5)
    return data, gs.problems.PCA(data, p).optimum().value


def pca(sizes: Sizes, seed: int) -> tuple[PCA, Tensor, Callable[[Tensor], float]]:
    """The same data for all seeds, another start and other draws for each."""
    data, optimum = pca_data(*sizes)
    n_samples, n, p = sizes
    X0 = gs.random_stiefel(n, p, generator=torch.Generator().manual_seed(1000 + seed))

    def gap(X: Tensor) -> float:
        wide, moment = X.double(), torch.zeros(p, p, dtype=torch.float64)
        for block in data.split(1000):
            Y = (block @ X).double()
            moment.addmm_(Y.mT, Y)
        return -float(torch.linalg.solve(wide.mT @ wide, moment).trace()) / 2 / n_samples - optimum

    return PCA(data, p), X0, gap


def ica(sizes: Sizes, seed: int) -> tuple[ICA, Tensor, Callable[[Tensor], float]]:
    """A = S Bᵀ with Laplace sources and B uniform on the orthogonal group, float64; new data for every seed."""
    n_samples, n, _ = sizes
    sources = torch.from_numpy(np.random.default_rng(seed).laplace(scale=0.5**0.5, size=(n_samples, n)))
    mixing = gs.random_stiefel(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    problem, X0 = ICA(sources @ mixing.mT), torch.eye(n, dtype=torch.float64)
    ends: list[Any] = [gs.minimize(problem, start, tolerance=1e-10, max_epochs=2000) for start in (mixing, X0)]
    optimum = min(end.value for end in ends)
    return problem, X0, lambda X: float(problem.value(gs.project(X))) - optimum


WORKS = (
    Work(
        "PCA",
        functools.partial(pca, (15_000, 5_000, 200)),
        128,
        10,
        (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
        118,
    ),
    Work("ICA", functools.partial(ica, (10_000, 10, 10)), 100, 30, (0.01, 0.03, 0.1, 0.3, 1.0), 100),
)
