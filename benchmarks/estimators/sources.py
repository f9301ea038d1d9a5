"""Independent sources of twelve kinds, mixed: peaked, flat, nearly Gaussian, skewed, discrete, rare, and in time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.signal

SHAPES = np.geomspace(0.6, 6, 10)
SIZES = ((4, 2_000), (10, 10_000), (20, 50_000), (40, 300_000))  # sources and samples


def generalised_gaussian(generator, shape, N):
    """Density exp(-|y|^shape): 1 is a Laplace, 2 a Gaussian, large shapes are nearly uniform."""
    return generator.gamma(1 / shape, size=N) ** (1 / shape) * generator.choice([-1, 1], N)


def speech(generator, N):
    """Resonant noise with an envelope that changes slowly, like syllables."""
    envelope = scipy.signal.lfilter([1], [1, -0.995], generator.standard_normal(N)) * np.sqrt(1 - 0.995**2)
    return scipy.signal.lfilter([1], [1, -1.3, 0.7], generator.standard_normal(N)) * np.exp(1.2 * envelope)


def correlated(generator, N):
    """A quarter of the samples, each like the one before."""
    return scipy.signal.lfilter([1], [1, -0.6], generator.laplace(size=N // 4))


KINDS: dict[str, Callable] = {
    "generalised Gaussian, 0.6 to 6": lambda g, j, N: generalised_gaussian(g, SHAPES[j % 10], N),
    "Laplace, every third uniform": lambda g, j, N: g.uniform(-1, 1, N) if j % 3 == 2 else g.laplace(size=N),
    "uniform": lambda g, j, N: g.uniform(-1, 1, N),
    "Laplace": lambda g, j, N: g.laplace(size=N),
    "heavy tails, Student t3": lambda g, j, N: g.standard_t(3, N),
    "nearly Gaussian, Student t8": lambda g, j, N: g.standard_t(8, N),
    "skewed, exponential": lambda g, j, N: g.exponential(size=N),
    "Laplace, one Gaussian": lambda g, j, N: g.standard_normal(N) if j == 0 else g.laplace(size=N),
    "like speech": lambda g, j, N: speech(g, N),
    "discrete, +1 or -1": lambda g, j, N: g.choice([-1.0, 1.0], N),
    "rarely there": lambda g, j, N: g.laplace(size=N) * (g.random(N) < 0.2),
    "correlated, few samples": lambda g, j, N: correlated(g, N),
}


def mixed(kind, n, N, seed):
    """A float32 mixture of n sources, one sample per row, and its mixing matrix."""
    generator = np.random.default_rng([seed, n, N])
    sources = np.stack([KINDS[kind](generator, j, N) for j in range(n)], axis=1)
    mixing = generator.standard_normal((n, n))
    return (sources / sources.std(0) @ mixing.T).astype(np.float32), mixing


def amari(product):
    """0 for a scaled permutation."""
    size, n = np.abs(product), len(product)
    rows, columns = size / size.max(1, keepdims=True), size / size.max(0, keepdims=True)
    return float((rows.sum() + columns.sum() - 2 * n) / (2 * n * (n - 1)))
