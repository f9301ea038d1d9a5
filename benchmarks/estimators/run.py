"""OnlinePCA and OnlineICA against what users pick today: `python benchmarks/estimators/run.py`.

ICA of Laplace sources against FastICA and Picard-O, whitening included; PCA of the paper's model against
IncrementalPCA and randomized PCA. Fits of all methods take turns in one process; medians. Prints a table and writes
benchmarks/results/estimators.json. Needs python-picard for one column.
"""

import argparse
import json
import platform
import statistics
import subprocess
import time
import warnings
from pathlib import Path

import numpy as np
import sklearn
import torch
from picard import picard
from sklearn.decomposition import PCA, FastICA, IncrementalPCA

import glideslope as gs
from glideslope.estimators import OnlineICA, OnlinePCA

# Threads of the library that ran before spin for a while, and slow down the next one.
PAUSE = 0.1
RESULTS = Path(__file__).parents[1] / "results" / "estimators.json"


class PicardO:
    """Picard-O with the interface of FastICA, as far as it is needed here; its tolerance is on the gradient."""

    def fit(self, X):
        K, W, _ = picard(X.T, ortho=True, extended=False, whiten=True, tol=1e-4, random_state=0)
        self.components_ = W @ K
        return self


def amari(product):
    """0 for a scaled permutation."""
    size, n = np.abs(product), len(product)
    rows, columns = size / size.max(1, keepdims=True), size / size.max(0, keepdims=True)
    return float((rows.sum() + columns.sum() - 2 * n) / (2 * n * (n - 1)))


def interleaved(makers, X, quality, rounds):
    """Seconds and quality of fits that take turns: medians over rounds, of which a method may have fewer."""
    seconds, qualities = {name: [] for name in makers}, {}
    for turn in range(rounds):
        for name, (make, most) in makers.items():
            if turn < min(most, rounds):
                estimator = make()
                time.sleep(PAUSE)
                started = time.perf_counter()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    estimator.fit(X)
                seconds[name].append(time.perf_counter() - started)
                qualities[name] = quality(estimator)
    return {
        name: {"seconds": statistics.median(times), "runs": len(times), "quality": qualities[name]}
        for name, times in seconds.items()
    }


def over_data_sets(fits):
    """Means of what fits on several data sets gave, each a median, and the time on the slowest of the data sets."""
    return {
        name: {
            "seconds": statistics.mean(fit[name]["seconds"] for fit in fits),
            "slowest": max(fit[name]["seconds"] for fit in fits),
            "runs": sum(fit[name]["runs"] for fit in fits),
            "quality": statistics.mean(fit[name]["quality"] for fit in fits),
        }
        for name in fits[0]
    }


def ica(n, N, rounds, *, with_picard, seed=0):
    """Laplace sources, Gaussian mixing, float32."""
    generator = np.random.default_rng(seed)
    mixing = generator.standard_normal((n, n)).astype(np.float32)
    X = generator.laplace(size=(N, n)).astype(np.float32) @ mixing.T
    fast = {"whiten": "unit-variance", "whiten_solver": "eigh", "tol": 1e-4, "random_state": 0}
    makers = {
        "OnlineICA": (lambda: OnlineICA(random_state=0), rounds),
        "FastICA, eigh": (lambda: FastICA(**fast), rounds),
        "FastICA, svd": (lambda: FastICA(**fast | {"whiten_solver": "svd"}), rounds),
    }
    if with_picard:
        makers["Picard-O"] = (PicardO, 1)
    return interleaved(makers, X, lambda found: amari(found.components_ @ mixing), rounds)


def pca_data(p, N=15_000, n=5_000):
    """Rows from N(0, U Uᵀ + 0.1 I), float32: the text's model."""
    generator = torch.Generator().manual_seed(0)
    U = gs.random_stiefel(n, p, generator=generator)
    data = torch.randn(N, p, generator=generator) @ U.mT
    for block in data.split(1000):
        block.add_(torch.randn(block.shape, generator=generator), alpha=0.1**0.5)
    return data.numpy()


def pca(p, rounds, *, batch_size, others):
    """Relative gap of the captured variance to that of an exact decomposition."""
    X = pca_data(p)
    mean = X.mean(0, dtype=np.float64)
    C = np.zeros((X.shape[1],) * 2)
    for start in range(0, len(X), 1000):
        block = X[start : start + 1000] - mean
        C += block.T @ block / len(X)
    best = float(np.linalg.eigvalsh(C)[-p:].sum())

    def gap(found):
        V = np.linalg.qr(found.components_.T.astype(np.float64))[0]
        return 1 - float(np.sum(V * (C @ V))) / best

    makers = {
        f"OnlinePCA, batch {batch_size}": (lambda: OnlinePCA(p, batch_size=batch_size, random_state=0), rounds),
        f"OnlinePCA, batch {batch_size}, 1 pass": (
            lambda: OnlinePCA(p, batch_size=batch_size, n_epochs=1, random_state=0),
            rounds,
        ),
    }
    if others:
        makers["IncrementalPCA, batch 1000"] = (lambda: IncrementalPCA(p, batch_size=1000), 1)
        makers["PCA, randomized"] = (lambda: PCA(p, svd_solver="randomized", random_state=0), rounds)
    return interleaved(makers, X, gap, rounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--data-sets", type=int, default=30, help="so many of the smallest problem")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    results = {
        f"ICA, n = 10, N = 1e4, {options.data_sets} data sets": over_data_sets(
            [ica(10, 10_000, options.rounds, with_picard=True, seed=seed) for seed in range(options.data_sets)]
        ),
        "ICA, n = 10, N = 1e6": ica(10, 1_000_000, options.rounds, with_picard=True),
        "ICA, n = 40, N = 3e5": ica(40, 300_000, options.rounds, with_picard=False),
        "PCA, N = 15000, n = 5000, p = 100": pca(100, min(3, options.rounds), batch_size=256, others=True),
        "PCA, N = 15000, n = 5000, p = 500": pca(500, 1, batch_size=128, others=False),
    }
    for job, methods in results.items():
        print(f"\n{job}")
        for name, found in methods.items():
            slowest = f", slowest data set {found['slowest']:.4f} s" if "slowest" in found else ""
            print(f"  {name:<36} {found['seconds']:9.4f} s   {found['quality']:.3e}   ({found['runs']} runs{slowest})")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    versions = {"torch": torch.__version__, "numpy": np.__version__, "scikit-learn": sklearn.__version__}
    about = {
        "commit": commit.stdout.strip(),
        "versions": versions | {"python": platform.python_version(), "glideslope": gs.__version__},
        "threads": options.threads,
        "machine": platform.machine(),
        "dtype": "float32",
        "quality": "ICA: Amari distance; PCA: relative gap of the captured variance",
    }
    options.output.write_text(json.dumps({"about": about, "results": results}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
