"""Where the time of one step goes: `python benchmarks/step_parts/run.py`.

One matrix: the four bare products, the same with the two passes over n x p memory that a safeguarded step cannot do
without (the norm of its field, and the update), the step, and the optimizer around it take turns in one process;
medians. So does an optimizer whose step does nothing: torch's own part. Their differences are the parts, but for two
things: with more than 128 columns the step computes half of the Gram matrix only, and of a tall matrix it computes
X^H X and X^H G by blocks of rows. The products are also given as a share of what a large square product reaches on the
same threads: the roofline.

A list of matrices: their products as one batch, the same with gathering parameters and gradients into a stack and
writing the stack back, the same with the step instead of the products, and the optimizer, which finds out what there is
to gather. Prints tables and writes benchmarks/results/step_parts.json.
"""

import argparse
import json
import math
import platform
import statistics
import subprocess
import time
from pathlib import Path

import torch

import glideslope as gs
from glideslope.engine.batch import take_step
from glideslope.engine.products import Workspace
from glideslope.engine.rule import StepRule

SHAPES = [(5000, 100), (5000, 200), (5000, 500), (5000, 1000), (30000, 50)]
LISTS = [(1000, 3, 3), (1000, 16, 16), (1000, 32, 32), (218, 768, 16)]
RESULTS = Path(__file__).parents[1] / "results" / "step_parts.json"
LARGE = 3072


class Idle(torch.optim.Optimizer):
    """Takes steps that do nothing, as fast as torch lets an optimizer."""

    def __init__(self, params):
        super().__init__(params, {})

    @torch.no_grad()
    def step(self, closure=None):
        """Do nothing."""


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
        "idle optimizer": Idle([torch.nn.Parameter(torch.zeros(1))]).step,
    }


def list_methods(count, n, p):
    """The calls to time for a list of separate parameters, by name, each with memory of its own."""
    square = n == p

    def parameters():
        generator = torch.Generator().manual_seed(0)
        params = [torch.nn.Parameter(gs.random_stiefel(n, p, generator=generator)) for _ in range(count)]
        for param in params:
            param.grad = torch.randn(n, p, generator=generator)
        return params

    def multiply(X, G, S, C, F):
        torch.bmm(X.mT, X, out=S)
        torch.bmm(X.mT, G, out=C)
        torch.bmm(X, C, out=F)
        if not square:
            F.baddbmm_(G, S)

    def stacked(gathers, steps):
        params = parameters()
        grads = [param.grad for param in params]
        X, G, F = (torch.empty(count, n, p) for _ in range(3))
        S, C = (torch.empty(count, p, p) for _ in range(2))
        pieces, workspace, rule = list(X.unbind(0)), Workspace(), StepRule()
        torch.stack([param.detach() for param in params], out=X)
        torch.stack(grads, out=G)

        def call():
            if gathers:
                torch.stack(params, out=X)
                torch.stack(grads, out=G)
            if steps:
                take_step(X, G, 1e-3, rule, out=X, workspace=workspace)
            else:
                multiply(X, G, S, C, F)
            if gathers:
                torch._foreach_copy_(params, pieces)

        return call

    return {
        "products": stacked(False, False),
        "gathered and written back": stacked(True, False),
        "step": stacked(True, True),
        "optimizer": gs.LandingSGD(parameters(), lr=1e-3).step,
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
    """Of LARGE x LARGE matrices, at best."""
    A, out = torch.randn(LARGE, LARGE), torch.empty(LARGE, LARGE)
    best = math.inf
    for _ in range(rounds):
        started = time.perf_counter()
        torch.mm(A, A, out=out)
        best = min(best, time.perf_counter() - started)
    return 2 * LARGE**3 / 1e9 / best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    roof = gflops_of_a_large_product(15)
    print(f"{LARGE} x {LARGE} product: {roof:.0f} GFLOP/s at best, {options.threads} threads, float32")
    results = {}

    def report(name, found, ending=""):
        floor = found["products"]
        parts = "  ".join(f"{part} {value:.3g} ms ({value / floor:.2f})" for part, value in found.items())
        print(f"{name}: {parts}{ending}")

    for n, p in SHAPES:
        found = medians(methods(n, p), max(10, options.rounds * 100 // p))
        reached = 8 * n * p * p / 1e6 / found["products"]
        results[f"{n} x {p}"] = {
            "milliseconds": found,
            "gflops of the products": reached,
            "of the roof": reached / roof,
        }
        report(f"{n} x {p}", found, f"  products at {reached / roof:.0%} of the roof")
    for count, n, p in LISTS:
        found = medians(list_methods(count, n, p), options.rounds)
        results[f"{count} of {n} x {p}"] = {"milliseconds": found}
        report(f"{count} of {n} x {p}", found)
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
