"""Cost and memory of `minimize`: `python benchmarks/finite_sums/run.py`.

Prints a table and writes benchmarks/results/finite_sums.json.
"""

import argparse
import json
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

import glideslope as gs

RESULTS = Path(__file__).parents[1] / "results" / "finite_sums.json"


class Unfactored(gs.problems.PCA):
    """The same PCA, whose batches have their n x p gradient multiplied out."""

    def batch_gradient(self, X, index):
        return super().batch_gradient(X, index).dense()


def pca_data(samples=15_000, n=5_000, p=200):
    """Rows from N(0, U Uᵀ + 0.1 I), float32: the text's model."""
    generator = torch.Generator().manual_seed(0)
    U = gs.random_stiefel(n, p, generator=generator)
    data = torch.randn(samples, p, generator=generator) @ U.mT
    for block in data.split(1000):
        block.add_(torch.randn(block.shape, generator=generator), alpha=0.1**0.5)
    return data


def cost(rounds):
    """Seconds of one pass with batches of 128: factored, unfactored, and with a QR retraction; medians, interleaved."""
    data = pca_data()
    X0 = gs.random_stiefel(5_000, 200, generator=torch.Generator().manual_seed(1))
    runs = {
        "landing, factored": (gs.problems.PCA(data, 200), "landing"),
        "landing, unfactored": (Unfactored(data, 200), "landing"),
        "riemannian, QR": (gs.problems.PCA(data, 200), "riemannian"),
    }
    seconds = {name: [] for name in runs}
    for _ in range(rounds):
        for name, (problem, method) in runs.items():
            source = {"gradient": "minibatch", "batch_size": 128}
            solution = gs.minimize(problem, X0, method=method, **source, step_size=1e-2, max_epochs=1, tolerance=0)
            seconds[name].append(solution.seconds)
            print(f"  {name:<22} {solution.seconds:.2f} s  value {solution.value:.4f}", flush=True)
    medians = {name: float(np.median(times)) for name, times in seconds.items()}
    ours = medians["landing, factored"]
    return {"seconds": medians, "ratios": {name: median / ours for name, median in medians.items()}}


def memory():
    """Peak resident memory of SAGA on the same PCA, data included, in a process of its own."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import resource, run, glideslope as gs;"
        "data = run.pca_data(); problem = gs.problems.PCA(data, 200);"
        "s = gs.minimize(problem, gradient='saga', batch_size=128, step_size=1e-2, max_epochs=2, tolerance=0);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, s.value)"
    )
    text = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    peak, value = text.split()
    per_sample = 15_000 * 5_000 * 200 * 4
    print(f"  SAGA on PCA, N=15000 n=5000 p=200: peak {int(peak) / 1e9:.2f} GB; naively {per_sample / 1e9:.0f} GB")
    return {"peak_bytes": int(peak), "value": float(value), "bytes_of_one_gradient_per_sample": per_sample}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["cost", "memory"])
    options = parser.parse_args()
    results = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "rounds": options.rounds,
    }
    for name, part in (("cost", cost), ("memory", memory)):
        if options.only in (None, name):
            print(name)
            results[name] = part() if name == "memory" else part(options.rounds)
            print(json.dumps(results[name], indent=2))
    if options.only is None:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=2) + "\n")
        print(f"written to {RESULTS.name}")


if __name__ == "__main__":
    main()
