"""Mixed sources, and how far a found unmixing is from undoing the mixing."""

import numpy as np


def mixture(n, N, *, seed=0, dtype=np.float64, kinds=("laplace",), mean=0.0):
    """Mixed independent sources (N, n) and the mixing matrix."""
    generator = np.random.default_rng(seed)
    draws = {
        "laplace": lambda: generator.laplace(size=N),
        "uniform": lambda: generator.uniform(-1, 1, N),
    }
    sources = np.stack([draws[kinds[j % len(kinds)]]() for j in range(n)], axis=1)
    mixing = generator.standard_normal((n, n))
    return (sources @ mixing.T + mean).astype(dtype), mixing


def amari_distance(product):
    """0 where an unmixing times the mixing is a scaled permutation, at most 1."""
    size = np.abs(product)
    n = len(size)
    rows = (size / size.max(1, keepdims=True)).sum() - n
    columns = (size / size.max(0, keepdims=True)).sum() - n
    return (rows + columns) / (2 * n * (n - 1))
