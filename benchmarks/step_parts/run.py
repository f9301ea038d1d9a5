"""Where the time of one step goes: `python benchmarks/step_parts/run.py`.

The four bare products, the same with the two passes over n x p memory that a safeguarded step cannot do without (the
norm of its field, and the update), the step, and the optimizer around it take turns in one process; medians. Their
differences are the parts. The products are also given as a share of what a large square product reaches on the same
threads: the roofline. Prints a table and writes benchmarks/results/step_parts.json.
"""

import argparse
import json
import platform
import statistics
import subprocess
import time
from pathlib import Path

import torch

import glideslope as gs
from glideslope.formulas.rule import StepRule
from glideslope.formulas.step import take_step
from glideslope.formulas.workspace import Workspace

SHAPES = [(5000, 100), (5000, 200), (5000, 500), (5000, 1000), (30000, 50)]
RESULTS = Path(__file__).parents[1] / "results" / "step_parts.json"
LARGE = 3072


def methods(n, p):
    """The calls to time, by name, each on its own copy of the same X and G."""
    generator = torch.Generator().manual_seed(0)
    X = gs.random_stiefel(n, p, generator=generator)
    G = torch.randn(n, p, generator=generator)
    small, K, F, Y = torch.empty(p, p), torch.empty(p, p), torch.empty(n, p), X.clone()
    workspace, rule, Z = Workspace(), StepRule(), X.clone()
    parameter = torch.nn.Parameter(X.clone())
    parameter.grad = G
    optimizer = gs.LandingSGD([parameter], lr=1e-3)

    def products():
        torch.mm(X.T, X, out=small)
        torch.mm(X.T, G, out=K)
        torch.mm(X, K, out=F)
        F.addmm_(G, small)

    def with_passes():
        products()
        torch.sub(Y, F, alpha=1e-9 / torch.linalg.vector_norm(F).item(), out=Y)

    with torch.no_grad():
        return {
            "products": products,
            "norm and update": with_passes,
            "step": lambda: take_step(Z, G, 1e-3, rule, out=Z, workspace=workspace),
            "optimizer": optimizer.step,
        }


def medians(calls, rounds):
    """Milliseconds of each call, in turns."""
    times = {name: [] for name in calls}
    for turn in range(rounds + 2):
        for name, call in calls.items():
            started = time.perf_counter()
            with torch.no_grad():
                call()
            if turn >= 2:
                times[name].append(time.perf_counter() - started)
    return {name: 1e3 * statistics.median(values) for name, values in times.items()}


def gflops_of_a_large_product(rounds):
    """Of LARGE x LARGE matrices."""
    A, out = torch.randn(LARGE, LARGE), torch.empty(LARGE, LARGE)
    return 2 * LARGE**3 / 1e6 / medians({"product": lambda: torch.mm(A, A, out=out)}, rounds)["product"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    roof = gflops_of_a_large_product(5)
    print(f"{LARGE} x {LARGE} product: {roof:.0f} GFLOP/s on {options.threads} threads, float32")
    results = {}
    for n, p in SHAPES:
        found = medians(methods(n, p), max(10, options.rounds * 100 // p))
        reached = 8 * n * p * p / 1e6 / found["products"]
        results[f"{n} x {p}"] = {
            "milliseconds": found,
            "gflops of the products": reached,
            "of the roof": reached / roof,
        }
        parts = "  ".join(f"{name} {value:.2f} ms ({value / found['products']:.2f})" for name, value in found.items())
        print(f"{n} x {p}: {parts}  products at {reached / roof:.0%} of the roof")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    about = {
        "commit": commit.stdout.strip(),
        "torch": torch.__version__,
        "threads": options.threads,
        "machine": platform.machine(),
        "dtype": "float32",
        "roof in gflops": roof,
    }
    options.output.write_text(json.dumps({"about": about, "results": results}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
