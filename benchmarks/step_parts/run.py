"""Where the time of one step goes: `python benchmarks/step_parts/run.py`.

The four bare products, the same with the two passes over n x p memory that a safeguarded step cannot do without (the
norm of its field, and the update), the step, and the optimizer around it take turns in one process; medians. Their
differences are the parts, but for one: with more than 128 columns the step computes half of the Gram matrix only. The
products are also given as a share of what a large square product reaches on the same threads: the roofline. Prints a
table and writes benchmarks/results/step_parts.json.
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
    """The calls to time, by name, each with memory of its own for everything but the values of X and G."""

    def point():
        generator = torch.Generator().manual_seed(0)
        return gs.random_stiefel(n, p, generator=generator), torch.randn(n, p, generator=generator)

    def products(passes):
        X, G = point()
        S, C, F, Y = torch.empty(p, p), torch.empty(p, p), torch.empty(n, p), X.clone()

        def call():
            torch.mm(X.T, X, out=S)
            torch.mm(X.T, G, out=C)
            torch.mm(X, C, out=F)
            F.addmm_(G, S)
            if passes:
                torch.sub(Y, F, alpha=1e-9 / torch.linalg.vector_norm(F).item(), out=Y)

        return call

    def step():
        X, G = point()
        workspace, rule = Workspace(), StepRule()
        return lambda: take_step(X, G, 1e-3, rule, out=X, workspace=workspace)

    def optimizer():
        X, G = point()
        parameter = torch.nn.Parameter(X)
        parameter.grad = G
        return gs.LandingSGD([parameter], lr=1e-3).step

    return {
        "products": products(False),
        "with norm and update": products(True),
        "step": step(),
        "optimizer": optimizer(),
    }


def medians(calls, rounds):
    """Milliseconds of each call, in turns whose order changes."""
    times = {name: [] for name in calls}
    names = list(calls)
    for turn in range(rounds + 2):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            started = time.perf_counter()
            with torch.no_grad():
                calls[name]()
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
